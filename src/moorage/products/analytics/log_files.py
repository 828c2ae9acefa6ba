"""The gateway's access log on disk: one file that grows, and those that it was before it was rotated.

A file is known by its first bytes: the moment of its first request is in them. So it is recognized whatever it is
called by now, and a file that was cut and written anew is seen to be another, even where it has the old one's inode.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from moorage.products.analytics.lines import OURS, Hit, parse
from moorage.products.analytics.tables import Place

CURRENT = "access.log"
HEAD = 512
LINES = 1_000  # in one transaction
CHUNK = 2 * 2**20  # Far more than the longest line; what has no end within it is no line.


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines of a file."""

    hits: list[Hit]
    unreadable: int
    to: Place  # after the last of them


class LogFile:
    """One file, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_rotated = path.name != CURRENT  # Nothing is written to it any more.
        self._file = path.open("rb", buffering=0)
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def go_on_from(self, place: Place) -> bool:
        """Go on from a place, if it is one in this file; return whether it is."""
        if not place.head_size or self._head(place.head_size) != place.head:
            return False
        self._position = min(place.position, os.fstat(self._file.fileno()).st_size)
        return True

    def read(self) -> Batch | None:
        """Return the next lines, or None where there is no whole one; the last of a rotated file needs no end."""
        data = os.pread(self._file.fileno(), CHUNK, self._position)
        lines = data.split(b"\n", LINES)
        rest = lines.pop()
        size = len(data) - len(rest)
        if not lines and rest and (self.is_rotated or len(data) == CHUNK):
            lines, size = [rest], len(data)
        if not size:
            return None
        self._position += size
        hits = [parse(line) for line in lines if line]
        readable = [hit for hit in hits if hit is not None and hit is not OURS]
        return Batch(readable, hits.count(None), self._place())

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    def _place(self) -> Place:
        size = min(self._position, HEAD)
        return Place(size, self._head(size), self._position)

    def _head(self, size: int) -> str:
        return hashlib.sha256(os.pread(self._file.fileno(), size, 0)).hexdigest()


def open_all(folder: Path) -> list[LogFile]:
    """Open the files of a folder, oldest first and the one that grows last.

    A rotation while they are opened would show the new file without the old one, so it is looked for again.
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


def _rotated(folder: Path) -> list[str]:
    """Return the names of rotated files, by when they were written last."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_log = entry.name.startswith("access") and ".log" in entry.name and not entry.name.endswith(".gz")
            if is_log and entry.name != CURRENT and entry.is_file(follow_symlinks=False):
                found.append((entry.stat().st_mtime_ns, entry.name))
    return [name for _, name in sorted(found)]
