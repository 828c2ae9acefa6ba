"""Search and follow the files of one log, which shims write.

Nothing is cached between two reads, because shims keep writing while the control process is down. The lines of a file
are ordered by time, so a time is found by binary search.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.ports import LogLine
from moorage.runtime.logs import logfile

MAX_LINES_PER_BATCH = 1_000
BLOCK_BYTES = 2**20
FIRST_BLOCK_BYTES = 64 * 2**10  # smaller, because most reads need only the last lines
FOLLOW_BLOCK_BYTES = 128 * 2**10
MAX_LINE_BYTES = 2 * logfile.LINE_BYTES  # a line with its prefix, rounded up
GRACE_MS = 60_000  # A line is on disk within this time after its timestamp.
ENDLESS_MS = 10**13  # after every possible timestamp, which has 13 digits
_STREAMS = {letter: name for name, letter in logfile.LETTERS.items()}


class _RawLine(NamedTuple):
    """Unparsed line of a file; `end` is the offset after its newline."""

    at: int
    end: int
    text: bytes

    def parsed(self, name: str) -> LogLine:
        _, letter, key, message = self.text.split(b" ", 3)
        line_id = f"{name}:{self.end}"
        return LogLine(self.at, _STREAMS[letter], key.decode(), message.decode("utf-8", "replace"), line_id)


def _parse(text: bytes, end: int) -> _RawLine | None:
    """Return a line, or None for invalid text: a file may be damaged."""
    parts = text.split(b" ", 3)
    if len(parts) != 4 or len(parts[0]) != 13 or not parts[0].isdigit() or parts[1] not in _STREAMS:
        return None
    return _RawLine(int(parts[0]), end, text)


@dataclass(frozen=True, slots=True)
class _Part:
    """Range of whole lines in a file; `last` is the timestamp of the last line."""

    name: str  # of the file, without `.log`
    path: str
    start: int
    end: int
    last: int

    def backwards(self, needle: bytes | None) -> Iterator[_RawLine]:
        """Yield the lines that contain the needle, last line first."""
        head = len(self.name) + 3  # length of the prefix `<ms> o <key> `: the name is `<ms>-<key>`
        end, size = self.end, FIRST_BLOCK_BYTES
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb", buffering=0) as file:
            while end > self.start:
                start = max(self.start, end - size)
                block = os.pread(file.fileno(), end - start, start)
                # Skip to the first whole line. A block without one is damaged, because no line is that long.
                skipped = 0 if start == self.start else (block.find(b"\n") + 1 or len(block))
                yield from _lines_backwards(block[skipped:], start + skipped, head, needle)
                end, size = start + (skipped if skipped < len(block) else 0), BLOCK_BYTES


def _lines_backwards(block: bytes, start: int, head: int, needle: bytes | None) -> Iterator[_RawLine]:
    lowered = _lowered(block, needle) if needle else b""
    if needle and needle not in lowered:
        return
    lines = block.split(b"\n")
    searched = lowered.split(b"\n") if needle else lines
    end = start + len(block) - len(lines[-1])
    for index in range(len(lines) - 2, -1, -1):
        if not needle or searched[index].find(needle, head) >= 0:
            line = _parse(lines[index], end)
            if line is not None:
                yield line
        end -= len(lines[index]) + 1


def _lowered(block: bytes, needle: bytes) -> bytes:
    # bytes.lower() is enough for an ASCII needle and several times as fast.
    return block.lower() if needle.isascii() else block.decode("utf-8", "replace").lower().encode()


class Cursor:
    """Read position in each file of a log.

    As text: the time up to which all files were read, then the offsets of the files that were read further. So the text
    stays short for any number of files.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.offsets: dict[str, int] = {}
        self._recent: dict[str, tuple[int, int]] = {}  # offset and timestamp by file

    @property
    def settled(self) -> int:
        return max(0, self.newest - GRACE_MS)

    def put(self, name: str, end: int, at: int) -> None:
        self.offsets[name] = end
        self._recent[name] = (end, at)

    def forget_all_but(self, names: set[str]) -> None:
        for name in self.offsets.keys() - names:
            del self.offsets[name]
            self._recent.pop(name, None)

    def __str__(self) -> str:
        settled = self.settled
        self._recent = {name: recent for name, recent in self._recent.items() if recent[1] > settled}
        return ",".join([str(settled), *(f"{name}:{end}" for name, (end, _) in self._recent.items())])

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Parse the cursor of a client; None for an invalid one."""
        settled, *offsets = text.split(",")
        if not _is_number(settled):
            return None
        cursor = cls(int(settled) + GRACE_MS)
        for offset in offsets:
            name, _, end = offset.partition(":")
            if not _is_number(end):
                return None
            cursor.put(name, int(end), cursor.newest)
        return cursor


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


class LogFolder:
    """Reader of one log. All methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(
        self, *, since: int | None = None, until: int | None = None, search: str | None = None, limit: int
    ) -> list[LogLine]:
        """Return the newest lines between two times that contain `search`, oldest first."""
        needle = search.lower().encode() if search else None
        parts = self._parts(since or 0, ENDLESS_MS if until is None else until + 1)
        return [line.parsed(part.name) for part, line in _newest(parts, needle, limit)]

    def _files(self) -> list[os.DirEntry[str]]:
        """Return the log files, oldest first."""
        try:
            with os.scandir(self._folder) as entries:
                files = [each for each in entries if logfile.NAME.fullmatch(each.name)]
        except FileNotFoundError:
            return []
        return sorted(files, key=lambda each: each.name)

    def _parts(self, since: int, before: int) -> list[_Part]:
        """Return the non-empty range of each file with timestamps in [since, before)."""
        parts = []
        for entry in self._files():
            with contextlib.suppress(FileNotFoundError):
                part = _part(entry, since, before) if int(entry.name[:13]) < before else None
                if part is not None:
                    parts.append(part)
        return parts

    def tail(self, count: int) -> tuple[Cursor, list[LogLine]]:
        """Return the newest lines, and the cursor after them."""
        parts = self._parts(0, ENDLESS_MS)
        newest = _newest(parts, None, count)
        cursor = Cursor(newest[0][1].at if newest else max((part.last for part in parts), default=0))
        for part in parts:
            cursor.put(part.name, part.end, part.last)
        for part, line in reversed(newest):
            start = line.end - len(line.text) - 1
            # Earlier lines of this file are not newer than the first of these lines.
            cursor.put(part.name, start, cursor.newest if start else 0)
        return cursor, [_advance(cursor, part.name, line) for part, line in newest]

    def resume(self, cursor: Cursor) -> Cursor:
        """Add the offsets of the files that a client's cursor does not name."""
        settled = cursor.settled
        for entry in self._files():
            name = entry.name.removesuffix(".log")
            if name not in cursor.offsets:
                with contextlib.suppress(FileNotFoundError):
                    old = _part(entry, 0, settled + 1)
                    cursor.offsets[name] = old.end if old else 0
        return cursor

    def news(self, cursor: Cursor) -> list[LogLine]:
        """Return the next lines after the cursor, ordered by time, and advance it."""
        entries = self._files()
        cursor.forget_all_but({each.name.removesuffix(".log") for each in entries})
        merged: list[tuple[int, str, _RawLine]] = []
        bound = ENDLESS_MS
        for entry in entries:
            name = entry.name.removesuffix(".log")
            lines, end, is_all = _after(entry, cursor.offsets.get(name, 0))
            merged += ((at, name, each) for at, each in lines)
            if not lines:
                cursor.offsets[name] = end
            elif not is_all:
                # The rest of this file may be older than lines of other files, which have to wait for it.
                bound = min(bound, lines[-1][0])
        merged.sort(key=lambda each: each[0])
        return [_advance(cursor, name, line) for at, name, line in merged[:MAX_LINES_PER_BATCH] if at <= bound]


