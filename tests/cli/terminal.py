"""Runs a command in a pseudo-terminal, as a person does."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WINDOW = (40, 120)  # rows and columns
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Shown:
    """Output of a command: `raw` as the terminal got it, `text` without escape sequences and carriage returns."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        return _ESCAPES.sub("", self.raw).replace("\r", "")


def run_in_terminal(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    keys: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 120,
) -> Shown:
    """Run a command; `keys` are typed when their text appears: `{"API token: ": "secret\\n"}`, `{"built": "\\x03"}`."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, WINDOW)
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**env, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    waiting, output, ends_at = dict(keys or {}), b"", time.monotonic() + timeout_s
    try:
        while time.monotonic() < ends_at:
            ready, _, _ = select.select([ours], [], [], 0.2)
            if ready:
                chunk = _read(ours)
                if not chunk:
                    break
                output += chunk
            elif process.poll() is not None:
                break
            for text in [each for each in waiting if each.encode() in output]:
                os.write(ours, waiting.pop(text).encode())
        return Shown(process.wait(max(ends_at - time.monotonic(), 1)), output.decode("utf-8", "replace"))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def _take_terminal() -> None:
    import fcntl

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run in the background ignores it, and children inherit that
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C reaches the command as SIGINT


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # EIO: the other side is closed
        return b""
