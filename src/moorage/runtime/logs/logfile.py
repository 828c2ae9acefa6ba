"""Log files of one replica, which the control process reads.

A line of a file is `<ms> <o|e|s> <key> <text>`. Files are named `<first ms>-<key>.log`; the lines of a file are always
ordered by time. No output of an app and no disk error ends the shim: lines that cannot be stored are counted, and the
log states how many were lost and why.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from moorage.core.kit.masking import MASK, SHORTEST_SECRET, Masker

Stream = Literal["stdout", "stderr", "system"]
LETTERS: dict[str, bytes] = {"stdout": b"o", "stderr": b"e", "system": b"s"}
NAME = re.compile(r"[0-9]{13}-[A-Za-z0-9_-]+\.log")

LINE_BYTES = 16 * 2**10
CUT = b" [cut]"
FILE_BYTES = 4 * 2**20
FILE_MS = 6 * 3_600_000  # A quiet app would fill a file only in months, but its old lines have to expire in time.
KEPT_MS = 7 * 24 * 3_600_000
KEPT_BYTES = 100 * 10**6
FILES_PER_OWN_LOG = 10  # for a log with its own size limit: removing the oldest file removes a tenth of it
PIECE = 64 * 2**10
UNFINISHED_MS = 900  # A prompt without a line end is written after about a second.
RETRY_MS = 1_000
SMALL_STEP_MS = 5_000  # After a smaller step back of the clock, lines get the last time again.
FLOOD_BYTES_S = 5 * 10**6
BURST_BYTES = 4 * FLOOD_BYTES_S  # A burst of a few seconds, such as at a start, loses no lines.
FLOODED = f"the app prints more than {FLOOD_BYTES_S // 10**6} MB a second"

_CONTROLS = bytes({*range(32), 127} - {*b"\t\n"})
# Colours stay; all other escape sequences are removed with their parameters.
_ESCAPES = re.compile(
    rb"\x1b(?!\[[0-9;:]*m)(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))?|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_WIDE_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")


def clean(data: bytes) -> bytes:
    """Make lines safe to show: UTF-8, no control characters but tabs and colours."""
    if b"\r" in data:
        # A progress bar overwrites its line: keep the text after the last carriage return.
        data = b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))
    if not data.isascii():
        data = _WIDE_CONTROLS.sub(b"", data.decode("utf-8", "replace").encode())
    # `translate` is ten times as fast as the pattern, and most lines have no control characters.
    return data if len(data.translate(None, _CONTROLS)) == len(data) else _ESCAPES.sub(b"", data)


def cut_lines(data: bytes) -> bytes:
    """Cut lines to LINE_BYTES."""
    if len(data) <= LINE_BYTES:
        return data
    lines = data.split(b"\n")
    if max(map(len, lines)) <= LINE_BYTES:
        return data
    return b"\n".join(line if len(line) <= LINE_BYTES else _cut(line) for line in lines)


def _cut(line: bytes) -> bytes:
    return line[:LINE_BYTES].decode("utf-8", "ignore").encode() + CUT


def trim(
    folder: Path,
    now_ms: int | None,
    *,
    room: int = 0,
    kept_bytes: int = KEPT_BYTES,
    kept_ms: int = FILE_MS + KEPT_MS,
) -> int:
    """Remove old log files, then the oldest down to `kept_bytes`; return bytes freed.

    A file is old if it was begun more than `kept_ms` ago; without `now_ms` none is.
    """
    with os.scandir(folder) as entries:
        files = sorted((file for file in entries if NAME.fullmatch(file.name)), key=lambda file: file.name)
    sizes = {}
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            sizes[file.path] = (int(file.name[:13]), file.stat(follow_symlinks=False).st_size)
    total = room + sum(size for _, size in sizes.values())
    freed = 0
    for path, (first, size) in sizes.items():
        if total - freed > kept_bytes or (now_ms is not None and first + kept_ms < now_ms):
            freed += size
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return freed


def trim_each(folder: Path, now_ms: int) -> None:
    """Trim the log folders below a folder, also those without a writer."""
    with contextlib.suppress(FileNotFoundError):
        for log_folder in sorted(folder.iterdir()):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                trim(log_folder, now_ms)


class _StreamBuffer:
    """Assembles the lines of one stream, and applies the flood limit to it."""

    def __init__(self, letter: bytes, longest_secret: int) -> None:
        self.letter = letter
        self.rest = b""  # the unfinished line
        self.rest_ms = 0
        self.max_rest = LINE_BYTES + longest_secret
        self.is_skipping = False  # the rest of a line that was cut
        self.is_flooding = False
        self.room = float(BURST_BYTES)
        self.room_ms = 0

    def take(self, data: bytes, now_ms: int) -> bytes:
        """Add output and return the lines that it completes."""
        if self.is_skipping:
            _, line_end, data = data.partition(b"\n")
            if not line_end:
                return b""
            self.is_skipping = False
        if not self.rest:
            self.rest_ms = now_ms
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        self.rest = data[end:]
        if end:
            self.rest_ms = now_ms
        if len(self.rest) > self.max_rest and b"\r" in self.rest[:-1]:
            self.rest = self.rest[self.rest.rindex(b"\r", 0, -1) + 1 :]
        return data[:end]

    def fits(self, size: int, now_ms: int) -> bool:
        """Token bucket: whether `size` bytes fit. A flood ends with one second's worth."""
        self.room = min(self.room + FLOOD_BYTES_S * max(0, now_ms - self.room_ms) / 1000, BURST_BYTES)
        self.room_ms = now_ms
        self.is_flooding = self.room < (FLOOD_BYTES_S if self.is_flooding else 0)
        if not self.is_flooding:
            self.room -= size
        return not self.is_flooding


