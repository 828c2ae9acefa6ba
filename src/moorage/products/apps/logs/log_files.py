"""The logs of running apps, read from the files that shims write: searched from the end, and followed as they grow.

Nothing is kept in memory between two questions, so whoever asks sees what is on disk: shims go on writing while the
control plane is away. The lines of one file are in the order of time, which is what makes looking for a time quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from moorage.core.kit import folders
from moorage.runtime.shim.logs import logfile

POLL_S = 0.2
PACE_S = 0.1  # What has much to catch up with gets this long between two batches, for the sake of everybody else.
MOST_AT_ONCE = 1_000
BLOCK = 2**20
FIRST_BLOCK = 64 * 2**10  # Most questions are about the last lines.
NEWS_BLOCK = 128 * 2**10
LONGEST = 2 * logfile.LINE_BYTES  # a line with its head, and some
GRACE_MS = 60_000  # A line is on disk within this time of the moment that it carries.
ENDLESS_MS = 10**13  # the first moment that no file can have
_STREAMS = {letter: name for name, letter in logfile.LETTERS.items()}


class LogLine(NamedTuple):
    at: int
    stream: str
    replica: str
    message: str
    id: str  # names the line; that of a line that was followed says where to go on


class _Found(NamedTuple):
    """A line as it stands in a file, which ends at `end`."""

    at: int
    end: int
    text: bytes

    def shown(self, name: str) -> LogLine:
        _, letter, key, message = self.text.split(b" ", 3)
        place = f"{name}:{self.end}"
        return LogLine(self.at, _STREAMS[letter], key.decode(), message.decode("utf-8", "replace"), place)


def _find(text: bytes, end: int) -> _Found | None:
    """Return a line, or None where it is none: a file may have been damaged."""
    parts = text.split(b" ", 3)
    if len(parts) != 4 or len(parts[0]) != 13 or not parts[0].isdigit() or parts[1] not in _STREAMS:
        return None
    return _Found(int(parts[0]), end, text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a file, whole lines, of which the last is of the moment `last`."""

    name: str  # without what all names end with
    path: str
    start: int
    end: int
    last: int

    def backwards(self, needle: bytes | None) -> Iterator[_Found]:
        """Yield the lines that have the needle, the last one first."""
        head = len(self.name) + 3  # as long as `<ms> o <key> `, since the name is `<ms>-<key>`
        end, size = self.end, FIRST_BLOCK
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb", buffering=0) as file:
            while end > self.start:
                start = max(self.start, end - size)
                block = os.pread(file.fileno(), end - start, start)
                # A block begins with a line; where none begins in it, it is nothing that a shim wrote.
                begun = 0 if start == self.start else (block.find(b"\n") + 1 or len(block))
                yield from _lines_backwards(block[begun:], start + begun, head, needle)
                end, size = start + (begun if begun < len(block) else 0), BLOCK


def _lines_backwards(block: bytes, start: int, head: int, needle: bytes | None) -> Iterator[_Found]:
    lowered = _lowered(block, needle) if needle else b""
    if needle and needle not in lowered:
        return
    lines = block.split(b"\n")
    looked_at = lowered.split(b"\n") if needle else lines
    end = start + len(block) - len(lines[-1])
    for index in range(len(lines) - 2, -1, -1):
        if not needle or looked_at[index].find(needle, head) >= 0:
            found = _find(lines[index], end)
            if found is not None:
                yield found
        end -= len(lines[index]) + 1


def _lowered(block: bytes, needle: bytes) -> bytes:
    # What bytes can do is enough for a needle of ASCII, and several times as quick.
    return block.lower() if needle.isascii() else block.decode("utf-8", "replace").lower().encode()


class Cursor:
    """How far each file of a project has been read.

    As a text: the moment up to which everything was read, then the files that were read further, each with how far.
    So it stays short, however many files there are.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.places: dict[str, int] = {}
        self._recent: dict[str, tuple[int, int]] = {}

    @property
    def settled(self) -> int:
        return max(0, self.newest - GRACE_MS)

    def put(self, name: str, end: int, at: int) -> None:
        self.places[name] = end
        self._recent[name] = (end, at)

    def forget_all_but(self, names: set[str]) -> None:
        for name in self.places.keys() - names:
            del self.places[name]
            self._recent.pop(name, None)

    def __str__(self) -> str:
        settled = self.settled
        self._recent = {name: place for name, place in self._recent.items() if place[1] > settled}
        return ",".join([str(settled), *(f"{name}:{end}" for name, (end, _) in self._recent.items())])

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Read what a client sends back; None where it is none of ours."""
        settled, *places = text.split(",")
        if not _is_number(settled):
            return None
        cursor = cls(int(settled) + GRACE_MS)
        for place in places:
            name, _, end = place.partition(":")
            if not _is_number(end):
                return None
            cursor.put(name, int(end), cursor.newest)
        return cursor


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


