"""Room on the disks of this machine: bytes are stored only while the reserve stays free.

The reserve belongs to the store, which has to take rows as long as possible. Every route that stores a body asks here
first, and an error of a disk that is full all the same becomes the same refusal: DiskFull, 402 `quota_exceeded`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from moorage.errors import DiskFull

MB = 2**20
CHECK_EVERY = 8 * MB  # Many bodies come at once, and each was let in when there was room: so all of them look again.
LEAST_INODES = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TEXTS = tuple(os.strerror(number) for number in _FULL)


def free_bytes(folder: Path) -> int:
    """Return the free space of the file system that a folder is on, or will be on."""
    return _bytes(_statvfs(folder))


def check_room(folder: Path, more_bytes: int, reserve_mb: int) -> None:
    """Raise DiskFull where storing this much would leave less free space than the reserve, or hardly an inode."""
    found = _statvfs(folder)
    # Some file systems have no fixed number of inodes and report none.
    has_inodes = found.f_files == 0 or found.f_favail >= LEAST_INODES or reserve_mb == 0
    if _bytes(found) - more_bytes < reserve_mb * MB or not has_inodes:
        raise DiskFull


def is_full(error: BaseException) -> bool:
    """Tell whether an error comes of a full disk, or of a quota on it, also in a child process that has reported it."""
    return any((isinstance(each, OSError) and each.errno in _FULL) or says_full(str(each)) for each in _causes(error))


def says_full(text: str) -> bool:
    """Return whether an error message reports a full disk. Some programs and libraries give no error number."""
    return any(each in text for each in _TEXTS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _statvfs(folder: Path) -> os.statvfs_result:
    while True:
        try:
            return os.statvfs(folder)
        except FileNotFoundError:
            if folder == folder.parent:
                raise
            folder = folder.parent


def _bytes(found: os.statvfs_result) -> int:
    return found.f_bavail * found.f_frsize
