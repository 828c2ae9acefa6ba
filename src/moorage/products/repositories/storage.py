"""Folders of repositories, and their cleanup.

    git/<id>.git        a bare repository
    git/blank.git       a repository without commits, shown before the first push
    git/empty/          an empty folder: the home and the hooks folder of every git process
    git/incoming/       pushes and fetches in progress

A repository is created and deleted under a temporary name and renamed, so that its path never has an incomplete one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from moorage.core import disk
from moorage.errors import DiskFull, EngineError
from moorage.products.repositories.git import Git
from moorage.products.repositories.service import FIRST_BRANCH
from moorage.settings import Settings

MB = 2**20
INIT_TIMEOUT_S = 30
STALE_S = 3600  # age of abandoned files: every push and fetch is shorter
# In a repository: unchecked objects of a push (`incoming-` in older versions of git), and incomplete packs.
_TEMPORARY = (
    "new-*",
    "gone-*",
    "incoming/*",
    "*.git/objects/tmp_objdir-*",
    "*.git/objects/incoming-*",
    "*.git/objects/pack/tmp_*",
)


class Storage:
    def __init__(self, settings: Settings) -> None:
        self.folder = settings.folder("git").absolute()
        self.incoming = self.folder / "incoming"
        self.most_bytes = settings.repository_mb * MB
        self._reserve_mb = settings.disk_reserve_mb
        self._empty = self.folder / "empty"
        self.git = Git(self._empty, self.most_bytes)

    def prepare(self) -> None:
        """Create the folders. Safe to repeat."""
        self.incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._empty.mkdir(exist_ok=True, mode=0o500)

    def path(self, repository_id: int) -> Path:
        return self.folder / f"{repository_id}.git"

    def has(self, repository_id: int) -> bool:
        return self.path(repository_id).is_dir()

    async def ensure(self, repository_id: int) -> Path:
        """Return the folder of a repository; create it if needed."""
        return await self._ensure(self.path(repository_id))

    async def blank(self) -> Path:
        """Return the folder of an empty repository."""
        return await self._ensure(self.folder / "blank.git")

    def check_room(self, more_bytes: int = 0) -> None:
        """Raise DiskFull if storing this much would leave less than the disk reserve."""
        disk.check_room(self.folder, more_bytes, self._reserve_mb)

    def remove(self, repository_id: int) -> None:
        """Delete a repository. Safe to repeat."""
        gone = self.folder / f"gone-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            self.path(repository_id).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def clear_stale(self, now_ms: int) -> None:
        """Delete temporary files and git locks that a dead process left behind."""
        before = now_ms / 1000 - STALE_S
        for pattern in _TEMPORARY:
            for path in self.folder.glob(pattern):
                if _is_older(path, before):
                    _delete(path)
        for repository in self.folder.glob("*.git"):
            for lock in _locks(repository):
                if _is_older(lock, before):
                    lock.unlink(missing_ok=True)

    def half_made(self, now_ms: int) -> list[int]:
        """Return the repositories without references that did not change for STALE_S."""
        before = now_ms / 1000 - STALE_S
        paths = (path for path in self.folder.glob("*.git") if path.stem.isdigit())
        return [int(path.stem) for path in paths if _is_older(path, before) and not has_references(path)]

    async def _ensure(self, path: Path) -> Path:
        if path.exists():
            return path
        self.prepare()
        new = self.folder / f"new-{secrets.token_hex(8)}"
        words = ("init", "--quiet", "--bare", "--template=", f"--initial-branch={FIRST_BRANCH}", new)
        done = await self.git.run(*words, cwd=self.folder, within_s=INIT_TIMEOUT_S)
        if done.code != 0:
            await asyncio.to_thread(_delete, new)
            if disk.says_full(done.complaint):
                raise DiskFull
            raise EngineError(f"cannot create a repository: {done.complaint}")
        try:
            new.rename(path)
        except OSError:  # A concurrent call may have created it.
            await asyncio.to_thread(_delete, new)
            if not path.exists():
                raise
        return path


def size_of(folder: Path) -> int:
    """Return the disk usage of a folder, which may change meanwhile."""
    used = 0
    for entry in _walk(folder):
        with contextlib.suppress(FileNotFoundError):
            used += _size(entry.stat(follow_symlinks=False))
    return used


def _size(stat: os.stat_result) -> int:
    # Some file systems count blocks only after the write-back, and a small file takes a whole block. Empty files count
    # too, because a malicious tree can repeat them without limit.
    return max(stat.st_blocks * 512, stat.st_size, 512)


def has_references(repository: Path) -> bool:
    if (repository / "packed-refs").exists():
        return True
    return any(entry.is_file(follow_symlinks=False) for entry in _walk(repository / "refs"))


def _locks(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    yield from (Path(entry.path) for entry in _walk(repository / "refs") if entry.name.endswith(".lock"))


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder that may change meanwhile."""
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        yield entry
        except (FileNotFoundError, NotADirectoryError):
            continue


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.lstat().st_mtime < before
    except FileNotFoundError:
        return False


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
