"""Where repositories lie, and what may be cleared away there.

    git/<id>.git        a bare repository
    git/blank.git       one without a commit: what a repository looks like before its first push
    git/empty/          nothing: the home of every git, and where it looks for hooks
    git/incoming/       pushes and fetches that are under way

A repository is made and removed under another name and renamed, so that there is never half of one at its place.
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
MAKE_S = 30
STALE_S = 3600  # No push or fetch takes as long: what is older than this and half made, nobody works on.
# In a repository: objects of a push that git has not checked yet (named `incoming-` by older gits), and half a pack.
_UNDER_WAY = (
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
        """Make the folders that everything else here needs. Safe to repeat."""
        self.incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._empty.mkdir(exist_ok=True, mode=0o500)

    def path(self, repository_id: int) -> Path:
        return self.folder / f"{repository_id}.git"

    async def ensure(self, repository_id: int) -> Path:
        """Return the folder of a repository, which is made where it is not there."""
        return await self._ensure(self.path(repository_id))

    async def blank(self) -> Path:
        """Return a repository that nothing was ever pushed to."""
        return await self._ensure(self.folder / "blank.git")

    def check_room(self, more_bytes: int = 0) -> None:
        """Raise DiskFull where storing this much would leave less free disk space than the reserve."""
        disk.check_room(self.folder, more_bytes, self._reserve_mb)

    def remove(self, repository_id: int) -> None:
        """Delete a repository. Removing twice succeeds."""
        gone = self.folder / f"gone-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            self.path(repository_id).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def clear_stale(self, now_ms: int) -> None:
        """Delete what was under way when a process died, and open the locks that a git left behind."""
        before = now_ms / 1000 - STALE_S
        for pattern in _UNDER_WAY:
            for path in self.folder.glob(pattern):
                if _is_older(path, before):
                    _delete(path)
        for repository in self.folder.glob("*.git"):
            for lock in _locks(repository):
                if _is_older(lock, before):
                    lock.unlink(missing_ok=True)

    def half_made(self, now_ms: int) -> list[int]:
        """Return the repositories without a single reference that nobody has touched for a while."""
        before = now_ms / 1000 - STALE_S
        found = (path for path in self.folder.glob("*.git") if path.stem.isdigit())
        return [int(path.stem) for path in found if _is_older(path, before) and not has_references(path)]

    async def _ensure(self, path: Path) -> Path:
        if path.exists():
            return path
        self.prepare()
        new = self.folder / f"new-{secrets.token_hex(8)}"
        words = ("init", "--quiet", "--bare", "--template=", f"--initial-branch={FIRST_BRANCH}", new)
        done = await self.git.run(*words, cwd=self.folder, within_s=MAKE_S)
        if done.code != 0:
            await asyncio.to_thread(_delete, new)
            if disk.says_full(done.complaint):
                raise DiskFull
            raise EngineError(f"cannot make a repository: {done.complaint}")
        try:
            new.rename(path)
        except OSError:
            # Somebody else was faster.
            await asyncio.to_thread(_delete, new)
            if not path.exists():
                raise
        return path


def size_of(folder: Path) -> int:
    """Return what a folder takes on disk. What vanishes meanwhile counts for nothing."""
    used = 0
    for entry in _walk(folder):
        with contextlib.suppress(FileNotFoundError):
            used += _size(entry.stat(follow_symlinks=False))
    return used


def _size(about: os.stat_result) -> int:
    # Some file systems count blocks only when they are written out, and a small file takes a whole block. An empty
    # one counts too: a tree that holds itself many times over is made of them.
    return max(about.st_blocks * 512, about.st_size, 512)


def has_references(repository: Path) -> bool:
    if (repository / "packed-refs").exists():
        return True
    return any(entry.is_file(follow_symlinks=False) for entry in _walk(repository / "refs"))


def _locks(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    yield from (Path(entry.path) for entry in _walk(repository / "refs") if entry.name.endswith(".lock"))


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything in a folder, whatever others do to it meanwhile."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
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
