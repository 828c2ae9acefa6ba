"""Records on their way from the function gateway to the store: how they stand in a file, and who writes it.

The gateway appends to files that are mapped into its memory, so a record costs it no system call, and what it wrote
outlives it: after `kill -9` the pages still belong to the file. A record is 4 bytes of length, a fixed head, the error
message and the log block. The length is written last, by one aligned store: what has one is whole. Records start at
multiples of four, with up to three zeros between them.

A log block is a row of entries: `u8` stream, `i64` epoch milliseconds, `u32` length, text.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moorage.core.kit.clock import SystemClock

MB = 2**20
CAPACITY = 16 * MB
SUFFIX = ".spool"
UNBORN = ".new"  # of a file that its writer has not locked yet
LOOK_S = 1.0  # how often a writer without room looks whether there is some again
# Bytes of log text that functions of one organization may print: to store more would take the processors from others.
PRINTED_PER_S, PRINTED_AT_ONCE = 4 * MB, 64 * MB
MOST_PRINTERS = 10_000  # organizations whose bytes are counted at a time
WORTH_DROPPING = 256  # A log of up to this is not larger than the note that would take its place.

# What a record tells.
END = 1  # an invocation came to its end
START = 2  # a scheduled one is about to be handed to an instance
LATE = 3  # something was printed after the answer

# Through which door the call came.
WEB = 1
API = 2
SCHEDULE = 3
DOORS = {WEB: "web", API: "api", SCHEDULE: "schedule"}

# Streams of a log. What the platform says about a log is shown with standard error.
STDOUT = 1
STDERR = 2
NOTE = 3

_LENGTH = Struct("<I")
_FIELDS = "BBBBQQIIQQQQ32sII"
_HEAD = Struct(f"<{_FIELDS}")
_ENTRY = Struct("<BqI")
_GLANCE = Struct("<IBxxxQ")  # the length and the beginning of the head
_pack = _HEAD.pack
# A whole record without error and log, its length included: what most calls leave. See `SpoolWriter.append_plain`.
pack_plain = Struct(f"<I{_FIELDS}").pack
_unpack = _HEAD.unpack_from
_new = tuple.__new__  # What a NamedTuple's own constructor does, without the call in between.
_length = _LENGTH.pack
LENGTH_SIZE = _LENGTH.size
HEAD_SIZE = _HEAD.size
ENTRY_SIZE = _ENTRY.size

# What the store's columns hold, and more than any honest record says.
MOST_ID = 2**63
MOST_VERSION = 2**31
MOST_MB = 2**20
MOST_US = 2**40  # 12 days
MOST_MS = 2**47  # the year 6429


class Torn(ValueError):
    """What stands in a file is no record."""


class Record(NamedTuple):
    kind: int
    door: int
    ok: bool
    cold: bool
    function_id: int
    org_id: int
    version: int
    memory_mb: int
    started_ms: int
    duration_us: int
    wait_us: int
    schedule_id: int  # 0: none
    activation: str
    error: str | None
    log: bytes  # a log block


class Entry(NamedTuple):
    """One line of a log, or what there is of it."""

    stream: int
    at_ms: int
    text: str


def encode(
    kind: int,
    door: int,
    ok: bool,
    cold: bool,
    function_id: int,
    org_id: int,
    version: int,
    memory_mb: int,
    started_ms: int,
    duration_us: int,
    wait_us: int,
    schedule_id: int,
    activation: bytes,
    error: bytes = b"",
    log: bytes = b"",
) -> bytes:
    """Return a record as `SpoolWriter.append` takes it. It stands on the path of every call, so it is one pack."""
    head = _pack(
        kind,
        door,
        ok,
        cold,
        function_id,
        org_id,
        version,
        memory_mb,
        started_ms,
        duration_us,
        wait_us,
        schedule_id,
        activation,
        len(error),
        len(log),
    )
    return head + error + log if error or log else head


def length_at(buffer: bytes, at: int) -> int:
    """Return the length of the record that starts at a place; 0 where none was written yet."""
    if len(buffer) - at < LENGTH_SIZE:
        return 0
    (length,) = _LENGTH.unpack_from(buffer, at)
    return int(length)


def glance_at(buffer: bytes, at: int) -> tuple[int, int, int]:
    """Return length, kind and function of the record that starts at a place, unchecked; all 0 where none is."""
    return _GLANCE.unpack_from(buffer, at) if len(buffer) - at >= _GLANCE.size else (0, 0, 0)


def decode(buffer: bytes, at: int, length: int) -> Record:
    """Return the record of this length whose head starts at `at`; raises Torn for what cannot be one.

    Whatever is written is read here, so that it is written in one piece, without a call for each thing it checks.
    """
    if length < HEAD_SIZE or length > len(buffer) - at:
        raise Torn(f"a record cannot be {length} bytes long")
    (kind, door, ok, cold, function_id, org_id, version, memory_mb, started_ms, duration_us, wait_us, schedule_id,
     activation, error_size, log_size) = _unpack(buffer, at)  # fmt: skip
    log_at = at + HEAD_SIZE + error_size
    end = log_at + log_size
    if (
        not 0 <= at + length - end < LENGTH_SIZE
        or not 0 < kind <= LATE
        or not 0 < door <= SCHEDULE
        or ok > 1
        or cold > 1
        or not 0 < function_id < MOST_ID
        or org_id >= MOST_ID
        or version >= MOST_VERSION
        or memory_mb >= MOST_MB
        or started_ms >= MOST_MS
        or duration_us >= MOST_US
        or wait_us >= MOST_US
        or schedule_id >= MOST_ID
        or not activation.isalnum()
    ):
        raise Torn("its values make no sense")
    error = _text(buffer[at + HEAD_SIZE : log_at]) if error_size else None
    return _new(Record, (kind, door, ok == 1, cold == 1, function_id, org_id, version, memory_mb, started_ms,
                duration_us, wait_us, schedule_id, activation.decode("ascii"), error, buffer[log_at:end]))  # fmt: skip


def _text(data: bytes) -> str:
    """Return a text that any store takes: some refuse the zero character."""
    text = data.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def log_entry(stream: int, at_ms: int, text: bytes) -> bytes:
    """Return one entry of a log block."""
    return _ENTRY.pack(stream, at_ms, len(text)) + text


def log_entries(block: bytes) -> Iterator[Entry]:
    """Yield the lines of a log block, up to the first entry that is cut off. Lines of one moment share an entry."""
    at = 0
    while len(block) - at >= ENTRY_SIZE:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        at += ENTRY_SIZE
        if length > len(block) - at:
            return
        moment = min(max(at_ms, 0), MOST_MS)
        *lines, rest = block[at : at + length].decode("utf-8", "replace").split("\n")
        for line in lines:
            yield Entry(stream, moment, line + "\n")
        if rest or not lines:
            yield Entry(stream, moment, rest)
        at += length


def log_texts(block: bytes) -> tuple[str, str]:
    """Return what a log block has of standard output, and of everything else."""
    out: list[bytes] = []
    err: list[bytes] = []
    at, size = 0, len(block)
    while size - at >= ENTRY_SIZE:
        stream, _, length = _ENTRY.unpack_from(block, at)
        at += ENTRY_SIZE + length
        if at > size:
            break
        (out if stream == STDOUT else err).append(block[at - length : at])
    return b"".join(out).decode("utf-8", "replace"), b"".join(err).decode("utf-8", "replace")


def has_note(block: bytes) -> bool:
    """Tell whether the platform says something in a log block."""
    at = 0
    while len(block) - at >= ENTRY_SIZE:
        stream, _, length = _ENTRY.unpack_from(block, at)
        if stream == NOTE:
            return True
        at += ENTRY_SIZE + length
    return False


def cut_text(block: bytes, most: int) -> bytes:
    """Return as much of a log block as has a number of bytes of text in it."""
    if len(block) <= most:
        return block
    at, left = 0, most
    while len(block) - at >= ENTRY_SIZE:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        if length > left:
            text = block[at + ENTRY_SIZE : at + ENTRY_SIZE + left].decode("utf-8", "ignore").encode()
            return block[:at] + log_entry(stream, at_ms, text)
        left -= length
        at += ENTRY_SIZE + length
    return block


def cut_log(block: bytes, most: int) -> bytes:
    """Return what of a log block fits into a number of bytes: whole entries, and the beginning of one."""
    if len(block) <= most:
        return block
    at = 0
    while most - at > ENTRY_SIZE:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        if at + ENTRY_SIZE + length > most:
            room = most - at - ENTRY_SIZE
            # A character that would be cut in the middle is left out.
            text = block[at + ENTRY_SIZE : at + ENTRY_SIZE + room].decode("utf-8", "ignore").encode()
            return block[:at] + log_entry(stream, at_ms, text)
        at += ENTRY_SIZE + length
    return block[:at]


class Room(NamedTuple):
    """How much may wait in a spool folder; 0 is as much as fits on the disk."""

    most_bytes: int = 0  # of all files; past half of it records come without their logs
    reserve_bytes: int = 0  # free disk space under which they do too


class SpoolWriter:
    """Appends records to files of its own. One thread may use it.

    It holds the lock of the file it writes to, so that a reader can tell a file that may still grow from one whose
    writer is gone. Disk space is claimed when a file is opened: a full disk or a full spool is an OSError there (and
    whatever was appended before is kept), never a signal in the middle of a record.
    """

    def __init__(self, folder: Path, capacity: int = CAPACITY, room: Room | None = None) -> None:
        self._folder = folder
        self._capacity = capacity
        self._room = room or Room()
        self._is_tight = False
        self._is_full = False
        self._look_at = 0.0
        self._printed: dict[int, float] = {}  # organization -> when it will have paid for its bytes
        self._clock = SystemClock()
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._at, self._end = 0, capacity
        self._fd, self._map = self._open(capacity)
        self._look(0)

    def append(self, record: bytes) -> None:
        """Add a record. It is kept from here on, whatever becomes of this process."""
        at = self._at + 4
        size = len(record)
        end = at + (size + 3 & -4)
        if end > self._end:
            self._turn(end - at + LENGTH_SIZE)
            at, end = 4, end - at + 4
        mapped = self._map
        mapped[at : at + size] = record
        # The kernel's zeros lie where the record is padded. A reader sees all of the length or nothing of it.
        mapped[at - 4 : at] = _length(end - at)
        self._at = end

    def append_plain(self, packed: bytes) -> None:
        """Add records made by `pack_plain`, one behind the other. A reader sees all of them or none."""
        at = self._at
        if at + len(packed) > self._end:
            self._turn(len(packed) + LENGTH_SIZE)
            at = 0
        mapped = self._map
        end = at + len(packed)
        mapped[at + 4 : end] = packed[4:]
        mapped[at : at + 4] = packed[:4]
        self._at = end

    def fit(self, log: bytes, org_id: int) -> bytes:
        """Return a log block as it may be appended: itself, or a note in its place.

        That is so where the spool is tight, and where the functions of an organization print too much.
        """
        if self._is_tight:
            self._look(0)
        if len(log) <= WORTH_DROPPING:
            return log
        if self._is_tight:
            why = "too many records wait to be stored"
        elif not self._may_print(org_id, len(log)):
            why = f"the functions of this organization print more than {PRINTED_PER_S // MB} MB a second"
        else:
            return log
        text = f"[moorage] What this call printed ({len(log):,} bytes) was dropped: {why}."
        return log_entry(NOTE, self._clock.now(), text.encode() + b"\n")

    def _may_print(self, org_id: int, size: int) -> bool:
        """Count some bytes of an organization, unless it has printed too many."""
        now = time.monotonic()
        paid = max(self._printed.pop(org_id, 0.0), now - PRINTED_AT_ONCE / PRINTED_PER_S)
        may = paid <= now
        self._printed[org_id] = paid + size / PRINTED_PER_S if may else paid
        if len(self._printed) > MOST_PRINTERS:
            del self._printed[next(iter(self._printed))]  # the one that has printed nothing for the longest time
        return may

    def close(self) -> None:
        """Let go of the file: a reader deletes it once it has read it."""
        self._map.close()
        os.close(self._fd)

    def _turn(self, least: int) -> None:
        """Go on in a new file. The old one is let go of only when there is one."""
        capacity = max(self._capacity, -(-least // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._look(capacity)
        if self._is_full:
            raise OSError(errno.ENOSPC, f"the spool is full: {self._room.most_bytes // MB} MB of records wait")
        opened = self._open(capacity)
        self.close()
        self._fd, self._map = opened
        self._at, self._end = 0, capacity

    def _look(self, more: int) -> None:
        """Find out how much waits, with so much more; without room no more often than every second."""
        is_known = self._is_full or (self._is_tight and not more)
        if not any(self._room) or (is_known and time.monotonic() < self._look_at):
            return
        used = more
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    used += entry.stat(follow_symlinks=False).st_size
        most, reserve = self._room
        self._is_full = 0 < most < used
        self._is_tight = 0 < most < 2 * used or (reserve > 0 and _free_bytes(self._folder) < reserve)
        self._look_at = time.monotonic() + LOOK_S

    def _open(self, capacity: int) -> tuple[int, mmap.mmap]:
        while True:
            name = self._folder / f"{self._clock.now():013d}-{os.getpid()}-{self._count}{SUFFIX}"
            self._count += 1
            try:
                return _open_locked(name, capacity)
            except (FileExistsError, FileNotFoundError):
                # The name is taken, or a reader mistook the unborn file for a dead writer's: take another one.
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _free_bytes(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _open_locked(path: Path, capacity: int) -> tuple[int, mmap.mmap]:
    """Make a file, and give it its name only once it is locked: a reader deletes what is neither locked nor unread."""
    unborn = path.with_suffix(UNBORN)
    fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.posix_fallocate(fd, 0, capacity)
        mapped = mmap.mmap(fd, capacity)
        if path.exists():
            raise FileExistsError(path)
        unborn.rename(path)
    except BaseException:
        unborn.unlink(missing_ok=True)
        os.close(fd)
        raise
    return fd, mapped
