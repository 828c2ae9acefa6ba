"""Numbered steps with a line of progress at least every two seconds."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LINE_INTERVAL_S = 1.5
TERMINAL_INTERVAL_S = 0.5  # a terminal shows progress in one line, which is rewritten
KEPT_LINES = 400
_NEWS = re.compile(r"^ *(?:Downloading|Building|Prepared|fetching|preparing)\b.*|.* is ready$")


@dataclass
class Steps:
    """Prints the steps of one command, such as `setup: [2/3] installing 57 packages: 143 MB written, 6 s`."""

    total: int
    number: int = 0
    started_at: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.number += 1
        step = Step(f"setup: [{self.number}/{self.total}] {title}")
        step.begin()
        try:
            yield step
        except BaseException:
            step.end("stopped")
            raise
        step.end("done")

    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_at


class Step:
    def __init__(self, title: str) -> None:
        self._title = title
        self._started_at = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._written: dict[int, int] = {}  # bytes, by process; also of those that have ended
        self._running: set[int] = set()
        self._detail = ""
        self._is_terminal = sys.stdout.isatty()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def begin(self) -> None:
        self._print(self._title)
        self._thread.start()

    def end(self, outcome: str) -> None:
        self._ended.set()
        self._thread.join()
        self._detail = ""
        self._print(f"{self._line()}: {outcome}", is_last=True)

    def say(self, detail: str) -> None:
        """Set the end of the line of progress, such as the name of the file that arrives."""
        self._detail = detail

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None) -> Finished:
        """Run a program to its end; its bytes written are part of the progress."""
        process = subprocess.Popen(
            argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
        lines: list[str] = []
        with self._lock:
            self._running.add(process.pid)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                del lines[:-KEPT_LINES]
                if _NEWS.match(line):
                    self.say(line.strip().partition(": ")[0])
        except BaseException:
            process.kill()
            raise
        finally:
            code = process.wait()
            with self._lock:
                self._running.discard(process.pid)
        return Finished(code, "\n".join(lines))

    def _tick(self) -> None:
        while not self._ended.wait(TERMINAL_INTERVAL_S if self._is_terminal else LINE_INTERVAL_S):
            self._print(self._line())

    def _line(self) -> str:
        with self._lock:
            for pid in self._running:
                self._written[pid] = max(_written_by(pid), self._written.get(pid, 0))
            written = sum(self._written.values())
        parts = [f"{written / 1e6:.0f} MB written"] if written >= 1e6 else []
        parts += [f"{time.monotonic() - self._started_at:.0f} s"]
        parts += [self._detail] if self._detail else []
        return f"{self._title}: {', '.join(parts)}"

    def _print(self, line: str, *, is_last: bool = False) -> None:
        if not self._is_terminal:
            print(line, flush=True)
            return
        width = os.get_terminal_size(sys.stdout.fileno()).columns
        print(f"\r{line[: max(width - 1, 20)]}\x1b[K", end="\n" if is_last else "", flush=True)


@dataclass(frozen=True)
class Finished:
    code: int
    output: str


def _written_by(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("wchar:"):
                return int(line.partition(":")[2])
    return 0
