"""Captures the output of a Python function per call, also of child processes.

Part of the Python worker: it imports only the standard library and runs on Python 3.9 and later.
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
    """Output of the function as entries of a log block, in order. Thread-safe."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.limit = 10 * 1024 * 1024
        self.late: Callable[[], None] | None = None  # sends output while no call runs; None during a call
        self.closed = ""
        self.dirty = self.cut = self.forked = False
        self.journal = -1  # descriptor of a file that outlives this process, for the logs of a killed call
        self._is_journaled = False
        self._last = -1  # offset of the last entry in the block
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
                # Lines of the same millisecond share an entry: a million short lines need no million heads.
                ENTRY.pack_into(self._block, last, number, since, len(self._block) - last - ENTRY.size + len(line))
            else:
                self._last = len(self._block)
                self._block += ENTRY.pack(number, since, len(line))
            self._block += line

    def take(self) -> bytes:
        """Return the block, unfinished lines included, and start a new one."""
        with self.guard:
            self._end_line(1)
            self._end_line(2)
            self.dirty = False
            if self._is_journaled:
                self._is_journaled = False
                os.ftruncate(self.journal, 0)
            return self.take_lines()

    def take_lines(self) -> bytes:
        """Return the block of complete lines and start a new one."""
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
        """Ignore the options of a text stream: this one is always UTF-8 and unbuffered."""

    def close(self) -> None:
        self._logs.closed = self._logs.closed or CLOSED[self._number]


class ByteStream(io.RawIOBase):
    """`sys.stdout.buffer`: decodes bytes and writes them to the text stream."""

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
    """Output of child processes and native code on descriptors 1 and 2."""

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
        """Move output into the logs; note a closed or replaced descriptor there."""
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