def _advance(cursor: Cursor, name: str, line: _RawLine) -> LogLine:
    cursor.newest = max(cursor.newest, line.at)
    cursor.put(name, line.end, line.at)
    return line.parsed(name)._replace(id=str(cursor))


def _newest(parts: list[_Part], needle: bytes | None, limit: int) -> list[tuple[_Part, _RawLine]]:
    """Merge files from their ends, opening a file only when its lines are needed."""
    waiting = sorted(enumerate(parts), key=lambda each: (each[1].last, each[0]))
    heap: list[tuple[int, int, _RawLine, Iterator[_RawLine]]] = []
    newest: list[tuple[_Part, _RawLine]] = []

    def push(number: int, lines: Iterator[_RawLine]) -> None:
        line = next(lines, None)
        if line is not None:
            heapq.heappush(heap, (-line.at, -number, line, lines))

    while len(newest) < limit and (waiting or heap):
        if waiting and (not heap or waiting[-1][1].last >= -heap[0][0]):
            number, part = waiting.pop()
            push(number, part.backwards(needle))
            continue
        _, number, line, lines = heapq.heappop(heap)
        newest.append((parts[-number], line))
        push(-number, lines)
    return newest[::-1]


def _part(entry: os.DirEntry[str], since: int, before: int) -> _Part | None:
    """Return the range with timestamps in [since, before); None if it is empty."""
    with open(entry.path, "rb", buffering=0) as file:
        fd = file.fileno()
        end = _end_of_whole_lines(fd, os.fstat(fd).st_size)
        if before < ENDLESS_MS:
            end = _first_from(fd, end, before)
        last = _last_at(fd, end)
        if last is None or last < since:
            return None
        start = _first_from(fd, end, since) if int(entry.name[:13]) < since else 0
    return _Part(entry.name.removesuffix(".log"), entry.path, start, end, last)


