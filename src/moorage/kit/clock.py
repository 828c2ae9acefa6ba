"""Time, from an object that a test can hold: nothing else in the product asks the system for it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Clock(Protocol):
    def now(self) -> int:
        """Return the moment as epoch milliseconds, UTC."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self.now_ms = now_ms

    def now(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: aware arithmetic costs four times as much


def to_wire(moment_ms: int) -> str:
    """Return a stored time as it stands on the wire: UTC, milliseconds, Z."""
    seconds, millis = divmod(moment_ms, 1000)
    return f"{_to_the_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=4096)
def _to_the_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def to_wire_or_none(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else to_wire(moment_ms)
