"""Artifacts as folders: one per digest, made once, never changed, shared by all who use the same.

A folder appears under its name at once and whole, or not at all. Who puts one in place or takes one away holds the
lock meanwhile, and who takes one away looks for its users under that lock. So a folder that was there when a use of it
was committed, and whoever starts to use it looks afterwards, is there for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import zips
from moorage.core.kit.clock import HOUR_MS

# What nobody refers to stays this long: a deployment places its folder some moments before it is committed.
YOUNG_MS = HOUR_MS
LOCK = ".lock"
RETRY_S = 0.005
_DIGEST = re.compile("[0-9a-f]{64}")


def harden(folder: Path) -> None:
    """Let everybody read what is in a folder, and nobody write to its files."""
    for path in (folder, *walk(folder)):
        if path.is_dir():
            path.chmod(0o755)
        else:
            path.chmod(0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444)


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder; links are not followed."""
    for above, folders, files in os.walk(folder):
        yield from (Path(above, name) for name in (*folders, *files))


async def remove(folder: Path) -> None:
    """Remove a folder that nobody looks at any more; what cannot be removed now is found by collection."""
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


class Unpacked:
    """The folders of one feature, below `root`.

    `is_used` tells whether anything refers to a digest. `finish` is called on a folder before it appears.
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
        self._is_used = is_used
        self.finish = finish
        self._mode = mode

    def folder_of(self, digest: str) -> Path:
        return self.root / digest

    def new_folder(self) -> Path:
        """Make a folder to prepare something in; it can be moved to its place because it is on the same file system."""
        self._ensure_root()
        made = self.root / f".new-{secrets.token_hex(8)}"
        made.mkdir(mode=0o700)
        return made

    async def place(self, digest: str, prepared: Path) -> Path:
        """Put a prepared folder where its digest is looked for, unless some is there already. Safe to repeat."""
        target = self.folder_of(digest)
        async with self._alone():
            if not target.is_dir():
                prepared.rename(target)
            # Whatever is used now is young again, however long ago it was made.
            os.utime(target)
        return target

    async def ensure(self, artifacts: ArtifactStore, org_id: int, digest: str) -> Path:
        """Return the folder of a digest, unpacked from its artifact where it is missing. Safe to repeat and to race."""
        target = self.folder_of(digest)
        async with self._alone():
            if target.is_dir():
                return target
        scratch = self.new_folder()
        try:
            await artifacts.fetch(org_id, digest, scratch / "package.zip")
            await asyncio.to_thread(self._unpack, scratch / "package.zip", scratch / "package")
            return await self.place(digest, scratch / "package")
        finally:
            await remove(scratch)

    async def remove_unused(self, db: Database, digests: Iterable[str]) -> int:
        """Remove the folders of those digests that nothing refers to; return how many were there. Safe to repeat."""
        removed = 0
        for digest in sorted(set(digests)):
            removed += await self._remove_one(db, digest)
        return removed

    async def collect(self, db: Database) -> int:
        """Remove what crashes and deletions left behind, once it is old; return how many folders that were."""
        self._ensure_root()
        before = db.env.clock.trusted_now() - YOUNG_MS
        old = [path for path in self.root.iterdir() if path.is_dir() and _changed_at(path) < before]
        for path in old:
            if path.name.startswith("."):
                await remove(path)
        return await self.remove_unused(db, (path.name for path in old if _DIGEST.fullmatch(path.name)))

    async def _remove_one(self, db: Database, digest: str) -> bool:
        target, doomed = self.folder_of(digest), self.root / f".old-{secrets.token_hex(8)}"
        async with self._alone():
            if not target.is_dir() or await db.read(partial(self._is_used, digest=digest)):  # type: ignore[call-arg]
                return False
            target.rename(doomed)
        await remove(doomed)
        return True

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the lock of the root, against other processes too. Waiting takes no thread: the holder may need one."""
        self._ensure_root()
        handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _lock(handle):  # noqa: ASYNC110 - the holder may be another process
                await asyncio.sleep(RETRY_S)
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
    except FileNotFoundError:  # Somebody else has just moved it away.
        return float("inf")
