"""The spool: files of call records, from the edge to the recorder.

The edge appends to memory-mapped files: a record costs no system call and survives `kill -9`, because the pages belong
to the file. A record is 4 bytes of length, a fixed head, the error message and the log block. The length is written
last, by one aligned store, so a record with a length is complete. Records start at multiples of four, with up to three
zero bytes between them.

A log block is a sequence of entries: `u8` stream, `i64` epoch milliseconds, `u32` length, text.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moorage.core.kit.clock import SystemClock

MB = 2**20
CAPACITY = 16 * MB
SUFFIX = ".spool"
UNBORN = ".new"  # suffix of a file that its writer has not locked yet
ROOM_CHECK_INTERVAL_S = 1.0  # while the spool is full or tight
# Rate and burst of log bytes per organization: storing more would take CPU time from others.
PRINTED_PER_S, PRINTED_AT_ONCE = 2 * MB, 64 * MB
MAX_LOGGING_ORGS = 10_000  # organizations with counted log bytes
MAPPED_LOG_BYTES = 32 * 2**10
MIN_DROPPED_BYTES = 256  # A smaller log is not larger than the note that would replace it.

# Messages of the edge to the control process, on `edge-events.sock`.
STARTED = b"started"
RECORDS = b"records"

# Kinds of records.
END = 1  # a call ended
START = 2  # a scheduled call is about to be sent to an instance
LATE = 3  # output after the answer

# Sources of calls.
WEB = 1
API = 2
SCHEDULE = 3
DOORS = {WEB: "web", API: "api", SCHEDULE: "schedule"}

# Streams of a log. Notes are messages of the platform, shown with standard error.
STDOUT = 1
STDERR = 2
NOTE = 3

_LENGTH = Struct("<I")
_FIELDS = "BBBBQQIIQQQQ32sII"
_HEAD = Struct(f"<{_FIELDS}")
_ENTRY = Struct("<BqI")
_GLANCE = Struct("<IBxxxQ")  # length, kind and function id
_pack = _HEAD.pack
# A complete record without error and log, as for most calls. See `SpoolWriter.append_plain`.
pack_plain = Struct(f"<I{_FIELDS}").pack
_unpack = _HEAD.unpack_from
_new = tuple.__new__  # faster than the constructor of the NamedTuple
_length = _LENGTH.pack
LENGTH_SIZE = _LENGTH.size
HEAD_SIZE = _HEAD.size
ENTRY_SIZE = _ENTRY.size

# Limits of the database columns, above any valid value.
MOST_ID = 2**63
MOST_VERSION = 2**31
MOST_MB = 2**20
MOST_US = 2**40  # 12 days
MOST_MS = 2**47  # the year 6429


class Torn(ValueError):
    """The file contains an invalid record."""


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
    """One line of a log, possibly unfinished."""

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
    log_bytes: int = 0,
) -> bytes:
    """Return a record for `SpoolWriter.append`, without its log; one pack, as every call pays for it."""
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
        log_bytes,
    )
    return head + error if error else head


def length_at(buffer: bytes, at: int) -> int:
    """Return the length of the record at an offset; 0 if none was written yet."""
    if len(buffer) - at < LENGTH_SIZE:
        return 0
    (length,) = _LENGTH.unpack_from(buffer, at)
    return int(length)


def glance_at(buffer: bytes, at: int) -> tuple[int, int, int]:
    """Return length, kind and function id at an offset, unchecked; 0 without record."""
    return _GLANCE.unpack_from(buffer, at) if len(buffer) - at >= _GLANCE.size else (0, 0, 0)


def decode(buffer: bytes, at: int, length: int) -> Record:
    """Return the record of this length with its head at `at`; raises Torn.

    Every record passes here, so the checks are inlined.
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
        raise Torn("a field has an invalid value")
    error = _text(buffer[at + HEAD_SIZE : log_at]) if error_size else None
    return _new(Record, (kind, door, ok == 1, cold == 1, function_id, org_id, version, memory_mb, started_ms,
                duration_us, wait_us, schedule_id, activation.decode("ascii"), error, buffer[log_at:end]))  # fmt: skip


