"""Walk, measure, chown and remove folders with untrusted content.

The standard library recurses and uses full paths; a tenant's program can nest folders deeper than both allow. No
function here follows symbolic links.
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

BLOCK_BYTES = 512  # unit of `st_blocks`
MIN_ENTRY_BYTES = 4096  # An empty file takes an inode, so every entry counts as at least this.
MAX_DEPTH = 256  # Path lookup cost grows with depth; legitimate folders are shallower.
ENDLESS_BYTES = 2**60
_SETID_BITS = stat.S_ISUID | stat.S_ISGID


def walk(folder: Path | str, *, is_lenient: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder, each folder before its content.

    A folder that cannot be listed or is deeper than MAX_DEPTH raises OSError; with `is_lenient` it counts as empty.
    """
    pending = [(os.fspath(folder), 0)]
    while pending:
        path, depth = pending.pop()
        try:
            entries = _list_folder(path, depth)
        except OSError:
            if not is_lenient:
                raise
            continue
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, depth + 1))


def _list_folder(path: str, depth: int) -> list[os.DirEntry[str]]:
    if depth > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    with os.scandir(path) as listed:
        return list(listed)


def used_bytes(folder: Path | str, note: Callable[[os.stat_result], None] = lambda _: None) -> int:
    """Return the disk usage of a folder; skips entries that cannot be read.

    Deleted files that are still open have no entry: see `runtime/sandbox/usage/open_files.py`. A folder with entries
    deeper than MAX_DEPTH counts as ENDLESS_BYTES. `note` is called with the stat result of each entry.
    """
    used, top = 0, os.fspath(folder).rstrip("/").count("/")
    for entry in walk(folder, is_lenient=True):
        if entry.path.count("/") - top > MAX_DEPTH:
            return ENDLESS_BYTES
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            used += max(status.st_blocks * BLOCK_BYTES, MIN_ENTRY_BYTES)
            note(status)
    return used


def change_owner(folder: Path, uid: int) -> None:
    """Change the owner of a folder tree; of links themselves, never their targets.

    Removes setuid and setgid bits of files. Entries deeper than MAX_DEPTH keep their owner.
    """
    os.chown(folder, uid, uid, follow_symlinks=False)
    for entry in walk(folder, is_lenient=True):
        mode = entry.stat(follow_symlinks=False).st_mode
        if mode & _SETID_BITS and stat.S_ISREG(mode):
            os.chmod(entry.path, stat.S_IMODE(mode) & ~_SETID_BITS)
        os.chown(entry.path, uid, uid, follow_symlinks=False)


def has_links(root: Path, path: Path) -> bool:
    """Return whether the path from `root` to `path` leads over a link. The last part need not exist."""
    return Path(os.path.realpath(path)) != Path(os.path.realpath(root), path.relative_to(root))


def is_real(root: Path, path: Path) -> bool:
    """Return whether a path below `root` is a folder without links in its path.

    Links in untrusted content may lead anywhere. Check each path before something in it is created, moved or removed.
    """
    return path.is_dir() and not has_links(root, path)


def remove(folder: Path) -> None:
    """Remove a folder tree of any depth and with any file modes. Safe to repeat."""
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
    """Move each subfolder to the top before emptying it, so that paths stay short."""
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
            os.chmod(entry.path, 0o700)  # Moving a folder requires write permission on it.
            os.rename(entry.path, f"{beside}.{count}")
            pending.append(f"{beside}.{count}")
        os.rmdir(here)
