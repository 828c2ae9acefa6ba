"""Image folders with the ids of a workload on the disk, where the kernel cannot map ids below an overlay mount.

    <folder>.ids-<first id>        copy of an image's folder, whose owners are ids of the workload's range
    <folder>.ids-<first id>.new    copy in progress
    <folder>.ids.lock              held while a copy is made

A copy is made at the first use and removed with the folder around it. Only root makes copies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.sandbox.rootfs.spec import CHANGES, FIRST_RANGE, IDS

_FICLONE = 0x40049409
_OVERLAY_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque")
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_Ids = tuple[int, int]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def image_id(owner: int) -> int:
    """Return the id inside of an owner on the disk: of a range, or an id of the image already."""
    return (owner - FIRST_RANGE) % IDS if owner >= FIRST_RANGE else owner


def ensure(folder: str, first: int) -> str:
    """Return a copy of a folder whose owners are in the range from `first`. Safe to repeat and to run twice."""
    target = Path(f"{folder}.ids-{first}")
    with open(f"{folder}.ids.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            unfinished = Path(f"{target}.new")
            folders.remove(unfinished)
            try:
                _Copier(first).copy(folder, str(unfinished))
            except OSError:
                folders.remove(unfinished)  # The disk may be full.
                raise
            unfinished.rename(target)
    return str(target)


def move_owners(folder: str, first: int, owner: _Ids | None = None) -> None:
    """Give a folder tree owners of the range from `first`; with 0, ids of the image again. Safe to repeat.

    Owners that are neither of an image nor of a range become `owner`, a pair of ids of the image. Programs of the
    tenant may change the folder meanwhile, so each folder is opened without following a link, and its entries are
    named relative to it.
    """
    above = os.open(os.path.dirname(folder) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _move_tree(above, os.path.basename(folder), 0, lambda known: _moved(known, first, owner))
    finally:
        os.close(above)


def restore_changes(upper: str) -> None:
    """Give the changes of a root that was mounted without a map the ids of the image. Safe to repeat."""
    changes = f"{upper}/{CHANGES}"
    with contextlib.suppress(FileNotFoundError):
        if os.stat(changes).st_uid >= FIRST_RANGE:
            move_owners(changes, 0)


def _moved(known: _Ids, first: int, owner: _Ids | None) -> _Ids:
    uid, gid = (
        first + (other if owner is not None and IDS <= number < FIRST_RANGE else image_id(number))
        for number, other in zip(known, owner or (0, 0), strict=True)
    )
    return uid, gid


def _move_tree(above: int, name: str, depth: int, moved: Callable[[_Ids], _Ids]) -> None:
    """Change the owners of an entry of an open folder, and of all below it."""
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    known = (status.st_uid, status.st_gid)
    if (wanted := moved(known)) != known:
        os.chown(name, *wanted, dir_fd=above, follow_symlinks=False)
        if status.st_mode & _SPECIAL_BITS and stat.S_ISREG(status.st_mode):
            _restore_mode(above, name, status)
    if not stat.S_ISDIR(status.st_mode) or depth > folders.MAX_DEPTH:
        return
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except OSError:  # It is gone, or something else by now.
        return
    try:
        for each in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                _move_tree(folder, each, depth + 1, moved)
    finally:
        os.close(folder)


def _restore_mode(above: int, name: str, before: os.stat_result) -> None:
    """Set the bits again that the kernel removes when the owner changes."""
    with contextlib.suppress(OSError):
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
        try:
            if os.fstat(file).st_ino == before.st_ino:
                os.fchmod(file, stat.S_IMODE(before.st_mode))
        finally:
            os.close(file)


class _Copier:
    """Copies one folder tree; hard links stay links."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._links: dict[int, str] = {}

    def copy(self, source: str, target: str) -> None:
        """Copy an entry, and all below it."""
        status = os.lstat(source)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            os.mkdir(target, 0o700)
            _copy_marks(source, target)
            with os.scandir(source) as listed:
                names = [entry.name for entry in listed]
            for name in names:
                self.copy(f"{source}/{name}", f"{target}/{name}")
        elif status.st_nlink > 1 and (first := self._links.setdefault(status.st_ino, target)) != target:
            os.link(first, target, follow_symlinks=False)
            return
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(source), target)
        elif kind == stat.S_IFREG:
            _copy_file(source, target)
        elif kind == stat.S_IFIFO or (kind == stat.S_IFCHR and status.st_rdev == 0):  # a pipe, or a whiteout
            os.mknod(target, status.st_mode, status.st_rdev)
        else:
            return
        os.chown(target, self._first + status.st_uid, self._first + status.st_gid, follow_symlinks=False)
        if kind != stat.S_IFLNK:
            os.chmod(target, stat.S_IMODE(status.st_mode))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _copy_marks(source: str, target: str) -> None:
    """Copy the mark of a layer's folder that hides the folders below it."""
    for name in _OVERLAY_ATTRIBUTES:
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))


def _copy_file(source: str, target: str) -> None:
    """Copy the content; file systems that can share blocks between files do so."""
    with open(source, "rb", buffering=0) as read, open(target, "xb", buffering=0) as written:
        try:
            fcntl.ioctl(written, _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 2**20)
