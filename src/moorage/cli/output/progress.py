"""Progress of work that takes a while: a spinner on a terminal, one line per state elsewhere."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from moorage.cli.output.terminal import is_terminal, paint, plain

T = TypeVar("T")

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.08
POLL_S = 0.5


class Spinner:
    """Shows a text with its running time on standard error until the block ends."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._is_shown = is_terminal(sys.stderr)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._lock = threading.Lock()

    def print(self, line: str) -> None:
        """Print a line of a log above the spinner, on standard error."""
        with self._lock:
            sys.stderr.write(f"\r\x1b[K{line}\n" if self._is_shown else f"{line}\n")
            sys.stderr.flush()

    def update(self, text: str) -> None:
        """Show another text, such as a new state."""
        if text == self._text:
            return
        self._text = text
        if not self._is_shown:
            print(plain(text), file=sys.stderr, flush=True)

    def hint(self, text: str) -> None:
        """Show a percentage or the like on a terminal; a pipe does not get it."""
        if self._is_shown:
            self._text = text

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        if self._is_shown:
            self._thread.start()
        else:
            print(plain(self._text), file=sys.stderr, flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._is_shown:
            self._thread.join()
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _turn(self) -> None:
        for frame in itertools.cycle(FRAMES):
            line = f"{paint(frame, 'cyan', stream=sys.stderr)} {plain(self._text)} {self.seconds:.0f} s"
            with self._lock:
                sys.stderr.write(f"\r\x1b[K{line}")
                sys.stderr.flush()
            if self._ended.wait(FRAME_S):
                return


def wait_for(
    what: str, read: Callable[[], T], state: Callable[[T], str], is_final: Callable[[T], bool], *, limit_s: float = 900
) -> T:
    """Read a resource again and again until its state is final, and show the state."""
    with Spinner(what) as spinner:
        while True:
            item = read()
            spinner.update(f"{what}: {state(item)}")
            if is_final(item) or spinner.seconds > limit_s:
                return item
            time.sleep(POLL_S)
