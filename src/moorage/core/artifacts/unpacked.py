"""Artifacts as folders: one immutable folder per digest, shared by all its users.

A folder is renamed to its name when it is complete. Adding and removing a folder requires the lock, and a removal
checks for users of the folder under the lock. So a user that first commits its reference and then finds the folder
keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import zips
from moorage.core.kit.clock import HOUR_MS
from moorage.core.kit.processes.deletions import Deletions, delete

# Unused folders are kept this long: a deployment places its folder shortly before its commit.
YOUNG_MS = HOUR_MS
LOCK = ".lock"
LOCK_RETRY_INTERVAL_S = 0.005
_DIGEST = re.compile("[0-9a-f]{64}")


def harden(folder: Path, *, is_layered: bool = False) -> None:
    """Make all files of a folder readable and none writable.

    With `is_layered` the owner may write: each user of the folder has a writable layer over it.
    """
    owner = stat.S_IWUSR if is_layered else 0
    for path in (folder, *walk(folder)):
        if path.is_dir():
            path.chmod(0o755)
        else:
            path.chmod((0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444) | owner)


def walk(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder without following links."""
    for above, folders, files in os.walk(folder):
        yield from (Path(above, name) for name in (*folders, *files))


class Unpacked:
    """The folders of one product, below `root`.

    `is_used` checks for references to a digest. `finish` is called on a folder before it gets its name.
    """

    def __init__(
        self,
        root: Path,
        caps: zips.Caps,
        *,
        is_used: Callable[[Tx, str], bool],
        finish: Callable[[Path], None] = harden,
        mode: int = 0o700,
    ) -> None:
        self.root = root
        self.caps = caps
        self.deletions = Deletions()
        self._is_used = is_used
        self.finish = finish
        self._mode = mode

    def folder_of(self, digest: str) -> Path:
        return self.root / digest

    def new_folder(self) -> Path:
        """Make a temporary folder on the same file system as the final one."""
        self._ensure_root()
        folder = self.root / f".new-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        return folder

    async def place(self, digest: str, prepared: Path) -> Path:
        """Rename a prepared folder to its digest unless that exists. Safe to repeat."""
        target = self.folder_of(digest)
        async with self._locked():
            if not target.is_dir():
                prepared.rename(target)
            # Restarts YOUNG_MS for a folder that is used again.
            os.utime(target)
        return target

    async def ensure(self, artifacts: ArtifactStore, org_id: int, digest: str) -> Path:
        """Return the folder of a digest, unpacked if missing. Safe to repeat."""
        target = self.folder_of(digest)
        async with self._locked():
            if target.is_dir():
                return target
        scratch = self.new_folder()
        try:
            await artifacts.fetch(org_id, digest, scratch / "package.zip")
            await asyncio.to_thread(self._unpack, scratch / "package.zip", scratch / "package")
            return await self.place(digest, scratch / "package")
        finally:
            await asyncio.to_thread(delete, scratch)

    async def remove_unused(self, db: Database, digests: Iterable[str]) -> int:
        """Remove the folders of unused digests and return their number. Safe to repeat.

        Files are deleted in the background: a release may have 100,000. `collect` repeats an interrupted deletion.
        """
        removed = 0
        for digest in sorted(set(digests)):
            removed += await self._remove_one(db, digest)
        return removed

    async def collect(self, db: Database) -> int:
        """Remove old leftovers and unused folders; return the number of the latter."""
        self._ensure_root()
        before = db.env.clock.trusted_now() - YOUNG_MS
        old = [path for path in self.root.iterdir() if path.is_dir() and _changed_at(path) < before]
        for path in old:
            if path.name.startswith("."):
                await asyncio.to_thread(delete, path)
        return await self.remove_unused(db, (path.name for path in old if _DIGEST.fullmatch(path.name)))

    async def _remove_one(self, db: Database, digest: str) -> bool:
        target, doomed = self.folder_of(digest), self.root / f".old-{secrets.token_hex(8)}"
        async with self._locked():
            if not target.is_dir() or await db.read(partial(self._is_used, digest=digest)):  # type: ignore[call-arg]
                return False
            target.rename(doomed)
        self.deletions.begin(doomed)
        return True

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the lock against all processes. Polls: the holder may need the thread."""
        self._ensure_root()
        handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _lock(handle):  # noqa: ASYNC110 - the holder may be another process
                await asyncio.sleep(LOCK_RETRY_INTERVAL_S)
            yield
        finally:
            os.close(handle)

    def _unpack(self, archive: Path, target: Path) -> None:
        zips.extract(archive, target, self.caps)
        self.finish(target)

    def _ensure_root(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=self._mode)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime * 1000
    except FileNotFoundError:  # renamed by another process
        return float("inf")
