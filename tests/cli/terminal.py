"""Runs a command in a pseudo-terminal, as a person does."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.forked import start

WINDOW = (40, 120)  # rows and columns
TIMEOUT_S = 120
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
    words: Sequence[str], *, env: Mapping[str, str], keys: Mapping[str, str] | None = None, cwd: Path = Path("/")
) -> Shown:
    """Run a command; `keys` are typed when their text appears: `{"API token: ": "secret\\n"}`, `{"built": "\\x03"}`."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, WINDOW)
    waiting, output, ends_at = dict(keys or {}), b"", time.monotonic() + TIMEOUT_S
    env = {**env, "TERM": "xterm-256color"}
    with start(words, (theirs, theirs, theirs), cwd=cwd, env=env, has_terminal=True) as command:
        os.close(theirs)
        try:
            while time.monotonic() < ends_at:
                ready, _, _ = select.select([ours], [], [], 0.2)
                if ready:
                    chunk = _read(ours)
                    if not chunk:
                        break
                    output += chunk
                elif command.has_ended():
                    break
                for text in [each for each in waiting if each.encode() in output]:
                    os.write(ours, waiting.pop(text).encode())
            return Shown(command.wait(max(ends_at - time.monotonic(), 1)), output.decode("utf-8", "replace"))
        finally:
            os.close(ours)


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # EIO: the other side is closed
        return b""