class AppLogs:
    """The logs of all projects' apps, in one folder. What asks the disk is to be called in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(
        self,
        project_id: int,
        *,
        since: int | None = None,
        until: int | None = None,
        search: str | None = None,
        limit: int,
    ) -> list[LogLine]:
        """Return the newest lines from one moment to another that have a text, in the order of time."""
        needle = search.lower().encode() if search else None
        parts = self._parts(project_id, since or 0, ENDLESS_MS if until is None else until + 1)
        return [found.shown(part.name) for part, found in _newest(parts, needle, limit)]

    async def follow(self, project_id: int, after: str | None, *, tail: int = 0) -> AsyncIterator[list[LogLine]]:
        """Yield lines as they are written, for as long as somebody asks; never none.

        They begin after the line with the id `after`; without one, with the newest `tail` lines.
        """
        seen = Cursor.parse(after) if after else None
        if seen is None:
            cursor, lines = await asyncio.to_thread(self._start, project_id, tail)
            if lines:
                yield lines
        else:
            cursor = await asyncio.to_thread(self._resume, project_id, seen)
        while True:
            lines = await asyncio.to_thread(self.news, project_id, cursor)
            if lines:
                yield lines
            await asyncio.sleep(PACE_S if lines else POLL_S)

    def forget(self, project_id: int) -> None:
        """Remove the logs of a project. Safe to repeat."""
        folders.remove(self._folder / str(project_id))

    def trim(self, now_ms: int) -> None:
        """Remove what is too old or too much."""
        logfile.trim_each(self._folder, now_ms)

    def _files(self, project_id: int) -> list[os.DirEntry[str]]:
        """Return the files of a project, those begun first before the others."""
        try:
            with os.scandir(self._folder / str(project_id)) as entries:
                found = [each for each in entries if logfile.NAME.fullmatch(each.name)]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda each: each.name)

    def _parts(self, project_id: int, since: int, before: int) -> list[_Part]:
        """Return what each file has from one moment until before another, if anything."""
        parts = []
        for entry in self._files(project_id):
            with contextlib.suppress(FileNotFoundError):
                part = _part(entry, since, before) if int(entry.name[:13]) < before else None
                if part is not None:
                    parts.append(part)
        return parts

    def _start(self, project_id: int, tail: int) -> tuple[Cursor, list[LogLine]]:
        """Return the newest lines, and the cursor after them."""
        parts = self._parts(project_id, 0, ENDLESS_MS)
        newest = _newest(parts, None, tail)
        cursor = Cursor(newest[0][1].at if newest else max((part.last for part in parts), default=0))
        for part in parts:
            cursor.put(part.name, part.end, part.last)
        for part, found in reversed(newest):
            start = found.end - len(found.text) - 1
            # What stands before it, if anything does, is not newer than the first of all these lines.
            cursor.put(part.name, start, cursor.newest if start else 0)
        return cursor, [_passed(cursor, part.name, found) for part, found in newest]

    def _resume(self, project_id: int, cursor: Cursor) -> Cursor:
        """Find where to go on in the files that a client's cursor does not name."""
        settled = cursor.settled
        for entry in self._files(project_id):
            name = entry.name.removesuffix(".log")
            if name not in cursor.places:
                with contextlib.suppress(FileNotFoundError):
                    old = _part(entry, 0, settled + 1)
                    cursor.places[name] = old.end if old else 0
        return cursor

    def start(self, project_id: int, after: str | None) -> Cursor:
        """Return the place after the line with this id, or before all lines, for `news`."""
        seen = Cursor.parse(after) if after else None
        return Cursor(0) if seen is None else self._resume(project_id, seen)

    def news(self, project_id: int, cursor: Cursor) -> list[LogLine]:
        """Return lines that the cursor has not passed, in the order of time, and let it pass them."""
        entries = self._files(project_id)
        cursor.forget_all_but({each.name.removesuffix(".log") for each in entries})
        fresh: list[tuple[int, str, _Found]] = []
        bound = ENDLESS_MS
        for entry in entries:
            name = entry.name.removesuffix(".log")
            found, end, is_all = _after(entry, cursor.places.get(name, 0))
            fresh += ((at, name, each) for at, each in found)
            if not found:
                cursor.places[name] = end
            elif not is_all:
                # What stands further on in this file may be older than what others have: it comes first.
                bound = min(bound, found[-1][0])
        fresh.sort(key=lambda each: each[0])
        return [_passed(cursor, name, found) for at, name, found in fresh[:MOST_AT_ONCE] if at <= bound]


