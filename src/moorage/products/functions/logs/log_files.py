"""Segment files with the log text of invocations.

A segment is `<logs>/<organization>/<function>/<ms>-<key>.log`. Names, rotation and trimming are those of app logs
(`runtime/logs/logfile.py`). The text is stored exactly as in the record, compressed: a frame is a checksum, a
length and the packed block. A row refers to frames as `<segment>:<offset>:<size>`, joined by commas. A frame without a
row, left by a crash, is deleted with its segment.

No file stays open between two calls. Methods that access the disk block: call them in a thread.
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
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS
from moorage.products.functions.records.spool import ensure_id
from moorage.runtime.logs import logfile
from moorage.settings import Settings

MB = 2**20
KEPT_MS = 30 * DAY_MS  # same as the rows that refer to the text
SEGMENT_MS = DAY_MS  # A function with little output has one file for each day with output.
ID_FILE = "machine.id"
MAX_CACHED_SEGMENTS = 4_096  # functions with a cached name of their newest segment
_FRAME = Struct("<II")  # checksum and length of the packed block
_REFERENCE = re.compile(r"([0-9]{13}-[A-Za-z0-9_-]+):([0-9]{1,15}):([0-9]{1,10})")
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9-]+")


class Missing(StrEnum):
    """Why log text is missing; the first three are stored in the row, after `!`."""

    QUOTA = "quota"  # deleted for newer text or because of its age
    RESERVE = "reserve"  # the disk had less free space than the reserve
    DISK = "disk"  # the write failed
    DAMAGED = "damaged"  # the frame's checksum or length is wrong
    ELSEWHERE = "elsewhere"  # on another machine


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
    """The packed log block of one invocation, to be written."""

    org_id: int
    function_id: int
    packed: bytes


class _Segment(NamedTuple):
    name: str
    path: str
    size: int


class FunctionLogs:
    """The log files of all functions on this machine; processes may share the folder."""

    def __init__(self, folder: Path, limits: LogLimits) -> None:
        self.limits = limits
        self._folder = folder
        self._segment_bytes = min(logfile.FILE_BYTES, limits.function_bytes // logfile.FILES_PER_OWN_LOG)
        # Reads text of other machines: organization, function and reference; None without such machines.
        self.elsewhere: Callable[[int, int, str], bytes | None] | None = None
        self._key = ""
        self._newest: OrderedDict[int, str] = OrderedDict()  # newest segment by function
        self._used: dict[int, int] = {}  # bytes of all segments by organization
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: Settings) -> FunctionLogs:
        return cls(settings.folder("logs") / "functions", LogLimits.of(settings))

    # Writing.

    def put(self, texts: list[Text], now_ms: int) -> list[str]:
        """Store texts and return the reference to each. Never raises OSError."""
        references = [f"!{Missing.RESERVE}"] * len(texts)
        with self._lock:
            if not texts or not self._has_room(sum(len(text.packed) for text in texts)):
                return references
            by_function: dict[tuple[int, int], list[int]] = {}
            for number, text in enumerate(texts):
                by_function.setdefault((text.org_id, text.function_id), []).append(number)
            for (org_id, function_id), numbers in by_function.items():
                stored = self._put_frames(org_id, function_id, [texts[each].packed for each in numbers], now_ms)
                for number, reference in zip(numbers, stored, strict=True):
                    references[number] = reference
        return references

    def _has_room(self, size: int) -> bool:
        """Return whether the disk keeps its reserve after a write of `size` bytes."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            disk = os.statvfs(self._folder)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize - size >= self.limits.reserve_bytes

    def _put_frames(self, org_id: int, function_id: int, packed: list[bytes], now_ms: int) -> list[str]:
        frames = [_FRAME.pack(zlib.crc32(each), len(each)) + each for each in packed]
        data = b"".join(frames)
        try:
            self._make_room(org_id, len(data))
            name, start = self._append(org_id, function_id, data, now_ms)
        except OSError:
            return [f"!{Missing.DISK}"] * len(packed)
        self._used[org_id] = self._used.get(org_id, 0) + len(data)
        references = []
        for frame in frames:
            references.append(f"{name}:{start}:{len(frame)}")
            start += len(frame)
        return references

    def _append(self, org_id: int, function_id: int, data: bytes, now_ms: int) -> tuple[str, int]:
        """Write frames to one segment, all or none; return its name and their offset."""
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
        """Return the name and the locked file descriptor of a segment with room."""
        folder = self._folder_of(org_id, function_id)
        newest = self._newest.get(function_id) or self._find_newest(folder)
        if newest:
            fd = self._reopen(folder / f"{newest}.log", size, now_ms)
            if fd is not None:
                self._cache_newest(function_id, newest)
                return newest, fd
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # By size only: `trim` removes by age, with the trusted clock.
        freed = logfile.trim(folder, None, room=max(size, self._segment_bytes), kept_bytes=self.limits.function_bytes)
        self._used[org_id] = self._used.get(org_id, 0) - freed
        first_ms = max(now_ms, int(newest[:13]) + 1 if newest else 0)  # increases even if the clock was set back
        while True:
            name = f"{first_ms:013d}-{self.key}"
            fd = _open_locked(folder / f"{name}.log", os.O_CREAT | os.O_EXCL)
            if fd is not None:
                self._cache_newest(function_id, name)
                return name, fd
            first_ms += 1

    def _reopen(self, path: Path, size: int, now_ms: int) -> int | None:
        fd = _open_locked(path)
        if fd is None:
            return None
        status = os.fstat(fd)
        is_over = status.st_size + size > self._segment_bytes or now_ms - int(path.name[:13]) > SEGMENT_MS
        if is_over or status.st_nlink == 0:
            os.close(fd)
            return None
        return fd

    def _cache_newest(self, function_id: int, name: str) -> None:
        self._newest[function_id] = name
        self._newest.move_to_end(function_id)
        if len(self._newest) > MAX_CACHED_SEGMENTS:
            self._newest.popitem(last=False)

    def _find_newest(self, folder: Path) -> str:
        """Return the newest segment of a function on this machine."""
        return max((each.name for each in _segments(folder) if each.name.endswith(self.key)), default="")

    def _make_room(self, org_id: int, size: int) -> None:
        """Delete an organization's oldest segments if `size` more exceeds its quota."""
        if org_id in self._used and self._used[org_id] + size <= self.limits.organization_bytes:
            return
        segments = list(self._segments_of(org_id))
        used = sum(segment.size for segment in segments)
        if used + size > self.limits.organization_bytes:
            # Frees 1/32 of the quota at once: else each text of an organization at its quota would list the folders.
            most = self.limits.organization_bytes - max(size, self.limits.organization_bytes // 32)
            for segment in sorted(segments):
                if used <= most:
                    break
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(segment.path)
                used -= segment.size
        self._used[org_id] = used

    # Reading.

    def read(self, org_id: int, function_id: int, log_ref: str) -> Iterator[bytes | Gap]:
        """Yield the packed blocks of a row in order, and a Gap for each missing one."""
        folder = self._folder_of(org_id, function_id)
        for reference in log_ref.split(","):
            match = _REFERENCE.fullmatch(reference)
            if match is None:
                reason = reference.removeprefix("!")
                yield Gap(Missing(reason) if reason in set(Missing) else Missing.DAMAGED)
                continue
            name, offset, size = match[1], int(match[2]), int(match[3])
            try:
                with open(folder / f"{name}.log", "rb", buffering=0) as file:
                    frame = os.pread(file.fileno(), size, offset)
            except FileNotFoundError:
                gap = self._gap_of(name)
                block = None
                if self.elsewhere is not None and gap.why is Missing.ELSEWHERE:
                    block = self.elsewhere(org_id, function_id, reference)
                yield block or gap
                continue
            except OSError:
                yield Gap(Missing.DAMAGED)
                continue
            packed = frame[_FRAME.size :]
            is_whole = len(frame) == size and _FRAME.unpack_from(frame) == (zlib.crc32(packed), len(packed))
            yield packed if is_whole else Gap(Missing.DAMAGED)

    def _gap_of(self, name: str) -> Gap:
        machine, _, folder_id = name[14:].rpartition("_")
        return Gap(Missing.QUOTA) if folder_id == self.key.rpartition("_")[2] else Gap(Missing.ELSEWHERE, machine)

    def used_bytes(self, org_id: int) -> int:
        """Return the bytes of an organization's log text on this machine."""
        return sum(segment.size for segment in self._segments_of(org_id))

    # Removing.

    def forget(self, org_id: int, function_id: int) -> None:
        """Remove the log files of a function. Idempotent."""
        with self._lock:
            folders.remove(self._folder_of(org_id, function_id))
            self._newest.pop(function_id, None)
            self._used.pop(org_id, None)
            with contextlib.suppress(OSError):  # not empty: other functions of the organization have logs
                (self._folder / str(org_id)).rmdir()

    def functions(self) -> list[tuple[int, int]]:
        """Return the organization id and function id of every folder."""
        return [
            (int(org), int(function))
            for org in _numbers_in(self._folder)
            for function in _numbers_in(self._folder / org)
        ]

    def trim(self, now_ms: int, functions: list[tuple[int, int]], alive: set[int]) -> None:
        """Remove old segments and the folders of deleted functions; recount the usage."""
        for org_id, function_id in functions:
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
            for org_id in {org_id for org_id, _ in functions}:
                self._used.pop(org_id, None)
                self._make_room(org_id, 0)

    # Names.

    @property
    def key(self) -> str:
        """Return the host name, for operators, and the folder id, which is unique."""
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
    """Open and lock a segment for appending; None if it cannot be used.

    With O_CREAT an existing segment cannot be used; a segment locked by another process never can.
    """
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
    """Yield the segments of a function; skips those deleted during the scan."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if logfile.NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    yield _Segment(entry.name.removesuffix(".log"), entry.path, entry.stat().st_size)


def _numbers_in(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in os.listdir(folder) if name.isascii() and name.isdigit()]
    return []
