"""What a Python function prints, kept per call: text, bytes, and the output of native code and child processes.

Part of the Python worker, so it imports nothing outside the standard library and runs on Python 3.9 and later.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import stat
import struct
import threading
import time
from collections.abc import Callable
from os import SEEK_END, lseek
from typing import Any

ENTRY = struct.Struct("<BqI")
CLOSED = ("", "the function closed its standard output", "the function closed its standard error")


def size_text(size: int, *, exact: bool = False) -> str:
    for unit, name in ((1024 * 1024, "MB"), (1024, "KB")):
        if size >= unit:
            text = f"{size / unit:.1f}"
            return f"{text if exact else text[:-2] if text.endswith('.0') else text} {name}"
    return f"{size} bytes"


class Logs:
    """What the function prints, in order, as the entries of a log block; threads may write at any time."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.limit = 10 * 1024 * 1024
        self.late: Callable[[], None] | None = None  # set while no call runs
        self.closed = ""
        self.dirty = self.cut = self.forked = False
        self.journal = -1  # a file that outlives this process: what was printed by a call that never ends is in it
        self._is_journaled = False
        self._last = -1  # where the last entry of the block starts
        self._used = 0
        self._block = bytearray()
        self._pending: tuple[list[str], ...] = ([], [], [])
        self._since = [0, 0, 0]

    def add(self, number: int, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self.guard:
            if self.forked:
                os.write(number, text.encode("utf-8", "backslashreplace"))
            elif text and not self.cut:
                self.dirty = True
                size = len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))
                self._used += size
                if self.journal >= 0 and self.late is None:
                    self._write_journal(number, text)
                if self._used > self.limit:
                    self._add_last(number, text, self.limit - self._used + size)
                else:
                    self._add(number, text)
                if self.late is not None and self._block:
                    self.late()
        return len(text)

    def _write_journal(self, number: int, text: str) -> None:
        data = text[: self.limit].encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            os.write(self.journal, ENTRY.pack(number, time.time_ns() // 1_000_000, len(data)) + data)
            self._is_journaled = True

    def _add(self, number: int, text: str) -> None:
        pending = self._pending[number]
        if not pending:
            self._since[number] = time.time_ns() // 1_000_000
        lines = text.split("\n")
        rest = lines.pop()
        if lines:
            pending.append("\n".join(lines) + "\n")
            self._end_line(number)
        if rest:
            pending.append(rest)

    def _add_last(self, number: int, text: str, room: int) -> None:
        self._add(number, text.encode("utf-8", "backslashreplace")[:room].decode("utf-8", "ignore"))
        self._end_line(1)
        self._end_line(2)
        self._add(2, f"the logs were cut: more than {size_text(self.limit)}\n")
        self.cut = True

    def _end_line(self, number: int) -> None:
        pending = self._pending[number]
        if pending:
            line = "".join(pending).encode("utf-8", "backslashreplace")
            pending.clear()
            since, last = self._since[number], self._last
            if last >= 0 and ENTRY.unpack_from(self._block, last)[:2] == (number, since):
                # Lines of the same moment share an entry: a million short ones must not weigh more than their text.
                ENTRY.pack_into(self._block, last, number, since, len(self._block) - last - ENTRY.size + len(line))
            else:
                self._last = len(self._block)
                self._block += ENTRY.pack(number, since, len(line))
            self._block += line

    def take(self) -> bytes:
        """Return and forget what was printed."""
        with self.guard:
            self._end_line(1)
            self._end_line(2)
            self.dirty = False
            if self._is_journaled:
                self._is_journaled = False
                os.ftruncate(self.journal, 0)
            return self.take_lines()

    def take_lines(self) -> bytes:
        """Return and forget the lines that have their end."""
        block = bytes(self._block)
        self._block = bytearray()
        self._last = -1
        return block

    def restart(self) -> None:
        self._used = 0
        self.cut = False


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of the function."""

    encoding = "utf-8"
    errors = "backslashreplace"
    mode = "w"
    line_buffering = True

    def __init__(self, logs: Logs, number: int) -> None:
        self._logs = logs
        self._number = number
        self.name = ("", "<stdout>", "<stderr>")[number]
        self.buffer = ByteStream(self)

    def write(self, text: str) -> int:
        return self._logs.add(self._number, text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def reconfigure(self, **_: Any) -> None:
        """Accept what callers of a real text stream ask for: it is always UTF-8 and never holds lines back."""

    def close(self) -> None:
        self._logs.closed = self._logs.closed or CLOSED[self._number]


class ByteStream(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that become text as they come."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: Any) -> int:
        self._stream.write(self._decoder.decode(bytes(data)))
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()


class NativeOutput:
    """What reached descriptors 1 and 2 past Python: the output of child processes and of native code."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._inodes = [0, 0, 0]
        for number in numbers:
            with contextlib.suppress(OSError):
                about = os.fstat(number)
                self._inodes[number] = about.st_ino if stat.S_ISREG(about.st_mode) else 0
        self.is_kept = all(self._inodes[1:])

    def has_more(self) -> bool:
        if not self.is_kept:
            return False
        try:
            return lseek(1, 0, SEEK_END) != 0 or lseek(2, 0, SEEK_END) != 0
        except OSError:
            return True

    def move(self, logs: Logs) -> None:
        """Move what is new into the logs; a descriptor that is closed, or another file by now, is noted there."""
        for number in (1, 2):
            try:
                size = lseek(number, 0, SEEK_END)
                if size and os.fstat(number).st_ino == self._inodes[number]:
                    logs.add(number, os.pread(number, min(size, logs.limit + 1), 0).decode("utf-8", "replace"))
                    os.ftruncate(number, 0)
                elif size:
                    logs.closed = logs.closed or CLOSED[number]
            except OSError:
                logs.closed = logs.closed or CLOSED[number]
