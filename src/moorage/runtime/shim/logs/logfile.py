"""The log of one replica: what an app prints, line by line, in files that the control plane reads.

A line of a file is `<ms> <o|e|s> <key> <text>`. Files are named `<first ms>-<key>.log`; their lines are in the order of
time, and whoever reads one may rely on that. Nothing an app prints, and nothing the disk does, ends the shim: what
cannot be kept is counted, and the log says how much it was and why.
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
FILE_MS = 6 * 3_600_000  # A quiet app fills no file for months, and its old lines are to go all the same.
KEPT_MS = 7 * 24 * 3_600_000
KEPT_BYTES = 100 * 10**6
PARTS = 10  # the files of a log that is kept up to a size of its own: so much less of it may be there after a cut
PIECE = 64 * 2**10
UNFINISHED_MS = 900  # A prompt without an end of line is shown after about a second.
RETRY_MS = 1_000
SMALL_STEP_MS = 5_000  # A clock that is set back by less just seems to stand still.
FLOOD_BYTES_S = 5 * 10**6
BURST_BYTES = 4 * FLOOD_BYTES_S  # What prints much for a few seconds, such as a start, loses nothing.
FLOODED = f"the app prints more than {FLOOD_BYTES_S // 10**6} MB a second"

_CONTROLS = bytes({*range(32), 127} - {*b"\t\n"})
# Colours stay; whatever else a terminal would obey goes, with all that belongs to it.
_ESCAPES = re.compile(
    rb"\x1b(?!\[[0-9;:]*m)(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))?|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_WIDE_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")


def clean(data: bytes) -> bytes:
    """Return whole lines as they may be shown: UTF-8, without control characters other than tabs and colours."""
    if b"\r" in data:
        # A progress bar overwrites its line; what stood there last is what a reader would have seen.
        data = b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))
    if not data.isascii():
        data = _WIDE_CONTROLS.sub(b"", data.decode("utf-8", "replace").encode())
    # To delete and compare is ten times as quick as the pattern, and most lines have nothing to take out.
    return data if len(data.translate(None, _CONTROLS)) == len(data) else _ESCAPES.sub(b"", data)


def cut_lines(data: bytes) -> bytes:
    """Shorten the lines that are too long."""
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
    """Remove the files that were begun too long ago, and the oldest while all are too large; return the bytes freed.

    Without `now_ms` no file is too old.
    """
    with os.scandir(folder) as entries:
        found = sorted((each for each in entries if NAME.fullmatch(each.name)), key=lambda each: each.name)
    sizes = {}
    for each in found:
        with contextlib.suppress(FileNotFoundError):
            sizes[each.path] = (int(each.name[:13]), each.stat(follow_symlinks=False).st_size)
    total = room + sum(size for _, size in sizes.values())
    freed = 0
    for path, (first, size) in sizes.items():
        if total - freed > kept_bytes or (now_ms is not None and first + kept_ms < now_ms):
            freed += size
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return freed


def trim_each(folder: Path, now_ms: int) -> None:
    """Trim the folders of logs below a folder. A log of which nothing is written any more is trimmed here alone."""
    with contextlib.suppress(FileNotFoundError):
        for each in sorted(folder.iterdir()):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                trim(each, now_ms)


class _Printed:
    """What one stream has printed: puts lines together, and says when it is too much."""

    def __init__(self, letter: bytes, longest: int) -> None:
        self.letter = letter
        self.rest = b""
        self.rest_ms = 0
        self.most = LINE_BYTES + longest
        self.is_skipping = False  # the rest of a line that was cut
        self.is_flooding = False
        self.room = float(BURST_BYTES)
        self.room_ms = 0

    def take(self, data: bytes, now_ms: int) -> bytes:
        """Add what was printed, and return the lines that have ended with it."""
        if self.is_skipping:
            _, ended, data = data.partition(b"\n")
            if not ended:
                return b""
            self.is_skipping = False
        if not self.rest:
            self.rest_ms = now_ms
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        self.rest = data[end:]
        if end:
            self.rest_ms = now_ms
        if len(self.rest) > self.most and b"\r" in self.rest[:-1]:
            self.rest = self.rest[self.rest.rindex(b"\r", 0, -1) + 1 :]
        return data[:end]

    def fits(self, size: int, now_ms: int) -> bool:
        """Tell whether so much more may be written. After a flood, it may when a second's worth is free again."""
        self.room = min(self.room + FLOOD_BYTES_S * max(0, now_ms - self.room_ms) / 1000, BURST_BYTES)
        self.room_ms = now_ms
        self.is_flooding = self.room < (FLOOD_BYTES_S if self.is_flooding else 0)
        if not self.is_flooding:
            self.room -= size
        return not self.is_flooding


