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


# Clocks of machines that are kept right differ by less. A stored time that lies further ahead was written by a clock
# that was wrong then, or is read by one that is wrong now.
SKEW_MS = MINUTE_MS


class Clock(Protocol):
    # How far the clock was set forward of late: `ClockWatch` sets it, and takes it back a day later.
    distrusted_ms: int

    def now(self) -> int:
        """Return the moment as epoch milliseconds, UTC."""
        ...

    def trusted_now(self) -> int:
        """Return the moment by which things are old enough to be deleted.

        It equals `now`, except for a day after the clock was set forward. For that day it goes on from where the clock
        was before, so that a wrong clock does not delete what is younger than its retention.
        """
        ...


class SystemClock:
    def __init__(self) -> None:
        self.distrusted_ms = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def trusted_now(self) -> int:
        return self.now() - self.distrusted_ms


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self.now_ms = now_ms
        self.distrusted_ms = 0

    def trusted_now(self) -> int:
        return self.now_ms - self.distrusted_ms

    def now(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


def steady_ms() -> int:
    """Return milliseconds since the machine booted. Nothing sets this clock, and it counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


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
