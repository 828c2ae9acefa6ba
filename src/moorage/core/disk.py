"""Free disk space: data is stored only while a reserve stays free.

The reserve is for the database, which has to accept rows as long as possible. Every route that stores a body checks
first. An error of a disk that is full nevertheless becomes the same refusal: DiskFull, 402 `quota_exceeded`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from moorage.errors import DiskFull

MB = 2**20
CHECK_INTERVAL_BYTES = 8 * MB  # Concurrent uploads can all pass the first check, so each repeats it.
MIN_FREE_INODES = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TEXTS = tuple(os.strerror(number) for number in _FULL)


def free_bytes(folder: Path) -> int:
    """Return the free space of a folder's file system; the folder need not exist yet."""
    return _bytes(_statvfs(folder))


def total_bytes(folder: Path) -> int:
    """Return the size of a folder's file system; the folder need not exist yet."""
    status = _statvfs(folder)
    return status.f_blocks * status.f_frsize


def check_room(folder: Path, more_bytes: int, reserve_mb: int) -> None:
    """Raise DiskFull if this would use the reserve, or inodes are scarce."""
    status = _statvfs(folder)
    # Some file systems have no fixed number of inodes and report none.
    has_inodes = status.f_files == 0 or status.f_favail >= MIN_FREE_INODES or reserve_mb == 0
    if _bytes(status) - more_bytes < reserve_mb * MB or not has_inodes:
        raise DiskFull


def is_full(error: BaseException) -> bool:
    """Check whether an error or one of its causes reports a full disk or quota."""
    return any((isinstance(each, OSError) and each.errno in _FULL) or says_full(str(each)) for each in _causes(error))


def says_full(text: str) -> bool:
    """Check an error message for a full disk; some programs give no error number."""
    return any(each in text for each in _TEXTS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _statvfs(folder: Path) -> os.statvfs_result:
    while True:
        try:
            return os.statvfs(folder)
        except FileNotFoundError:
            if folder == folder.parent:
                raise
            folder = folder.parent


def _bytes(status: os.statvfs_result) -> int:
    return status.f_bavail * status.f_frsize
