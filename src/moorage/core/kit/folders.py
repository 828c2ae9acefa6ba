"""Folders that somebody else has filled: walked, counted and removed without trust in what is in them.

The standard library walks by recursion and by whole paths, and a program can make folders that are deeper than either
allows. Nothing here follows a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK = 512  # what `st_blocks` counts in
LEAST = 4096  # An empty file takes an inode, so nothing counts as nothing.
DEEPEST = 256  # To follow a path takes the longer the deeper it is, and no honest folder is as deep as this.
ENDLESS = 2**60
_RIGHTS_OF_OWNER = stat.S_ISUID | stat.S_ISGID


def walk(folder: Path | str, *, is_lenient: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder, each folder before what is in it.

    A folder that cannot be listed, or that lies too deep, raises OSError; with `is_lenient` it counts as empty.
    """
    pending = [(os.fspath(folder), 0)]
    while pending:
        path, depth = pending.pop()
        try:
            entries = _listed(path, depth)
        except OSError:
            if not is_lenient:
                raise
            continue
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, depth + 1))


def _listed(path: str, depth: int) -> list[os.DirEntry[str]]:
    if depth > DEEPEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    with os.scandir(path) as listed:
        return list(listed)


def used_bytes(folder: Path | str, note: Callable[[os.stat_result], None] = lambda _: None) -> int:
    """Return what the names in a folder take on disk. What vanishes meanwhile, or cannot be seen, does not count.

    Files that were deleted and are still open have no name: see `runtime/sandbox/usage/open_files.py`. A folder that
    hides something too deep to be counted counts as endless. `note` is called with everything that was found.
    """
    used, top = 0, os.fspath(folder).rstrip("/").count("/")
    for entry in walk(folder, is_lenient=True):
        if entry.path.count("/") - top > DEEPEST:
            return ENDLESS
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            used += max(found.st_blocks * BLOCK, LEAST)
            note(found)
    return used


def give(folder: Path, uid: int) -> None:
    """Make a folder and all in it a user's own; links themselves, never what they lead to.

    Files lose what would let others run them with their owner's rights. What lies too deep to be walked stays.
    """
    os.chown(folder, uid, uid, follow_symlinks=False)
    for entry in walk(folder, is_lenient=True):
        mode = entry.stat(follow_symlinks=False).st_mode
        if mode & _RIGHTS_OF_OWNER and stat.S_ISREG(mode):
            os.chmod(entry.path, stat.S_IMODE(mode) & ~_RIGHTS_OF_OWNER)
        os.chown(entry.path, uid, uid, follow_symlinks=False)


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep and whatever modes it has. Safe to repeat."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
        return
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        _remove_flat(folder)


def _remove_flat(folder: Path) -> None:
    """Bring every folder up beside the first one before it is emptied: so no path is ever long."""
    beside = f"{folder}.{secrets.token_hex(8)}"
    pending, count = [os.fspath(folder)], 0
    while pending:
        here = pending.pop()
        os.chmod(here, 0o700)
        with os.scandir(here) as listed:
            entries = list(listed)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            count += 1
            os.chmod(entry.path, 0o700)  # To move a folder takes the right to write to it.
            os.rename(entry.path, f"{beside}.{count}")
            pending.append(f"{beside}.{count}")
        os.rmdir(here)