def _end_of_whole_lines(fd: int, size: int) -> int:
    start = max(0, size - MAX_LINE_BYTES)
    return start + os.pread(fd, size - start, start).rfind(b"\n") + 1


def _last_at(fd: int, end: int) -> int | None:
    start = max(0, end - MAX_LINE_BYTES)
    lines = _lines_backwards(os.pread(fd, end - start, start), start, 0, None)
    return next((line.at for line in lines), None)


def _first_from(fd: int, end: int, moment: int) -> int:
    """Return the offset of the first line at or after a time, else `end`."""
    offsets = range(0, end, MAX_LINE_BYTES)
    # The binary search reads one line per step. Its result is at most one step too far and never too early.
    number = bisect_left(offsets, True, key=lambda offset: _first_time_after(fd, end, offset) >= moment)
    start = offsets[number - 1] if number else 0
    block = os.pread(fd, 3 * MAX_LINE_BYTES, start)[: end - start]
    offset = start + (block.find(b"\n") + 1 if start else 0)
    for text in block[offset - start :].split(b"\n")[:-1]:
        line = _parse(text, offset)
        if line is not None and line.at >= moment:
            return offset
        offset += len(text) + 1
    return end if offset >= end else offset


def _first_time_after(fd: int, end: int, offset: int) -> int:
    """Return the time of the first line that begins after an offset, or at 0."""
    block = os.pread(fd, 3 * MAX_LINE_BYTES, offset)[: end - offset]
    for text in block.split(b"\n")[1 if offset else 0 : -1]:
        if (line := _parse(text, 0)) is not None:
            return line.at
    return ENDLESS_MS


class _Fresh(NamedTuple):
    """New lines of a file with sort keys; `is_all` if the file has no more."""

    lines: list[tuple[int, _RawLine]]
    end: int
    is_all: bool


def _after(entry: os.DirEntry[str], offset: int) -> _Fresh:
    """Return the lines of one block after an offset."""
    with contextlib.suppress(FileNotFoundError):
        size = entry.stat(follow_symlinks=False).st_size
        if size > offset:
            with open(entry.path, "rb", buffering=0) as file:
                block = os.pread(file.fileno(), FOLLOW_BLOCK_BYTES, offset)
            # A full block without a newline is damaged and skipped, because no line is that long.
            end = block.rfind(b"\n") + 1 or (len(block) if len(block) == FOLLOW_BLOCK_BYTES else 0)
            return _Fresh(_in_order(block[:end].split(b"\n")[:-1], offset), offset + end, offset + len(block) >= size)
    return _Fresh([], offset, True)


def _in_order(texts: list[bytes], offset: int) -> list[tuple[int, _RawLine]]:
    """Return lines with non-decreasing sort keys: lines of a file keep their order."""
    lines: list[tuple[int, _RawLine]] = []
    latest = 0
    for text in texts:
        offset += len(text) + 1
        line = _parse(text, offset)
        if line is not None:
            latest = max(latest, line.at)
            lines.append((latest, line))
    return lines
