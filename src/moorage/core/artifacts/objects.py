"""Object storage of artifacts: files in a folder, or an S3 bucket.

Every call blocks and belongs in a thread. obstore's coroutines are not used: if a thread of its runtime delivers a
result while the interpreter shuts down, the process aborts (https://github.com/PyO3/pyo3-async-runtimes/issues/40).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from moorage.core import disk
from moorage.errors import DiskFull
from moorage.settings import Settings, is_loopback

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

ROOT = "sha256"
CHUNK = 8 * 1024 * 1024
MAX_CONCURRENT_PARTS = 4  # With CHUNK, an upload needs 32 MB of memory for a file of any size.
MAX_PARTS = 9_000  # S3 refuses uploads of more than 10,000 parts.
PAGE = 1_000

_KEY = re.compile(rf"{ROOT}/([0-9a-f]{{2}})/([0-9a-f]{{62}})\.([0-9a-f]{{16}})")


class ArtifactDamaged(Exception):
    """The stored bytes are missing or do not match; users never see this message."""


class ArtifactsUnavailable(Exception):
    """The artifact store failed; a retry may succeed. Users never see this message."""


def key_of(digest: str, copy: str) -> str:
    """Return the object key of a copy of a digest.

    Every upload has its own copy name. Neither a folder nor S3 can delete an object on the condition that it was not
    written again, so a deletion that was decided before a put must not be able to delete the new bytes.
    """
    return f"{ROOT}/{digest[:2]}/{digest[2:]}.{copy}"


def parse_key(key: str) -> tuple[str, str] | None:
    """Return the digest and the copy of a key, or None for a foreign object."""
    match = _KEY.fullmatch(key)
    return (match[1] + match[2], match[3]) if match else None


class Objects:
    """The objects of a folder or bucket. Imports obstore lazily, to save memory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.folder = None if settings.artifacts_url else settings.folder("artifacts")

    @cached_property
    def _store(self) -> LocalStore | S3Store:
        from obstore.store import LocalStore

        if self.folder is not None:
            return LocalStore(prefix=self.folder, mkdir=True)
        return _bucket(self._settings)

    def put(self, key: str, source: Path | bytes, size: int) -> None:
        """Store an object durably and atomically."""
        import obstore

        part = max(CHUNK, -(-size // MAX_PARTS))
        with _translate_errors():
            obstore.put(self._store, key, source, chunk_size=part, max_concurrency=MAX_CONCURRENT_PARTS)
        if self.folder is not None:
            _sync(self.folder, self.folder / key)

    def size(self, key: str) -> int | None:
        """Return the size of an object, or None if it does not exist."""
        import obstore

        try:
            with _translate_errors():
                return int(obstore.head(self._store, key)["size"])
        except FileNotFoundError:
            return None

    def chunks(self, key: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of an object; raises ArtifactDamaged.

        Each chunk is a separate request, so that the client's timeout applies to a chunk and not to the whole object.
        """
        import obstore

        if (stored := self.size(key)) != size:
            raise ArtifactDamaged(f"{key}: has {stored} bytes instead of {size}")
        for start in range(0, size, CHUNK):
            try:
                with _translate_errors():
                    chunk = obstore.get_range(self._store, key, start=start, end=min(start + CHUNK, size))
            except FileNotFoundError:
                raise ArtifactDamaged(f"{key}: deleted while it was read") from None
            yield chunk.to_bytes()

    def verify(self, key: str, digest: str, size: int) -> None:
        """Read an object and compare its digest; raises ArtifactDamaged."""
        sha256 = hashlib.sha256()
        for chunk in self.chunks(key, size):
            sha256.update(chunk)
        if sha256.hexdigest() != digest:
            raise ArtifactDamaged(f"{key}: the stored bytes have the digest {sha256.hexdigest()}")

    def delete(self, key: str) -> None:
        """Delete an object. Safe to repeat."""
        import obstore

        with contextlib.suppress(FileNotFoundError), _translate_errors():
            obstore.delete(self._store, key)

    def older_than(self, moment_ms: int) -> Iterator[list[str]]:
        """Yield pages of keys of artifacts that were last written before a time."""
        import obstore

        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
        pages = iter(obstore.list(self._store, prefix=ROOT, chunk_size=PAGE))
        while True:
            with _translate_errors():
                page = next(pages, None)
            if page is None:
                return
            yield [each["path"] for each in page if each["last_modified"] < moment and parse_key(each["path"])]

    def drop_staged(self, moment_ms: int) -> int:
        """Delete old incomplete files of killed processes; return their number.

        A listing does not contain them. Incomplete uploads to a bucket need a lifecycle rule of the bucket.
        """
        if self.folder is None:
            return 0
        dropped = 0
        for path in self.folder.glob(f"{ROOT}/*/*#*"):
            with contextlib.suppress(FileNotFoundError):  # A running put has renamed it.
                if path.stat().st_mtime * 1000 < moment_ms:
                    path.unlink()
                    dropped += 1
        return dropped


def _bucket(settings: Settings) -> S3Store:
    from obstore.store import S3Store

    url = urlsplit(settings.artifacts_url)
    options: dict[str, Any] = {"region": settings.artifacts_region}
    if settings.artifacts_endpoint:
        options["endpoint"] = settings.artifacts_endpoint
    if settings.artifacts_access_key.get_secret_value():
        options["access_key_id"] = settings.artifacts_access_key.get_secret_value()
        options["secret_access_key"] = settings.artifacts_secret_key.get_secret_value()
    plain = settings.artifacts_allow_http or is_loopback(urlsplit(settings.artifacts_endpoint).hostname or "")
    return S3Store(
        url.netloc,
        prefix=url.path.strip("/") or None,
        client_options={"allow_http": plain},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(minutes=1)},
        **options,
    )


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        if disk.says_full(str(error)):
            raise DiskFull from error
        # The first line is the error; the rest is debugging output.
        raise ArtifactsUnavailable(str(error).partition("\n")[0]) from error


def _sync(root: Path, path: Path) -> None:
    """fsync a file and its parent folders, which obstore does not."""
    for each in (path, *path.parents):
        handle = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if each == root:
            return