class _Files:
    """Writes the log files of one replica; begins a new one when it is full or old."""

    def __init__(self, folder: Path, key: str, kept_bytes: int = 0) -> None:
        self._folder = folder
        self._key = key
        self._kept_bytes = kept_bytes
        self._file_bytes = min(kept_bytes // FILES_PER_OWN_LOG, FILE_BYTES) if kept_bytes else FILE_BYTES
        self._own: list[tuple[Path, int, int]] = []  # for a log with its own size limit: path, first ms, size
        self._cut_bytes = 0
        self._fd = -1
        self._first_ms = 0
        self._size = 0
        self._retry_ms = 0
        self.last_ms = 0
        self.why = ""

    def ready(self, size: int, now_ms: int) -> int | None:
        """Ensure a file with room; return the next line's time, None on a disk error."""
        if self.why and 0 <= self._retry_ms - now_ms <= RETRY_MS:
            return None
        if 0 < self.last_ms - now_ms < SMALL_STEP_MS:
            now_ms = self.last_ms
        try:
            if self._fd < 0 or self._is_over(size, now_ms):
                now_ms = self._begin(now_ms)
        except OSError as error:
            self._fail(error, now_ms)
            return None
        self.last_ms = now_ms
        return now_ms

    def put(self, data: bytes) -> int:
        """Write lines and return the number of bytes stored, which are always whole lines."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError as error:
            self._fail(error, self.last_ms)
            done = data.rfind(b"\n", 0, done) + 1
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size + done)
        else:
            self.why = ""
        self._size += done
        return done

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _is_over(self, size: int, now_ms: int) -> bool:
        is_full = self._size + size > self._file_bytes or now_ms - self._first_ms > FILE_MS
        # A clock that was set back needs a new file, to keep lines ordered; and trimming may have unlinked the file.
        return is_full or now_ms < self.last_ms or os.fstat(self._fd).st_nlink == 0

    def _begin(self, now_ms: int) -> int:
        self.close()
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o750)
        if not self._kept_bytes:
            # By size only: after a clock jump forward, trimming by age would remove recent files. Retention jobs do it.
            trim(self._folder, None, room=FILE_BYTES)
        while True:
            path = self._folder / f"{now_ms:013d}-{self._key}.log"
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
                break
            except FileExistsError:
                now_ms += 1
        os.fchmod(self._fd, 0o640)
        if self._kept_bytes:
            self._cut(path, now_ms)
        self._first_ms, self._size = now_ms, 0
        return now_ms

    def _cut(self, new: Path, now_ms: int) -> None:
        """Remove the oldest files of a log with its own limit, and leave a notice."""
        if self._own:
            self._own[-1] = (*self._own[-1][:2], self._size)
        self._own.append((new, now_ms, 0))
        before = self._cut_bytes
        while sum(size for _, _, size in self._own) + self._file_bytes > self._kept_bytes and len(self._own) > 1:
            path, _, size = self._own.pop(0)
            path.unlink(missing_ok=True)
            self._cut_bytes += size
        if self._cut_bytes > before:
            cut, kept = self._cut_bytes / 10**6, self._kept_bytes / 10**6
            text = f"the log is cut here: {cut:.1f} MB before this are gone, since only the newest {kept:g} MB are kept"
            self._write_notice(b"%013d s %s %s\n" % (self._own[0][1], self._key.encode(), text.encode()))

    def _write_notice(self, line: bytes) -> None:
        """Write a line before all others: in a file whose name sorts first."""
        first = self._folder / f"{0:013d}-{self._key}.log"
        new = first.with_suffix(".new")
        new.write_bytes(line)
        new.chmod(0o640)
        new.rename(first)

    def _fail(self, error: OSError, now_ms: int) -> None:
        self.why = error.strerror or str(error)
        self._retry_ms = now_ms + RETRY_MS


class LogFile:
    """Stores output and messages of the platform; never raises on disk errors.

    Call `flush` about every second. Secret values are masked, even if split over several writes. With `kept_bytes`
    the log has its own folder, and only its newest `kept_bytes` are kept.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        hidden: Iterable[str],
        now: Callable[[], float] = time.time,
        *,
        kept_bytes: int = 0,
    ) -> None:
        values = list(hidden)
        # Control characters are removed before masking, because they could hide a secret: mask cleaned values too.
        cleaned = [clean(value.encode()).decode() for value in values]
        self._mask = Masker([*values, *cleaned])
        self._files = _Files(folder, key, kept_bytes)
        self._now = now
        self._key = key.encode()
        self._buffers = {name: _StreamBuffer(letter, self._mask.longest) for name, letter in LETTERS.items()}
        self._lost: dict[str, int] = {}
        self._is_closed = False

    def write(self, stream: Stream, data: bytes) -> None:
        """Store output, in pieces of any size; a "system" message is always a whole line."""
        if self._is_closed:
            return
        if stream == "system" and not data.endswith(b"\n"):
            data += b"\n"
        for start in range(0, len(data), PIECE):
            self._write_piece(self._buffers[stream], data[start : start + PIECE])

    def flush(self) -> None:
        """Write unfinished lines after UNFINISHED_MS, and the number of lost lines."""
        now_ms = self._now_ms()
        for buffer in self._buffers.values():
            if buffer.rest and now_ms - buffer.rest_ms >= UNFINISHED_MS:
                self._write_rest(buffer)
        if self._lost and not any(each.is_flooding and not each.fits(0, now_ms) for each in self._buffers.values()):
            self._add(b"s", b"")

    def close(self) -> None:
        """Write everything that is buffered. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        for buffer in self._buffers.values():
            if buffer.rest:
                self._add(buffer.letter, self._mask_cut_line(clean(buffer.rest)) + b"\n")
        if self._lost:
            self._add(b"s", b"")
        self._files.close()

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _write_piece(self, buffer: _StreamBuffer, data: bytes) -> None:
        now_ms = self._now_ms()
        whole = buffer.take(data, now_ms)
        if whole:
            lines = whole.count(b"\n")
            # The prefix of each line counts too: empty lines take room on disk.
            if buffer.letter == b"s" or buffer.fits(len(whole) + lines * len(self._head(b"o", now_ms)), now_ms):
                self._add(buffer.letter, self._mask.lines(clean(whole)))
            else:
                self._lose(lines, FLOODED)
        if len(buffer.rest) > buffer.max_rest:
            self._cut_rest(buffer, now_ms)

    def _cut_rest(self, buffer: _StreamBuffer, now_ms: int) -> None:
        """Write the beginning of a line that is too long, and skip its rest."""
        text, buffer.rest, buffer.is_skipping = buffer.rest, b"", True
        if buffer.fits(LINE_BYTES, now_ms):
            self._add(buffer.letter, _cut(self._mask_cut_line(clean(text))) + b"\n")
        else:
            self._lose(1, FLOODED)

    def _write_rest(self, buffer: _StreamBuffer) -> None:
        """Write an unfinished line, but no beginning of a secret or UTF-8 character."""
        text = buffer.rest
        whole = len(text) - _unfinished(text)
        cleaned = clean(text[:whole])
        end = self._mask.safe_end(cleaned)
        buffer.rest = cleaned[end:] + text[whole:]
        if end:
            self._add(buffer.letter, self._mask.lines(cleaned[:end]) + b"\n")

    def _mask_cut_line(self, text: bytes) -> bytes:
        """Mask a line that may end within a secret."""
        end = self._mask.safe_end(text)
        tail = text[end:]
        return self._mask.lines(text[:end]) + (MASK.encode() if len(tail) >= SHORTEST_SECRET else tail)

    def _add(self, letter: bytes, lines: bytes) -> None:
        """Write cleaned and masked lines, after a notice about lost ones."""
        lines = cut_lines(lines)
        count = lines.count(b"\n")
        now_ms = self._files.ready(len(lines) + count * len(self._head(letter, 0)), self._now_ms())
        if now_ms is None:
            self._lose(count, self._files.why)
            return
        notices = "".join(_notice(lost, why) for why, lost in self._lost.items()).encode()
        data = self._with_heads(b"s", notices, now_ms) + self._with_heads(letter, lines, now_ms)
        done = self._files.put(data)
        if done:
            self._lost.clear()
        if done < len(data):
            self._lose(min(data.count(b"\n", done), count), self._files.why)

    def _head(self, letter: bytes, now_ms: int) -> bytes:
        return b"%013d %s %s " % (now_ms, letter, self._key)

    def _with_heads(self, letter: bytes, lines: bytes, now_ms: int) -> bytes:
        if not lines:
            return b""
        head = self._head(letter, now_ms)
        return head + lines[:-1].replace(b"\n", b"\n" + head) + b"\n"

    def _lose(self, lines: int, why: str) -> None:
        if lines:
            self._lost[why] = self._lost.get(why, 0) + lines


def _unfinished(text: bytes) -> int:
    """Return the length of an incomplete UTF-8 character at the end of a text."""
    for back, byte in enumerate(reversed(text[-3:]), start=1):
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def _notice(lost: int, why: str) -> str:
    return f"{lost} line{' was' if lost == 1 else 's were'} lost: {why}\n"
