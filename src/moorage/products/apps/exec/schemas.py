"""What a one-off command is asked with, and what comes back of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.core.http.models import Input, Output
from moorage.core.kit.clock import HOUR_MS

LONGEST_COMMAND = 2_000
LONGEST_S = HOUR_MS // 1000
USUAL_S = 300


class RunCommandInput(Input):
    command: str = Field(min_length=1, max_length=LONGEST_COMMAND)
    timeout_seconds: int = Field(default=USUAL_S, ge=1, le=LONGEST_S)


class CommandResult(Output, frozen=True):
    """How a command ended, and the newest megabyte of each of its streams."""

    exit_code: int
    reason: str | None  # why the platform ended it, where it did
    stdout: str
    stderr: str
    truncated: bool  # there was more of one of them


class CommandOutput(Output, frozen=True):
    """One event `output`."""

    stream: Literal["stdout", "stderr"]
    text: str


class CommandExit(Output, frozen=True):
    """The event `exit`, which is the last."""

    exit_code: int
    reason: str | None
