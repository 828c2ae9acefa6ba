"""Files of uploads in progress.

    image-uploads/<organization>/<repository>-<id>    the received bytes of one blob
    image-uploads/outgoing/                           copies of blobs that are being sent

The size of a file is the offset of its upload, so that a client continues after a restart of the platform. Uploads
that were abandoned for a day are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from moorage.core import disk
from moorage.core.kit.clock import DAY_MS
from moorage.products.images.failures import Refused, unknown_upload
from moorage.products.images.tables import Repository
from moorage.settings import Settings

MAX_UPLOADS = 64  # of an organization at a time
MAX_DOWNLOADS = 16  # of an organization at a time: a slow client holds the copy of its blob
MAX_DOWNLOAD_BYTES = 8 * 2**30  # of these copies together; one may be larger
STALE_MS = DAY_MS
_ID = re.compile(r"[0-9a-f]{32}")


class Uploads:
    def __init__(self, settings: Settings) -> None:
        self._root = settings.folder("image-uploads")
        self._reserve_mb = settings.disk_reserve_mb
        self._busy: set[Path] = set()
        self._downloads: Counter[int] = Counter()  # by organization
        self._download_bytes: Counter[int] = Counter()
        self._copying_bytes = 0  # of copies in progress, which have not used their disk space yet

    def begin(self, repository: Repository) -> str:
        folder = self._folder(repository)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if len(list(folder.iterdir())) >= MAX_UPLOADS:
            raise Refused(429, "TOOMANYREQUESTS", f"this organization has {MAX_UPLOADS} uploads in progress")
        self.check_room()
        upload_id = secrets.token_hex(16)
        self._path(repository, upload_id).touch(0o600)
        return upload_id

    def size(self, repository: Repository, upload_id: str) -> int:
        """Return the offset of an upload; raises Refused."""
        try:
            return self._path(repository, upload_id).stat().st_size
        except FileNotFoundError:
            raise unknown_upload() from None

    @contextlib.contextmanager
    def hold(self, repository: Repository, upload_id: str) -> Iterator[Path]:
        """Yield the file of an upload, for one request at a time; raises Refused."""
        self.size(repository, upload_id)
        path = self._path(repository, upload_id)
        if path in self._busy:
            raise Refused(409, "BLOB_UPLOAD_INVALID", "another request writes to this upload")
        self._busy.add(path)
        try:
            yield path
        finally:
            self._busy.discard(path)

    def open_bytes(self, repository: Repository) -> int:
        """Return the size of all uploads in progress of an organization."""
        total = 0
        for path in self._folder(repository).iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    @contextlib.asynccontextmanager
    async def copied(self, org_id: int, size: int) -> AsyncIterator[tuple[Path, Callable[[IO[bytes]], None]]]:
        """Yield the path for the copy of a blob, and a function that keeps the opened copy after the context.

        An organization has a limited number of copies until their files are closed. Raises DiskFull and Refused.
        """
        count, used = self._downloads[org_id], self._download_bytes[org_id]
        if count >= MAX_DOWNLOADS or (count and used + size > MAX_DOWNLOAD_BYTES):
            raise Refused(429, "TOOMANYREQUESTS", "this organization downloads many blobs; try again in a moment")
        self.check_room(self._copying_bytes + size)
        folder = self._root / "outgoing"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path, kept = folder / secrets.token_hex(16), list[IO[bytes]]()
        self._count_download(org_id, 1, size)
        self._copying_bytes += size
        try:
            yield path, kept.append
        finally:
            self._copying_bytes -= size
            path.unlink(missing_ok=True)
            release = partial(self._count_download, org_id, -1, -size)
            if kept:
                # A client may disconnect before the first byte is sent; then no code of the response runs.
                weakref.finalize(kept[0], release)
            else:
                release()

    def _count_download(self, org_id: int, count: int, size: int) -> None:
        for counter, number in ((self._downloads, count), (self._download_bytes, size)):
            counter[org_id] += number
            if not counter[org_id]:
                del counter[org_id]

    def check_room(self, more_bytes: int = 0) -> None:
        disk.check_room(self._root, more_bytes, self._reserve_mb)

    def clear_stale(self, now: int) -> int:
        """Delete abandoned uploads; return their number."""
        count = 0
        for path in self._root.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                if path not in self._busy and path.stat().st_mtime_ns // 1_000_000 <= now - STALE_MS:
                    path.unlink()
                    count += 1
        return count

    def _folder(self, repository: Repository) -> Path:
        return self._root / str(repository.org_id)

    def _path(self, repository: Repository, upload_id: str) -> Path:
        if not _ID.fullmatch(upload_id):
            raise unknown_upload()
        return self._folder(repository) / f"{repository.id}-{upload_id}"


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
