"""Clocks: the only source of time in the product, so that tests can replace it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


# Clocks synchronised by NTP differ by less. A stored time further in the future means that the clock was wrong when
# the time was written, or is wrong now.
SKEW_MS = MINUTE_MS


class Clock(Protocol):
    # Milliseconds by which the system clock was recently set forward: `ClockWatch` sets it and resets it a day later.
    distrusted_ms: int

    def now(self) -> int:
        """Return the current time in milliseconds since the epoch, UTC."""
        ...

    def trusted_now(self) -> int:
        """Return the time against which retention periods are measured.

        Equals `now`, except for one day after the clock was set forward: then it continues from the time before the
        change, so that a wrong clock does not delete data before its retention period ends.
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
    """A clock for tests that moves only by `advance`."""

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
    """Return milliseconds since boot, including suspend; ignores clock changes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: aware arithmetic costs four times as much


def to_wire(moment_ms: int) -> str:
    """Return a stored time as ISO 8601 text for the API: UTC, milliseconds, `Z`."""
    seconds, millis = divmod(moment_ms, 1000)
    return f"{_format_seconds(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=4096)
def _format_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def to_wire_or_none(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else to_wire(moment_ms)
