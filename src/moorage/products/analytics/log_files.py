"""The gateway's access log on disk: the current file and the rotated ones.

A digest of its first bytes, which contain the time of the first request, identifies a file. So a file is recognized
after a rename, and a truncated and rewritten file counts as new, even with the same inode.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Self

from moorage.core.kit.records import dataclass
from moorage.products.analytics.lines import PLATFORM_HIT, Hit, parse
from moorage.products.analytics.tables import LogPosition

CURRENT = "access.log"
HEAD_BYTES = 512
BATCH_LINES = 1_000  # in one transaction
CHUNK_BYTES = 2 * 2**20  # far more than the longest valid line


Fingerprint = frozenset[tuple[str, int, int, int]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive lines of a file."""

    hits: list[Hit]
    unreadable: int
    to: LogPosition  # position after the last line


class LogFile:
    """One file, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_rotated = path.name != CURRENT  # A rotated file is not written any more.
        self._file = path.open("rb", buffering=0)
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def resume_at(self, position: LogPosition) -> bool:
        """Seek to a position if it belongs to this file; return whether it does."""
        if not position.head_size or self._head(position.head_size) != position.head:
            return False
        self._offset = min(position.position, os.fstat(self._file.fileno()).st_size)
        return True

    def read(self) -> Batch | None:
        """Return the next whole lines, or None.

        The last line of a rotated file needs no line break.
        """
        data = os.pread(self._file.fileno(), CHUNK_BYTES, self._offset)
        lines = data.split(b"\n", BATCH_LINES)
        rest = lines.pop()
        size = len(data) - len(rest)
        if not lines and rest and (self.is_rotated or len(data) == CHUNK_BYTES):
            lines, size = [rest], len(data)
        if not size:
            return None
        self._offset += size
        hits = [parse(line) for line in lines if line]
        readable = [hit for hit in hits if hit is not None and hit is not PLATFORM_HIT]
        return Batch(readable, hits.count(None), self._position())

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    def _position(self) -> LogPosition:
        size = min(self._offset, HEAD_BYTES)
        return LogPosition(size, self._head(size), self._offset)

    def _head(self, size: int) -> str:
        return hashlib.sha256(os.pread(self._file.fileno(), size, 0)).hexdigest()


def open_all(folder: Path) -> list[LogFile]:
    """Open the log files of a folder, oldest first and the current one last.

    Retries after a rotation in between, which would hide the file that was just rotated.
    """
    while True:
        names = _rotated(folder)
        files: list[LogFile] = []
        try:
            files += [LogFile(folder / name) for name in names]
            if (folder / CURRENT).exists():
                files.append(LogFile(folder / CURRENT))
            if _rotated(folder) == names:
                return files
        except FileNotFoundError:
            pass
        for file in files:
            file.__exit__()


def fingerprint_of(folder: Path) -> Fingerprint:
    """Return name, inode, size and time of each log file; equal while nothing is written."""
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.name.startswith("access")]
    return frozenset((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files)


def _rotated(folder: Path) -> list[str]:
    """Return the names of the rotated files, ordered by modification time."""
    rotated = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_log = entry.name.startswith("access") and ".log" in entry.name and not entry.name.endswith(".gz")
            if is_log and entry.name != CURRENT and entry.is_file(follow_symlinks=False):
                rotated.append((entry.stat().st_mtime_ns, entry.name))
    return [name for _, name in sorted(rotated)]
