"""Project quotas of ext4 and xfs: the kernel bounds and counts a folder itself, deleted files that are open included.

They need root and a file system that is mounted with `prjquota`. Everywhere else the functions here say so, and usage
is counted by walking.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups.files import read

GET_ATTRIBUTES, SET_ATTRIBUTES = 0x801C581F, 0x401C5820  # FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
ATTRIBUTES = struct.Struct("=IIII12s")  # flags, extent size, extents, project, and the rest
INHERIT = 0x200  # FS_XFLAG_PROJINHERIT: new files belong to the project of their folder
GET_QUOTA, SET_QUOTA = 0x800007, 0x800008
# Hard and soft limit of blocks of 1 KB, used bytes; the same of inodes; two times; which of them are valid.
QUOTA = struct.Struct("=QQQQQQQQI4x")
BLOCK_LIMITS, INODE_LIMITS = 1, 4
KB = 1024
LEAST_FILE_BYTES = 4096  # An inode for each so many bytes, as the walk counts them.
FIRST_PROJECT, PROJECTS = 1 << 30, 1 << 30
TRIES = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def limit(folder: Path | str, most_bytes: int) -> bool:
    """Bound what a folder and all in it may take; return whether the kernel does. Safe to repeat."""
    if os.geteuid() != 0 or not is_offered(folder):
        return False
    try:
        with _opened(folder, _FOLDER) as top:
            project = _find_own_project(folder, top)
            if project is None or not _quota(top, project)[0]:  # else all in it belongs to the project already
                project = project or _free_project(top)
                _assign(folder, top, project)
            _set_limits(top, project, most_bytes)
    except OSError:
        return False
    return True


def find_used_bytes(folder: Path | str) -> int | None:
    """Return what a folder takes as the kernel counts it; None where it has no quota that is enforced."""
    if os.geteuid() != 0 or not is_offered(folder):
        return None
    try:
        with _opened(folder, _FOLDER) as top:
            project = _find_own_project(folder, top)
            if project is None:
                return None
            hard, _, used, *_ = _quota(top, project)
    except OSError:
        return None
    return int(used) if hard else None


def is_offered(folder: Path | str) -> bool:
    """Tell whether the file system of a folder is mounted so that project quotas are enforced."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in read("/proc/self/mountinfo").splitlines():
        words = line.split()
        if words[2] == wanted:
            return "prjquota" in words[-1].split(",")
    return False


@contextlib.contextmanager
def _opened(path: Path | str, flags: int) -> Iterator[int]:
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)


def _find_own_project(folder: Path | str, top: int) -> int | None:
    """Return the project of a folder that was made for it, not one that an operator gave to a folder above."""
    flags, project = _attributes(top)
    with _opened(os.path.join(folder, ".."), _FOLDER) as above:
        is_own = project >= FIRST_PROJECT and flags & INHERIT and project != _attributes(above)[1]
    return project if is_own else None


def _attributes(file: int) -> tuple[int, int]:
    """Return the flags and the project of an open file."""
    flags, _, _, project, _ = ATTRIBUTES.unpack(fcntl.ioctl(file, GET_ATTRIBUTES, bytes(ATTRIBUTES.size)))
    return flags, project


def _set_project(file: int, project: int, flags: int) -> None:
    found = ATTRIBUTES.unpack(fcntl.ioctl(file, GET_ATTRIBUTES, bytes(ATTRIBUTES.size)))
    fcntl.ioctl(file, SET_ATTRIBUTES, ATTRIBUTES.pack(found[0] | flags, *found[1:3], project, found[4]))


def _assign(folder: Path | str, top: int, project: int) -> None:
    """Give a folder and all in it to a project, each folder before its files: those that are made meanwhile inherit."""
    _set_project(top, project, INHERIT)
    for entry in folders.walk(folder, is_lenient=True):
        if entry.is_dir(follow_symlinks=False):
            with _opened(entry.path, _FOLDER) as inner:
                _set_project(inner, project, INHERIT)
        elif entry.is_file(follow_symlinks=False):
            with _opened(entry.path, _FILE) as file:
                _set_project(file, project, 0)


def _free_project(top: int) -> int:
    """Return a number that no other folder of this file system uses."""
    first = os.fstat(top).st_ino
    for number in range(first, first + TRIES):
        project = FIRST_PROJECT + number % PROJECTS
        if not any(_quota(top, project)[index] for index in (2, 5)):
            return project
    raise OSError("no project is free")


def _quota(file: int, project: int) -> tuple[int, ...]:
    block = ctypes.create_string_buffer(QUOTA.size)
    try:
        sys_.quotactl_fd(file, GET_QUOTA, project, block)
    except FileNotFoundError:
        return (0,) * 9  # The file system has no record of it, because it uses nothing.
    except ProcessLookupError:
        raise OSError("the file system has no project quotas") from None
    return QUOTA.unpack(block.raw)


def _set_limits(file: int, project: int, most_bytes: int) -> None:
    blocks, inodes = most_bytes // KB, max(most_bytes // LEAST_FILE_BYTES, 1)
    told = QUOTA.pack(blocks, blocks, 0, inodes, inodes, 0, 0, 0, BLOCK_LIMITS | INODE_LIMITS)
    sys_.quotactl_fd(file, SET_QUOTA, project, ctypes.create_string_buffer(told, QUOTA.size))
