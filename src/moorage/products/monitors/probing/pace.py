"""How well checks keep up with the clock; and saying so no more often than people care to read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from moorage.core.telemetry import Telemetry

WINDOW_S = 60.0
PART_S = 5.0  # The window moves in steps of this.
LATE_MS = 1_000
SELDOM_S = 60.0


@dataclass(frozen=True, slots=True)
class Lag:
    """Where a process stands with its checks."""

    monitors: int  # that it has
    in_flight: int
    waiting: int  # are due, and there is no room for them
    worst_ms: int  # in the last minute, or of what waits
    missed: int  # checks that were due and not made, since the process began


@dataclass(slots=True)
class _Part:
    began: float
    checks: int = 0
    late: int = 0
    passed: int = 0
    worst_ms: int = 0


class Pace:
    def __init__(self, telemetry: Telemetry, steady: Callable[[], float]) -> None:
        self.missed = 0
        self._steady = steady
        self._metrics = telemetry.metrics.monitors
        self._parts: deque[_Part] = deque()

    def note(self, lag_ms: int, passed: int) -> None:
        """Note a check that began so much later than it was to, and how many slots passed by before it had room."""
        part = self._part()
        part.checks += 1
        part.late += lag_ms > LATE_MS
        part.passed += passed
        part.worst_ms = max(part.worst_ms, lag_ms)
        self._metrics.lag.observe(lag_ms / 1000)

    def miss(self, count: int) -> None:
        if count:
            self.missed += count
            self._metrics.missed.inc(count)

    @property
    def worst_ms(self) -> int:
        self._forget()
        return max((part.worst_ms for part in self._parts), default=0)

    @property
    def is_behind(self) -> bool:
        """Tell whether more than one check in a hundred was late in the last minute, or any had no room in time."""
        self._forget()
        late, checks = sum(part.late for part in self._parts), sum(part.checks for part in self._parts)
        return late * 100 > checks or any(part.passed for part in self._parts)

    def _part(self) -> _Part:
        now = self._steady()
        if not self._parts or now - self._parts[-1].began >= PART_S:
            self._forget()
            self._parts.append(_Part(now))
        return self._parts[-1]

    def _forget(self) -> None:
        while self._parts and self._parts[0].began <= self._steady() - WINDOW_S:
            self._parts.popleft()


class Seldom:
    """Tells of each thing whether it may be said: not within a minute of the last time."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._said: dict[str, float] = {}

    def __call__(self, what: str) -> bool:
        now = self._steady()
        if now - self._said.get(what, float("-inf")) < SELDOM_S:
            return False
        self._said[what] = now
        return True
