"""Output of `functions dev`: requests, logs and errors as they come."""

from __future__ import annotations

import time
from collections.abc import Iterable

from moorage.cli.output.terminal import log_text, note, paint, plain, say
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import Entry

INDENT = "  "
MAX_REMEMBERED = 1000  # calls whose first lines were printed before their end


class Screen:
    """Prints the lines of calls. Implements the spool of the pool: a record is printed instead of stored."""

    def __init__(self) -> None:
        self._printed: dict[str, dict[int, int]] = {}  # activation -> stream -> characters
        self._last_line = ""  # An error message that is also the last line of the logs is not repeated.

    # Spool.

    def append(self, record: bytes, log: bytes | memoryview = b"") -> None:
        record += log
        call = spool.decode(record, 0, len(record))
        if call.kind == spool.START:
            return
        self._print_rest(call.activation, spool.log_entries(call.log))
        if call.error is not None and call.error != self._last_line:
            say(f"{INDENT}{paint('error', 'red', 'bold')} {paint(plain(call.error), 'red')}")

    def append_plain(self, packed: bytes) -> None:
        """Ignore calls without logs and errors: their request is printed."""

    def limit_log(self, log: bytes | memoryview, org_id: int) -> bytes | memoryview:
        return log

    # Lines.

    def lines(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._line(entry.stream, entry.text)

    def print_running(self, activation: str, texts: dict[int, str]) -> None:
        """Print the complete lines of a running call; `texts` is its whole output so far, by stream."""
        printed = self._printed.setdefault(activation, {})
        for stream, text in texts.items():
            begin, end = printed.get(stream, 0), text.rfind("\n") + 1
            for line in text[begin:end].splitlines():
                self._line(stream, line)
            printed[stream] = max(begin, end)
        while len(self._printed) > MAX_REMEMBERED:
            del self._printed[next(iter(self._printed))]

    def _print_rest(self, activation: str, entries: Iterable[Entry]) -> None:
        """Print the lines of an ended call that were not printed while it ran."""
        printed = self._printed.pop(activation, {})
        for entry in entries:
            skipped = min(printed.get(entry.stream, 0), len(entry.text))
            if skipped:
                printed[entry.stream] -= skipped
            if rest := entry.text[skipped:]:
                self._line(entry.stream, rest)

    def _line(self, stream: int, text: str) -> None:
        line = log_text(text.rstrip("\n"))
        self._last_line = line
        say(f"{INDENT}{line}" if stream == spool.STDOUT else f"{INDENT}{paint(line, 'yellow')}")

    def request(self, method: bytes, target: bytes, status: int, seconds: float) -> None:
        colour = "green" if status < 400 else "yellow" if status < 500 else "red"
        words = [
            paint(time.strftime("%H:%M:%S"), "dim"),
            f"{plain(method.decode('latin-1'))} {plain(target.decode('utf-8', 'replace'))}",
            paint(str(status), colour, "bold"),
            paint(f"{seconds * 1000:.1f} ms", "dim"),
        ]
        say(" ".join(words))
        self._last_line = ""

    def loaded(self, what: str, entries: Iterable[Entry]) -> None:
        note(what, "dim")
        self.lines(entries)

    def failed(self, message: str, entries: Iterable[Entry]) -> None:
        """Print an error in the code: its output, which has the stack, and its message."""
        note("the code cannot be loaded:", "red", "bold")
        self.lines(entries)
        if message != self._last_line:
            note(f"{INDENT}{plain(message)}", "red")
