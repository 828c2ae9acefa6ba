"""Build caches of projects: package caches, and cache folders of build tools.

A cache belongs to one project; builds of other projects cannot read it. The total size of all caches is limited, and
the least recently used one is removed first. A lock on the folder marks a cache as in use, across processes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.core.kit.processes import deletions
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

MIN_TOTAL_BYTES, MAX_TOTAL_BYTES = 2 * 2**30, 20 * 2**30
DISK_PARTS = 20  # All caches together may have one of these parts of the disk.
# Cache folders of build tools inside a project, and their names in the cache.
TOOL_CACHES = {
    "node_modules/.cache": "node_modules-cache",
    ".next/cache": "next-cache",
}
FILES = "files"  # the cache folder that a build sees
INSTALLED = "installed"  # copy of the last installed dependencies, which no build sees
INSTALLED_KEY = "installed-key"
MAX_INSTALLED_BYTES = 2**29
MOUNTS = "mounts"  # cache mounts of image builds
SIZE = "size"
_CONTENT = (FILES, MOUNTS, INSTALLED, INSTALLED_KEY, *TOOL_CACHES.values())
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Cache:
    """Cache of one project, held by a build."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = folder / FILES
        self.mounts = folder / MOUNTS

    def open(self, *, is_clean: bool) -> None:
        """Prepare the cache for a build; `is_clean` empties it first."""
        if is_clean:
            for name in _CONTENT:
                folders.remove(self._folder / name)
        self.files.mkdir(exist_ok=True, mode=0o755)

    def restore(self, key: str, folder: Folder, name: str, uid: int) -> bool:
        """Copy the dependencies that were installed for a key into the project; return whether there are any."""
        stored, known = self._folder / INSTALLED, self._folder / INSTALLED_KEY
        if not folders.is_real(folder.root, folder.path):
            return False
        target = folder.path / name
        if not known.is_file() or known.read_text() != key or os.path.lexists(target) or not _copy(stored, target):
            return False
        if uid:
            folders.change_owner(target, uid)
        return True

    def keep(self, key: str, folder: Folder, name: str) -> None:
        """Store a copy of the installed dependencies, unless it is large. No process of the build may run."""
        source = folder.path / name
        (self._folder / INSTALLED_KEY).unlink(missing_ok=True)
        folders.remove(self._folder / INSTALLED)
        if not folders.is_real(folder.root, source) or folders.used_bytes(source) > MAX_INSTALLED_BYTES:
            return
        if _copy(source, self._folder / INSTALLED):
            (self._folder / INSTALLED_KEY).write_text(key)

    def put_back(self, folder: Folder, uid: int) -> None:
        """Move the tools' caches into the project, unless it has such a folder itself."""
        for path, name in TOOL_CACHES.items():
            stored, target = self._folder / name, folder.path / path
            if not stored.is_dir() or os.path.lexists(target) or folders.has_links(folder.root, target):
                continue
            if not os.path.lexists(target.parent):
                target.parent.mkdir(mode=0o755)
                os.chown(target.parent, uid, uid)
            _move(stored, target, folder.root)

    def take(self, folder: Folder) -> None:
        """Move the tools' caches out of the project; a path with links is left alone."""
        for path, name in TOOL_CACHES.items():
            stored, target = self._folder / name, folder.path / path
            if folders.is_real(folder.root, target):
                folders.remove(stored)
                _move(target, stored, self._folder)

    def note_size(self) -> None:
        (self._folder / SIZE).write_text(str(folders.used_bytes(self._folder)))
        os.utime(self._folder)

    def give(self, uid: int) -> None:
        """Change the owner of the files that a build may see."""
        for name in (FILES, *TOOL_CACHES.values()):
            if (self._folder / name).is_dir():
                folders.change_owner(self._folder / name, uid)


@contextlib.contextmanager
def held(root: Path, name: str) -> Iterator[Cache | None]:
    """Hold a project's cache; None if another build holds it."""
    if not _NAME.fullmatch(name):
        raise BuildFailed(f"{name!r} cannot name a cache")
    folder = root / name
    handle = _open_folder(folder)
    try:
        yield Cache(folder) if _lock(handle) and _is_same(folder, handle) else None
    finally:
        os.close(handle)


def limit(total_bytes: int, free_bytes: int) -> int:
    """Return how large all caches together may be on a disk; at most half of its free space counts."""
    return max(MIN_TOTAL_BYTES, min(MAX_TOTAL_BYTES, total_bytes // DISK_PARTS, free_bytes // 2))


def trim(root: Path, most_bytes: int) -> list[str]:
    """Remove the least recently used caches over the limit; return their names."""
    known = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    removed, used = [], 0
    for path in sorted(known, key=_used_at, reverse=True):
        used += _size(path)
        if used > most_bytes and _remove_unused(path):
            removed.append(path.name)
    return removed


def _remove_unused(path: Path) -> bool:
    """Remove a cache; return False if a build holds it."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _lock(handle):
                return False
            for name in (SIZE, *_CONTENT):
                deletions.delete(path / name)
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        finally:
            os.close(handle)
    return True


def _open_folder(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # removed by a concurrent `trim`
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_same(folder: Path, handle: int) -> bool:
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


def _copy(source: Path, target: Path) -> bool:
    """Copy a folder with its links as they are; leaves nothing after a failure."""
    argv = ["cp", "--archive", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        folders.remove(target)
    return done.returncode == 0


def _move(source: Path, target: Path, root: Path) -> None:
    """Move a folder to a path without links; no-op between file systems."""
    if not folders.is_real(root, target.parent):
        return
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise


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
