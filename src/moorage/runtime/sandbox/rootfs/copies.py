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
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.sandbox.rootfs.spec import CHANGES, FIRST_RANGE, IDS

_FICLONE = 0x40049409
_OVERLAY_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque")
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID


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


def move_owners(folder: str, first: int, owner: tuple[int, int] | None = None) -> None:
    """Give a folder tree owners of the range from `first`; with 0, ids of the image again. Safe to repeat.

    Owners that are neither of an image nor of a range become `owner`, a pair of ids of the image.
    """
    _move_owner(folder, first, owner)
    for entry in folders.walk(folder, is_lenient=True):
        _move_owner(entry.path, first, owner)


def restore_changes(upper: str) -> None:
    """Give the changes of a root that was mounted without a map the ids of the image. Safe to repeat."""
    changes = f"{upper}/{CHANGES}"
    with contextlib.suppress(FileNotFoundError):
        if os.stat(changes).st_uid >= FIRST_RANGE:
            move_owners(changes, 0)


def _move_owner(path: str, first: int, owner: tuple[int, int] | None) -> None:
    status = os.lstat(path)
    wanted = tuple(
        first + (other if owner is not None and IDS <= known < FIRST_RANGE else image_id(known))
        for known, other in zip((status.st_uid, status.st_gid), owner or (0, 0), strict=True)
    )
    if wanted == (status.st_uid, status.st_gid):
        return
    os.chown(path, *wanted, follow_symlinks=False)
    if status.st_mode & _SPECIAL_BITS and stat.S_ISREG(status.st_mode):
        os.chmod(path, stat.S_IMODE(status.st_mode))  # The kernel removes these bits when the owner changes.


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