def _passed(cursor: Cursor, name: str, found: _Found) -> LogLine:
    cursor.newest = max(cursor.newest, found.at)
    cursor.put(name, found.end, found.at)
    return found.shown(name)._replace(id=str(cursor))


def _newest(parts: list[_Part], needle: bytes | None, limit: int) -> list[tuple[_Part, _Found]]:
    """Merge files from their ends. One is opened only when its last line is newer than all that others still have."""
    waiting = sorted(enumerate(parts), key=lambda each: (each[1].last, each[0]))
    open_ones: list[tuple[int, int, _Found, Iterator[_Found]]] = []
    newest: list[tuple[_Part, _Found]] = []

    def push(number: int, lines: Iterator[_Found]) -> None:
        found = next(lines, None)
        if found is not None:
            heapq.heappush(open_ones, (-found.at, -number, found, lines))

    while len(newest) < limit and (waiting or open_ones):
        if waiting and (not open_ones or waiting[-1][1].last >= -open_ones[0][0]):
            number, part = waiting.pop()
            push(number, part.backwards(needle))
            continue
        _, number, found, lines = heapq.heappop(open_ones)
        newest.append((parts[-number], found))
        push(-number, lines)
    return newest[::-1]


def _part(entry: os.DirEntry[str], since: int, before: int) -> _Part | None:
    """Return what a file has from one moment until before another."""
    with open(entry.path, "rb", buffering=0) as file:
        fd = file.fileno()
        end = _whole(fd, os.fstat(fd).st_size)
        if before < ENDLESS_MS:
            end = _first_from(fd, end, before)
        last = _last_at(fd, end)
        if last is None or last < since:
            return None
        start = _first_from(fd, end, since) if int(entry.name[:13]) < since else 0
    return _Part(entry.name.removesuffix(".log"), entry.path, start, end, last)


def _whole(fd: int, size: int) -> int:
    """Return where the last whole line ends."""
    start = max(0, size - LONGEST)
    return start + os.pread(fd, size - start, start).rfind(b"\n") + 1


def _last_at(fd: int, end: int) -> int | None:
    start = max(0, end - LONGEST)
    lines = _lines_backwards(os.pread(fd, end - start, start), start, 0, None)
    return next((found.at for found in lines), None)


def _first_from(fd: int, end: int, moment: int) -> int:
    """Return where the first line stands that is not before a moment; the end where there is none."""
    places = range(0, end, LONGEST)
    # Each step looks at one line. What it finds is at most one step too far, and never too far back.
    number = bisect_left(places, True, key=lambda place: _at_or_after(fd, end, place) >= moment)
    start = places[number - 1] if number else 0
    block = os.pread(fd, 3 * LONGEST, start)[: end - start]
    place = start + (block.find(b"\n") + 1 if start else 0)
    for line in block[place - start :].split(b"\n")[:-1]:
        found = _find(line, place)
        if found is not None and found.at >= moment:
            return place
        place += len(line) + 1
    return end if place >= end else place


def _at_or_after(fd: int, end: int, place: int) -> int:
    """Return the moment of the first line that begins after a place, or at the beginning of the file."""
    block = os.pread(fd, 3 * LONGEST, place)[: end - place]
    for line in block.split(b"\n")[1 if place else 0 : -1]:
        if (found := _find(line, 0)) is not None:
            return found.at
    return ENDLESS_MS


class _Fresh(NamedTuple):
    """Some lines of a file, each with the moment to sort it by; where they end; and whether they are all."""

    lines: list[tuple[int, _Found]]
    end: int
    is_all: bool


def _after(entry: os.DirEntry[str], place: int) -> _Fresh:
    """Return some lines after a place."""
    with contextlib.suppress(FileNotFoundError):
        size = entry.stat(follow_symlinks=False).st_size
        if size > place:
            with open(entry.path, "rb", buffering=0) as file:
                block = os.pread(file.fileno(), NEWS_BLOCK, place)
            # A whole block without the end of a line is nothing that a shim wrote.
            end = block.rfind(b"\n") + 1 or (len(block) if len(block) == NEWS_BLOCK else 0)
            return _Fresh(_in_order(block[:end].split(b"\n")[:-1], place), place + end, place + len(block) >= size)
    return _Fresh([], place, True)


def _in_order(lines: list[bytes], place: int) -> list[tuple[int, _Found]]:
    """Return lines with moments that never go back: in one file they stay in the order they were written in."""
    found: list[tuple[int, _Found]] = []
    latest = 0
    for line in lines:
        place += len(line) + 1
        each = _find(line, place)
        if each is not None:
            latest = max(latest, each.at)
            found.append((latest, each))
    return found
