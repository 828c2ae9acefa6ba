"""The log text of invocations, in segment files of each function: `<logs>/<organization>/<function>/<ms>-<key>.log`.

Names, rotation and trimming are those of the logs of apps (`runtime/shim/logs/logfile.py`). The text is stored as the
record has it, compressed, because an invocation shows exactly what it printed: a frame is a checksum, a length and the
packed block. A row refers to frames as `<segment>:<offset>:<size>`, joined by commas. A frame that no row refers to,
left by a crash, goes with its segment.

No file stays open between two calls. What asks the disk is to be called in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS
from moorage.products.functions.records.spool import ensure_id
from moorage.runtime.shim.logs import logfile
from moorage.settings import Settings

MB = 2**20
KEPT_MS = 30 * DAY_MS  # as long as the rows that refer to the text
SEGMENT_MS = DAY_MS  # A function that prints little has one file for each day on which it prints.
ID_FILE = "machine.id"
REMEMBERED = 4_096  # functions whose newest segment is known without a look at their folder
_FRAME = Struct("<II")  # checksum and length of what follows
_PLACE = re.compile(r"([0-9]{13}-[A-Za-z0-9_-]+):([0-9]{1,15}):([0-9]{1,10})")
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9-]+")


class Missing(StrEnum):
    """Why an invocation has no text, or not all of it. The first three stand in its row, after a `!`."""

    QUOTA = "quota"  # newer text took its place, or it was too old
    RESERVE = "reserve"  # the disk had less free space than the reserve
    DISK = "disk"  # the disk refused it
    DAMAGED = "damaged"  # the frame is not what was written
    ELSEWHERE = "elsewhere"  # another machine has it


class Gap(NamedTuple):
    """Text that cannot be shown."""

    why: Missing
    machine: str = ""


class LogLimits(NamedTuple):
    function_bytes: int
    organization_bytes: int
    reserve_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> LogLimits:
        return cls(settings.function_log_mb * MB, settings.organization_log_mb * MB, settings.disk_reserve_mb * MB)


class Text(NamedTuple):
    """The packed log block of one invocation, on its way to a file."""

    org_id: int
    function_id: int
    packed: bytes


class _Segment(NamedTuple):
    name: str
    path: str
    size: int


class FunctionLogs:
    """The log files of all functions on this machine. Several processes may share the folder."""

    def __init__(self, folder: Path, limits: LogLimits) -> None:
        self.limits = limits
        self._folder = folder
        self._segment_bytes = min(logfile.FILE_BYTES, limits.function_bytes // logfile.FILES_PER_OWN_LOG)
        self._key = ""
        self._newest: OrderedDict[int, str] = OrderedDict()  # function -> the segment it was last written to
        self._used: dict[int, int] = {}  # organization -> bytes of all its segments
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: Settings) -> FunctionLogs:
        return cls(settings.folder("logs") / "functions", LogLimits.of(settings))

    # Writing.

    def put(self, texts: list[Text], now_ms: int) -> list[str]:
        """Store texts, and return for each what its row refers to it by. Never raises for the disk."""
        places = [f"!{Missing.RESERVE}"] * len(texts)
        with self._lock:
            if not texts or not self._has_room(sum(len(text.packed) for text in texts)):
                return places
            by_function: dict[tuple[int, int], list[int]] = {}
            for number, text in enumerate(texts):
                by_function.setdefault((text.org_id, text.function_id), []).append(number)
            for (org_id, function_id), numbers in by_function.items():
                stored = self._put_together(org_id, function_id, [texts[each].packed for each in numbers], now_ms)
                for number, place in zip(numbers, stored, strict=True):
                    places[number] = place
        return places

    def _has_room(self, size: int) -> bool:
        """Tell whether the disk keeps its reserve when so much is written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = os.statvfs(self._folder)
        except OSError:
            return False
        return about.f_bavail * about.f_frsize - size >= self.limits.reserve_bytes

    def _put_together(self, org_id: int, function_id: int, packed: list[bytes], now_ms: int) -> list[str]:
        frames = [_FRAME.pack(zlib.crc32(each), len(each)) + each for each in packed]
        data = b"".join(frames)
        try:
            self._make_room(org_id, len(data))
            name, start = self._append(org_id, function_id, data, now_ms)
        except OSError:
            return [f"!{Missing.DISK}"] * len(packed)
        self._used[org_id] = self._used.get(org_id, 0) + len(data)
        places = []
        for frame in frames:
            places.append(f"{name}:{start}:{len(frame)}")
            start += len(frame)
        return places

    def _append(self, org_id: int, function_id: int, data: bytes, now_ms: int) -> tuple[str, int]:
        """Write frames to one segment, whole or not at all; return its name and where they begin."""
        name, fd = self._open(org_id, function_id, len(data), now_ms)
        try:
            start = done = os.fstat(fd).st_size
            try:
                while done - start < len(data):
                    done += os.write(fd, data[done - start :])
            except OSError:
                os.ftruncate(fd, start)
                raise
        finally:
            os.close(fd)
        return name, start

    def _open(self, org_id: int, function_id: int, size: int, now_ms: int) -> tuple[str, int]:
        """Return a segment that has room, locked so that no other process writes to it meanwhile."""
        folder = self._folder_of(org_id, function_id)
        newest = self._newest.get(function_id) or self._find_newest(folder)
        if newest:
            fd = self._reopen(folder / f"{newest}.log", size, now_ms)
            if fd is not None:
                self._remember(function_id, newest)
                return newest, fd
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # By size only: `trim` removes by age, with a clock that was not just set forward.
        freed = logfile.trim(folder, None, room=max(size, self._segment_bytes), kept_bytes=self.limits.function_bytes)
        self._used[org_id] = self._used.get(org_id, 0) - freed
        first_ms = max(now_ms, int(newest[:13]) + 1 if newest else 0)  # Also where the clock was set back.
        while True:
            name = f"{first_ms:013d}-{self.key}"
            fd = _open_locked(folder / f"{name}.log", os.O_CREAT | os.O_EXCL)
            if fd is not None:
                self._remember(function_id, name)
                return name, fd
            first_ms += 1

    def _reopen(self, path: Path, size: int, now_ms: int) -> int | None:
        fd = _open_locked(path)
        if fd is None:
            return None
        about = os.fstat(fd)
        is_over = about.st_size + size > self._segment_bytes or now_ms - int(path.name[:13]) > SEGMENT_MS
        if is_over or about.st_nlink == 0:
            os.close(fd)
            return None
        return fd

    def _remember(self, function_id: int, name: str) -> None:
        self._newest[function_id] = name
        self._newest.move_to_end(function_id)
        if len(self._newest) > REMEMBERED:
            self._newest.popitem(last=False)

    def _find_newest(self, folder: Path) -> str:
        """Return the newest segment of a function that this machine wrote."""
        return max((each.name for each in _segments(folder) if each.name.endswith(self.key)), default="")

    def _make_room(self, org_id: int, size: int) -> None:
        """Delete the oldest segments of an organization where so much more would pass its quota."""
        if org_id in self._used and self._used[org_id] + size <= self.limits.organization_bytes:
            return
        found = list(self._segments_of(org_id))
        used = sum(segment.size for segment in found)
        if used + size > self.limits.organization_bytes:
            # Some more goes at once, so that the folders are not listed for every text of an organization at its quota.
            most = self.limits.organization_bytes - max(size, self.limits.organization_bytes // 32)
            for segment in sorted(found):
                if used <= most:
                    break
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(segment.path)
                used -= segment.size
        self._used[org_id] = used

    # Reading.

    def read(self, org_id: int, function_id: int, reference: str) -> Iterator[bytes | Gap]:
        """Yield the packed blocks that a row refers to, in their order, and what is missing of them."""
        folder = self._folder_of(org_id, function_id)
        for place in reference.split(","):
            found = _PLACE.fullmatch(place)
            if found is None:
                reason = place.removeprefix("!")
                yield Gap(Missing(reason) if reason in set(Missing) else Missing.DAMAGED)
                continue
            name, offset, size = found[1], int(found[2]), int(found[3])
            try:
                with open(folder / f"{name}.log", "rb", buffering=0) as file:
                    frame = os.pread(file.fileno(), size, offset)
            except FileNotFoundError:
                yield self._gone(name)
                continue
            except OSError:
                yield Gap(Missing.DAMAGED)
                continue
            packed = frame[_FRAME.size :]
            is_whole = len(frame) == size and _FRAME.unpack_from(frame) == (zlib.crc32(packed), len(packed))
            yield packed if is_whole else Gap(Missing.DAMAGED)

    def _gone(self, name: str) -> Gap:
        machine, _, of_folder = name[14:].rpartition("_")
        return Gap(Missing.QUOTA) if of_folder == self.key.rpartition("_")[2] else Gap(Missing.ELSEWHERE, machine)

    def used_bytes(self, org_id: int) -> int:
        """Return what the log text of an organization takes on this machine."""
        return sum(segment.size for segment in self._segments_of(org_id))

    # Removing.

    def forget(self, org_id: int, function_id: int) -> None:
        """Remove the log files of a function. Safe to repeat."""
        with self._lock:
            folders.remove(self._folder_of(org_id, function_id))
            self._newest.pop(function_id, None)
            self._used.pop(org_id, None)
            with contextlib.suppress(OSError):  # Other functions of the organization have logs.
                (self._folder / str(org_id)).rmdir()

    def functions(self) -> list[tuple[int, int]]:
        """Return organization and function of every folder."""
        return [
            (int(org), int(function))
            for org in _numbers_in(self._folder)
            for function in _numbers_in(self._folder / org)
        ]

    def trim(self, now_ms: int, found: list[tuple[int, int]], alive: set[int]) -> None:
        """Remove what is too old, and of some folders those of functions that are gone; then count again."""
        for org_id, function_id in found:
            if function_id not in alive:
                self.forget(org_id, function_id)
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                logfile.trim(
                    self._folder_of(org_id, function_id),
                    now_ms,
                    kept_bytes=self.limits.function_bytes,
                    kept_ms=SEGMENT_MS + KEPT_MS,
                )
        with self._lock:
            for org_id in {org_id for org_id, _ in found}:
                self._used.pop(org_id, None)
                self._make_room(org_id, 0)

    # Names.

    @property
    def key(self) -> str:
        """The machine's name, for people, and the id of this folder, which tells it apart from a copy elsewhere."""
        if not self._key:
            host = _NOT_IN_KEY.sub("-", socket.gethostname())[:40].strip("-") or "machine"
            self._key = f"{host}_{ensure_id(self._folder, ID_FILE)[:12]}"
        return self._key

    def _folder_of(self, org_id: int, function_id: int) -> Path:
        return self._folder / str(org_id) / str(function_id)

    def _segments_of(self, org_id: int) -> Iterator[_Segment]:
        for function in _numbers_in(self._folder / str(org_id)):
            yield from _segments(self._folder / str(org_id) / function)


def _open_locked(path: Path, flags: int = 0) -> int | None:
    """Open a segment to append to it; None where it cannot be this one, or another process is writing to it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileExistsError:
        return None
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _segments(folder: Path) -> Iterator[_Segment]:
    """Yield the segments of a function. One that vanishes meanwhile does not count."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if logfile.NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    yield _Segment(entry.name.removesuffix(".log"), entry.path, entry.stat().st_size)


def _numbers_in(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in os.listdir(folder) if name.isascii() and name.isdigit()]
    return []
