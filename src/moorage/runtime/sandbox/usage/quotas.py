"""Project quotas of ext4 and xfs, by which the kernel limits a folder.

They need root and a file system mounted with `prjquota`. Otherwise the functions return False or None, and callers
measure usage by walking the folder.
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
# Hard and soft limit in blocks of 1 KB, used bytes; the same for inodes; two times; valid fields.
QUOTA = struct.Struct("=QQQQQQQQI4x")
BLOCK_LIMITS, INODE_LIMITS = 1, 4
KB = 1024
BYTES_PER_INODE = 4096  # The limit of inodes; a folder walk counts at least this for each file.
FIRST_PROJECT, PROJECTS = 1 << 30, 1 << 30
MAX_ATTEMPTS = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def limit(folder: Path | str, most_bytes: int) -> bool:
    """Limit a folder's size; return whether the kernel enforces it. Safe to repeat."""
    if os.geteuid() != 0 or not is_offered(folder):
        return False
    try:
        with _opened(folder, _FOLDER) as top:
            project = _find_own_project(folder, top)
            if project is None or not _quota(top, project)[0]:  # Otherwise all files already belong to the project.
                project = project or _free_project(top)
                _assign(folder, top, project)
            _set_limits(top, project, most_bytes)
    except OSError:
        return False
    return True


def find_used_bytes(folder: Path | str) -> int | None:
    """Return the kernel's size of a folder; None without an enforced quota."""
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
    """Whether the file system of a folder is mounted with enforced project quotas."""
    device = os.stat(folder).st_dev
    device_id = f"{os.major(device)}:{os.minor(device)}"
    for line in read("/proc/self/mountinfo").splitlines():
        words = line.split()
        if words[2] == device_id:
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
    """Return a folder's own project; None for one inherited from a parent folder."""
    flags, project = _attributes(top)
    with _opened(os.path.join(folder, ".."), _FOLDER) as above:
        is_own = project >= FIRST_PROJECT and flags & INHERIT and project != _attributes(above)[1]
    return project if is_own else None


def _attributes(file: int) -> tuple[int, int]:
    """Return flags and project of an open file."""
    flags, _, _, project, _ = ATTRIBUTES.unpack(fcntl.ioctl(file, GET_ATTRIBUTES, bytes(ATTRIBUTES.size)))
    return flags, project


def _set_project(file: int, project: int, flags: int) -> None:
    before = ATTRIBUTES.unpack(fcntl.ioctl(file, GET_ATTRIBUTES, bytes(ATTRIBUTES.size)))
    fcntl.ioctl(file, SET_ATTRIBUTES, ATTRIBUTES.pack(before[0] | flags, *before[1:3], project, before[4]))


def _assign(folder: Path | str, top: int, project: int) -> None:
    """Assign a folder tree to a project, folders first: new files inherit it."""
    _set_project(top, project, INHERIT)
    for entry in folders.walk(folder, is_lenient=True):
        if entry.is_dir(follow_symlinks=False):
            with _opened(entry.path, _FOLDER) as inner:
                _set_project(inner, project, INHERIT)
        elif entry.is_file(follow_symlinks=False):
            with _opened(entry.path, _FILE) as file:
                _set_project(file, project, 0)


def _free_project(top: int) -> int:
    """Return a project ID that no other folder of this file system uses."""
    first = os.fstat(top).st_ino
    for number in range(first, first + MAX_ATTEMPTS):
        project = FIRST_PROJECT + number % PROJECTS
        if not any(_quota(top, project)[index] for index in (2, 5)):
            return project
    raise OSError("no project is free")


def _quota(file: int, project: int) -> tuple[int, ...]:
    block = ctypes.create_string_buffer(QUOTA.size)
    try:
        sys_.quotactl_fd(file, GET_QUOTA, project, block)
    except FileNotFoundError:
        return (0,) * 9  # The file system has no record of a project that uses no space.
    except ProcessLookupError:
        raise OSError("the file system has no project quotas") from None
    return QUOTA.unpack(block.raw)


def _set_limits(file: int, project: int, most_bytes: int) -> None:
    blocks, inodes = most_bytes // KB, max(most_bytes // BYTES_PER_INODE, 1)
    limits = QUOTA.pack(blocks, blocks, 0, inodes, inodes, 0, 0, 0, BLOCK_LIMITS | INODE_LIMITS)
    sys_.quotactl_fd(file, SET_QUOTA, project, ctypes.create_string_buffer(limits, QUOTA.size))