def _text(data: bytes) -> str:
    """Decode a text without NUL characters, which PostgreSQL rejects."""
    text = data.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def log_entry(stream: int, at_ms: int, text: bytes) -> bytes:
    """Return one entry of a log block."""
    return _ENTRY.pack(stream, at_ms, len(text)) + text


def log_entries(block: bytes) -> Iterator[Entry]:
    """Yield the lines of a log block, up to the first truncated entry."""
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
    """Return standard output, and all other streams, of a log block."""
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
    """Whether a log block contains a note of the platform."""
    at = 0
    while len(block) - at >= ENTRY_SIZE:
        stream, _, length = _ENTRY.unpack_from(block, at)
        if stream == NOTE:
            return True
        at += ENTRY_SIZE + length
    return False


def cut_text(block: bytes, max_bytes: int) -> bytes:
    """Truncate a log block to a number of bytes of text."""
    if len(block) <= max_bytes:
        return block
    at, left = 0, max_bytes
    while len(block) - at >= ENTRY_SIZE:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        if length > left:
            text = block[at + ENTRY_SIZE : at + ENTRY_SIZE + left].decode("utf-8", "ignore").encode()
            return block[:at] + log_entry(stream, at_ms, text)
        left -= length
        at += ENTRY_SIZE + length
    return block


def cut_log(block: bytes, max_bytes: int) -> bytes:
    """Truncate a log block to a number of bytes, entry heads included."""
    if len(block) <= max_bytes:
        return block
    at = 0
    while max_bytes - at > ENTRY_SIZE:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        if at + ENTRY_SIZE + length > max_bytes:
            room = max_bytes - at - ENTRY_SIZE
            # "ignore" drops a truncated character.
            text = block[at + ENTRY_SIZE : at + ENTRY_SIZE + room].decode("utf-8", "ignore").encode()
            return block[:at] + log_entry(stream, at_ms, text)
        at += ENTRY_SIZE + length
    return block[:at]


class Room(NamedTuple):
    """Limits of a spool folder; 0: unlimited."""

    most_bytes: int = 0  # of all files; above half of it, records have no logs
    reserve_bytes: int = 0  # free disk space below which records have no logs


