"""The objects behind the artifacts: files in a folder, or an S3 bucket.

Every call here blocks and belongs in a thread. obstore's own coroutines are not used: a thread of its runtime that
hands over a result while the interpreter ends aborts the process (https://github.com/PyO3/pyo3-async-runtimes/issues/40).
"""

from __future__ import annotations

import contextlib
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
PARTS_AT_ONCE = 4  # With CHUNK, an upload holds 32 MB however large the file is.
MOST_PARTS = 9_000  # S3 refuses an upload of more than 10,000 parts.
PAGE = 1_000

_KEY = re.compile(rf"{ROOT}/([0-9a-f]{{2}})/([0-9a-f]{{62}})\.([0-9a-f]{{16}})")


class ArtifactDamaged(Exception):
    """What is stored under a digest is not what was put there; never shown as it is."""


class ArtifactsUnavailable(Exception):
    """The artifact store could not do what it was asked, and may be able to later; never shown as it is."""


def key_of(digest: str, copy: str) -> str:
    """Return where the bytes of a digest are.

    Every upload has a copy name of its own. Neither a folder nor S3 can delete an object only if nobody has written it
    since, so a deletion that was decided before a put, and carried out after it, must not be able to hit the new bytes.
    """
    return f"{ROOT}/{digest[:2]}/{digest[2:]}.{copy}"


def parse_key(key: str) -> tuple[str, str] | None:
    """Return the digest and the copy of a key, or None for an object that is not ours."""
    match = _KEY.fullmatch(key)
    return (match[1] + match[2], match[3]) if match else None


class Objects:
    """obstore is imported by the first use: a process that stores nothing does not pay for it in memory."""

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
        """Store an object. Once this returns it outlives a power cut; before, nobody sees a part of it."""
        import obstore

        part = max(CHUNK, -(-size // MOST_PARTS))
        with _translating():
            obstore.put(self._store, key, source, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
        if self.folder is not None:
            _sync(self.folder, self.folder / key)

    def size(self, key: str) -> int | None:
        """Return how many bytes an object has, or None where there is none."""
        import obstore

        try:
            with _translating():
                return int(obstore.head(self._store, key)["size"])
        except FileNotFoundError:
            return None

    def chunks(self, key: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of an object; raises ArtifactDamaged where it is gone or has another size.

        Each chunk is a request of its own, so that the client's timeout counts for a chunk and not for gigabytes.
        """
        import obstore

        if (stored := self.size(key)) != size:
            raise ArtifactDamaged(f"{key}: {size} bytes were stored, and there are {stored}")
        for start in range(0, size, CHUNK):
            try:
                with _translating():
                    chunk = obstore.get_range(self._store, key, start=start, end=min(start + CHUNK, size))
            except FileNotFoundError:
                raise ArtifactDamaged(f"{key}: deleted while it was read") from None
            yield chunk.to_bytes()

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        import obstore

        with contextlib.suppress(FileNotFoundError), _translating():
            obstore.delete(self._store, key)

    def older_than(self, moment_ms: int) -> Iterator[list[str]]:
        """Yield, page by page, the keys of our objects that were last written before a moment."""
        import obstore

        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
        pages = iter(obstore.list(self._store, prefix=ROOT, chunk_size=PAGE))
        while True:
            with _translating():
                page = next(pages, None)
            if page is None:
                return
            yield [each["path"] for each in page if each["last_modified"] < moment and parse_key(each["path"])]

    def drop_staged(self, moment_ms: int) -> int:
        """Delete the half-written files that a killed process left in the folder before a moment; return how many.

        A listing leaves them out. A bucket keeps its half-done uploads where only a lifecycle rule of its own reaches.
        """
        if self.folder is None:
            return 0
        dropped = 0
        for path in self.folder.glob(f"{ROOT}/*/*#*"):
            with contextlib.suppress(FileNotFoundError):  # A put that is still alive has just renamed it.
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
    plain = is_loopback(urlsplit(settings.artifacts_endpoint).hostname or "")
    return S3Store(
        url.netloc,
        prefix=url.path.strip("/") or None,
        client_options={"allow_http": plain},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(minutes=1)},
        **options,
    )


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        if disk.says_full(str(error)):
            raise DiskFull from error
        # The first line says what failed; the others are a debugging dump.
        raise ArtifactsUnavailable(str(error).partition("\n")[0]) from error


def _sync(root: Path, path: Path) -> None:
    """Make a file and the folders that lead to it durable; obstore leaves both to the system's cache."""
    for each in (path, *path.parents):
        handle = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if each == root:
            return
