"""Request and response bodies of one-off commands."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.core.http.models import Input, Output
from moorage.core.kit.clock import HOUR_MS

MAX_COMMAND_CHARS = 2_000
MAX_TIMEOUT_S = HOUR_MS // 1000
DEFAULT_TIMEOUT_S = 300


class RunCommandInput(Input):
    command: str = Field(min_length=1, max_length=MAX_COMMAND_CHARS)
    timeout_seconds: int = Field(default=DEFAULT_TIMEOUT_S, ge=1, le=MAX_TIMEOUT_S)


class CommandResult(Output, frozen=True):
    """Exit code of a command, and the last megabyte of each of its streams."""

    exit_code: int
    reason: str | None  # why the platform killed the command, where it did
    stdout: str
    stderr: str
    truncated: bool  # at least one stream was longer


class CommandOutput(Output, frozen=True):
    """One event `output`."""

    stream: Literal["stdout", "stderr"]
    text: str


class CommandExit(Output, frozen=True):
    """The last event, `exit`."""

    exit_code: int
    reason: str | None