class SpoolWriter:
    """Appends records to its own files. Not thread-safe.

    It holds a lock on the current file, so that a reader can tell whether the file may still grow. Disk space is
    allocated when a file is opened: a full disk or spool raises OSError there, never a signal in the middle of a
    record. Earlier records are kept.
    """

    def __init__(self, folder: Path, capacity: int = CAPACITY, room: Room | None = None) -> None:
        self._folder = folder
        self._capacity = capacity
        self._room = room or Room()
        self._is_tight = False
        self._is_full = False
        self._check_room_at = 0.0
        self.is_quiet = True  # no record since the last announcement
        self.on_first_record: Callable[[], object] = lambda: None
        self._printed: dict[int, float] = {}  # organization id -> time at which its log bytes are within the rate
        self._clock = SystemClock()
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._at, self._end = 0, capacity
        self._fd, self._map = self._open(capacity)
        self._check_room(0)

    def append(self, record: bytes, log: bytes | memoryview = b"") -> None:
        """Append a record and its log, which survive the end of this process."""
        at = self._at + 4
        size = len(record)
        end = at + (size + len(log) + 3 & -4)
        if end > self._end:
            self._rotate(end - at + LENGTH_SIZE)
            at, end = 4, end - at + 4
        mapped = self._map
        mapped[at : at + size] = record
        if len(log) > MAPPED_LOG_BYTES:
            self._write_log(log, at + size)
        elif log:
            mapped[at + size : at + size + len(log)] = log
        # The padding is already zero. The length is one aligned store: a reader sees all of it or none.
        mapped[at - 4 : at] = _length(end - at)
        self._at = end
        if self.is_quiet:
            self.is_quiet = False
            self.on_first_record()

    def _write_log(self, log: bytes | memoryview, at: int) -> None:
        """Write a long log without the mapping, where each page would cost a page fault."""
        rest = memoryview(log)
        while rest:
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written

    def append_plain(self, packed: bytes) -> None:
        """Append concatenated records of `pack_plain`. A reader sees all of them or none."""
        at = self._at
        if at + len(packed) > self._end:
            self._rotate(len(packed) + LENGTH_SIZE)
            at = 0
        mapped = self._map
        end = at + len(packed)
        mapped[at + 4 : end] = packed[4:]
        mapped[at : at + 4] = packed[:4]
        self._at = end
        if self.is_quiet:
            self.is_quiet = False
            self.on_first_record()

    def limit_log(self, log: bytes | memoryview, org_id: int) -> bytes | memoryview:
        """Return the log block, or a note in its place.

        The note replaces it when the spool is tight, or when the organization's functions print too much.
        """
        if self._is_tight:
            self._check_room(0)
        if len(log) <= MIN_DROPPED_BYTES:
            return log
        if self._is_tight:
            why = "too many records wait to be stored"
        elif not self._charge_output(org_id, len(log)):
            why = f"the functions of this organization print more than {PRINTED_PER_S // MB} MB a second"
        else:
            return log
        text = f"[moorage] What this call printed ({len(log):,} bytes) was dropped: {why}."
        return log_entry(NOTE, self._clock.now(), text.encode() + b"\n")

    def _charge_output(self, org_id: int, size: int) -> bool:
        """Count log bytes of an organization; return False above its rate."""
        now = time.monotonic()
        paid = max(self._printed.pop(org_id, 0.0), now - PRINTED_AT_ONCE / PRINTED_PER_S)
        may = paid <= now
        self._printed[org_id] = paid + size / PRINTED_PER_S if may else paid
        if len(self._printed) > MAX_LOGGING_ORGS:
            del self._printed[next(iter(self._printed))]  # the one without output for the longest time
        return may

    def close(self) -> None:
        """Unlock the file, so that a reader deletes it after reading it."""
        self._map.close()
        os.close(self._fd)

    def _rotate(self, min_bytes: int) -> None:
        """Switch to a new file; the old one is closed only after the new one is open."""
        capacity = max(self._capacity, -(-min_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._check_room(capacity)
        if self._is_full:
            raise OSError(errno.ENOSPC, f"the spool is full: {self._room.most_bytes // MB} MB of records wait")
        opened = self._open(capacity)
        self.close()
        self._fd, self._map = opened
        self._at, self._end = 0, capacity

    def _check_room(self, more: int) -> None:
        """Measure the spool plus `more` bytes; without room at most every second."""
        is_known = self._is_full or (self._is_tight and not more)
        if not any(self._room) or (is_known and time.monotonic() < self._check_room_at):
            return
        used = more
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    used += entry.stat(follow_symlinks=False).st_size
        max_bytes, reserve = self._room
        self._is_full = 0 < max_bytes < used
        self._is_tight = 0 < max_bytes < 2 * used or (reserve > 0 and _free_bytes(self._folder) < reserve)
        self._check_room_at = time.monotonic() + ROOM_CHECK_INTERVAL_S

    def _open(self, capacity: int) -> tuple[int, mmap.mmap]:
        while True:
            name = self._folder / f"{self._clock.now():013d}-{os.getpid()}-{self._count}{SUFFIX}"
            self._count += 1
            try:
                return _open_locked(name, capacity)
            except (FileExistsError, FileNotFoundError):
                # The name exists, or a reader removed the unlocked file as that of a dead writer: try another name.
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _free_bytes(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _open_locked(path: Path, capacity: int) -> tuple[int, mmap.mmap]:
    """Create a file; rename it once locked: readers delete unlocked files."""
    unlocked = path.with_suffix(UNBORN)
    fd = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.posix_fallocate(fd, 0, capacity)
        mapped = mmap.mmap(fd, capacity)
        if path.exists():
            raise FileExistsError(path)
        unlocked.rename(path)
    except BaseException:
        unlocked.unlink(missing_ok=True)
        os.close(fd)
        raise
    return fd, mapped