class _Files:
    """The files of one replica: one that grows, then the next."""

    def __init__(self, folder: Path, key: str, kept_bytes: int = 0) -> None:
        self._folder = folder
        self._key = key
        self._kept_bytes = kept_bytes
        self._file_bytes = min(kept_bytes // PARTS, FILE_BYTES) if kept_bytes else FILE_BYTES
        self._own: list[tuple[Path, int, int]] = []  # of a log with a size of its own: file, first moment, size
        self._cut_bytes = 0
        self._fd = -1
        self._first_ms = 0
        self._size = 0
        self._retry_ms = 0
        self.last_ms = 0
        self.why = ""

    def ready(self, size: int, now_ms: int) -> int | None:
        """See to it that there is a file with room, and return the time of the next line; None where there is none."""
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
        """Write lines, and return how many bytes of them are stored: always whole lines."""
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
        # Set back, the clock begins a file of its own; and a file can be trimmed away while it is still written to.
        return is_full or now_ms < self.last_ms or os.fstat(self._fd).st_nlink == 0

    def _begin(self, now_ms: int) -> int:
        self.close()
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o750)
        if not self._kept_bytes:
            # By size only: a clock that was set forward must not remove young files. Retention jobs trim by age.
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
        """Let go of the oldest files of a log that is to stay within its own size, and say so where they stood."""
        if self._own:
            self._own[-1] = (*self._own[-1][:2], self._size)
        self._own.append((new, now_ms, 0))
        before = self._cut_bytes
        while sum(size for _, _, size in self._own) + self._file_bytes > self._kept_bytes and len(self._own) > 1:
            path, _, size = self._own.pop(0)
            path.unlink(missing_ok=True)
            self._cut_bytes += size
        if self._cut_bytes > before:
            gone, kept = self._cut_bytes / 10**6, self._kept_bytes / 10**6
            text = (
                f"the log is cut here: {gone:.1f} MB before this are gone, since only the newest {kept:g} MB are kept"
            )
            self._mark(b"%013d s %s %s\n" % (self._own[0][1], self._key.encode(), text.encode()))

    def _mark(self, line: bytes) -> None:
        """Write a line that stands before all others: in a file that by its name is the first."""
        first = self._folder / f"{0:013d}-{self._key}.log"
        new = first.with_suffix(".new")
        new.write_bytes(line)
        new.chmod(0o640)
        new.rename(first)

    def _fail(self, error: OSError, now_ms: int) -> None:
        self.why = error.strerror or str(error)
        self._retry_ms = now_ms + RETRY_MS


class LogFile:
    """Takes what a replica prints, and what the platform says about it; never raises for the disk.

    `flush` is to be called every second or so. Values of secrets are masked, wherever a piece ends. With `kept_bytes`
    the log has a folder of its own, in which only the newest so many bytes are kept.
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
        # Control characters are taken out before secrets are looked for: they would hide them.
        cleaned = [clean(value.encode()).decode() for value in values]
        self._mask = Masker([*values, *cleaned])
        self._files = _Files(folder, key, kept_bytes)
        self._now = now
        self._key = key.encode()
        self._printed = {name: _Printed(letter, self._mask.longest) for name, letter in LETTERS.items()}
        self._lost: dict[str, int] = {}
        self._is_closed = False

    def write(self, stream: Stream, data: bytes) -> None:
        """Take what was printed, in any pieces. What the platform says is always whole lines."""
        if self._is_closed:
            return
        if stream == "system" and not data.endswith(b"\n"):
            data += b"\n"
        for start in range(0, len(data), PIECE):
            self._take(self._printed[stream], data[start : start + PIECE])

    def flush(self) -> None:
        """Write lines that have not ended for a while, and how many were lost."""
        now_ms = self._now_ms()
        for printed in self._printed.values():
            if printed.rest and now_ms - printed.rest_ms >= UNFINISHED_MS:
                self._show_rest(printed)
        if self._lost and not any(each.is_flooding and not each.fits(0, now_ms) for each in self._printed.values()):
            self._add(b"s", b"")

    def close(self) -> None:
        """Write all that is left. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        for printed in self._printed.values():
            if printed.rest:
                self._add(printed.letter, self._safe(clean(printed.rest)) + b"\n")
        if self._lost:
            self._add(b"s", b"")
        self._files.close()

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _take(self, printed: _Printed, data: bytes) -> None:
        now_ms = self._now_ms()
        whole = printed.take(data, now_ms)
        if whole:
            lines = whole.count(b"\n")
            # Empty lines take room too: each is written with its time and its replica.
            if printed.letter == b"s" or printed.fits(len(whole) + lines * len(self._head(b"o", now_ms)), now_ms):
                self._add(printed.letter, self._mask.lines(clean(whole)))
            else:
                self._lose(lines, FLOODED)
        if len(printed.rest) > printed.most:
            self._cut_rest(printed, now_ms)

    def _cut_rest(self, printed: _Printed, now_ms: int) -> None:
        """Write the beginning of a line that is too long already, and pass over the rest of it."""
        text, printed.rest, printed.is_skipping = printed.rest, b"", True
        if printed.fits(LINE_BYTES, now_ms):
            self._add(printed.letter, _cut(self._safe(clean(text))) + b"\n")
        else:
            self._lose(1, FLOODED)

    def _show_rest(self, printed: _Printed) -> None:
        """Write what there is of a line, but for an end that may be the beginning of a secret or of a character."""
        text = printed.rest
        whole = len(text) - _unfinished(text)
        shown = clean(text[:whole])
        end = self._mask.safe_end(shown)
        printed.rest = shown[end:] + text[whole:]
        if end:
            self._add(printed.letter, self._mask.lines(shown[:end]) + b"\n")

    def _safe(self, text: bytes) -> bytes:
        """Mask a line that breaks off, where it may break off within a secret."""
        end = self._mask.safe_end(text)
        begun = text[end:]
        return self._mask.lines(text[:end]) + (MASK.encode() if len(begun) >= SHORTEST_SECRET else begun)

    def _add(self, letter: bytes, lines: bytes) -> None:
        """Write lines that are fit to be kept; before them, what has been lost."""
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
    """Return how many bytes at the end of a text are the beginning of a character."""
    for back, byte in enumerate(reversed(text[-3:]), start=1):
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def _notice(lost: int, why: str) -> str:
    return f"{lost} line{' was' if lost == 1 else 's were'} lost: {why}\n"
