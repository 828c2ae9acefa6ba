"""What builds of one project keep for the next: package caches, and folders in which build tools remember their work.

A cache belongs to one project and is never seen by another's build. All of them together are capped: the one that was
used longest ago goes first. A lock on the folder says that it is in use, to other processes too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

MOST_BYTES = 2 * 2**30
# Where build tools remember their work inside a project, and what that is called here.
REMEMBERED = {
    "node_modules/.cache": "node_modules-cache",
    ".next/cache": "next-cache",
}
FILES = "files"  # what the build sees as its cache folder
SIZE = "size"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Cache:
    """One project's cache, while a build has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = folder / FILES

    def open(self, *, is_clean: bool) -> None:
        """Make it ready for a build, from what the last one left or, where it should be clean, from nothing."""
        if is_clean:
            for name in (FILES, *REMEMBERED.values()):
                folders.remove(self._folder / name)
        self.files.mkdir(exist_ok=True, mode=0o755)

    def put_back(self, folder: Folder, uid: int) -> None:
        """Give build tools what they remembered, unless the project brings such a folder itself."""
        for place, name in REMEMBERED.items():
            kept, target = self._folder / name, folder.path / place
            if not kept.is_dir() or os.path.lexists(target):
                continue
            if not os.path.lexists(target.parent):
                target.parent.mkdir(mode=0o755)
                os.chown(target.parent, uid, uid)
            _move(kept, target, folder.path)

    def take(self, folder: Folder) -> None:
        """Keep what build tools remember; it leaves the project. What is elsewhere than it should be stays there."""
        for place, name in REMEMBERED.items():
            kept, target = self._folder / name, folder.path / place
            if is_real(folder.path, target):
                folders.remove(kept)
                _move(target, kept, self._folder)

    def note_size(self) -> None:
        (self._folder / SIZE).write_text(str(folders.used_bytes(self._folder)))
        os.utime(self._folder)

    def give(self, uid: int) -> None:
        """Make it a build's own, or ours again: only what the build may see, and what it left."""
        for name in (FILES, *REMEMBERED.values()):
            if (self._folder / name).is_dir():
                folders.give(self._folder / name, uid)


@contextlib.contextmanager
def held(root: Path, name: str) -> Iterator[Cache | None]:
    """Hold a project's cache; None where another build has it."""
    if not _NAME.fullmatch(name):
        raise BuildFailed(f"{name!r} cannot name a cache")
    folder = root / name
    handle = _opened(folder)
    try:
        yield Cache(folder) if _lock(handle) and _is_still(folder, handle) else None
    finally:
        os.close(handle)


def trim(root: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """Remove the caches that were used longest ago until the others fit; return their names. Those in use stay."""
    known = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    removed, used = [], 0
    for path in sorted(known, key=_used_at, reverse=True):
        used += _size(path)
        if used > most_bytes and _is_removed(path):
            removed.append(path.name)
    return removed


def _is_removed(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _lock(handle):
                return False
            for name in (FILES, SIZE, *REMEMBERED.values()):
                folders.remove(path / name)
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        finally:
            os.close(handle)
    return True


def _opened(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # Somebody has just removed it.
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_still(folder: Path, handle: int) -> bool:
    try:
        return folder.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _move(source: Path, target: Path, root: Path) -> None:
    """Move a folder to a place that no link leads to; on another file system it stays where it is."""
    if not is_real(root, target.parent):
        return
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise


def is_real(root: Path, path: Path) -> bool:
    """Tell whether a path below a folder is a folder that no link leads to."""
    return path.is_dir() and Path(os.path.realpath(path)) == Path(os.path.realpath(root), path.relative_to(root))


def _size(path: Path) -> int:
    try:
        return int((path / SIZE).read_text())
    except (OSError, ValueError):
        return folders.used_bytes(path)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
