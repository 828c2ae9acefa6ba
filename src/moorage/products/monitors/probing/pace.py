"""Measures the delay of checks, and limits repeated log lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moorage.core.kit.records import dataclass
from moorage.core.telemetry import Telemetry

WINDOW_S = 60.0
STEP_S = 5.0  # The window moves in steps of this.
LATE_MS = 1_000
LOG_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Lag:
    """Load and delay of a prober."""

    monitors: int  # held monitors
    in_flight: int
    waiting: int  # checks that are due and wait for a free slot
    worst_ms: int  # in the last minute, or of a waiting check
    missed: int  # checks that were due and did not run, since the process started


@dataclass(slots=True)
class _Step:
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
        self._steps: deque[_Step] = deque()

    def record_start(self, lag_ms: int, passed: int) -> None:
        """Record the delay of a check and the number of slots that passed while it waited."""
        step = self._step()
        step.checks += 1
        step.late += lag_ms > LATE_MS
        step.passed += passed
        step.worst_ms = max(step.worst_ms, lag_ms)
        self._metrics.lag.observe(lag_ms / 1000)

    def record_missed(self, count: int) -> None:
        if count:
            self.missed += count
            self._metrics.missed.inc(count)

    @property
    def worst_ms(self) -> int:
        self._drop_old()
        return max((step.worst_ms for step in self._steps), default=0)

    @property
    def is_behind(self) -> bool:
        """Whether over 1 % of the checks of the last minute were late, or any slot passed."""
        self._drop_old()
        late, checks = sum(step.late for step in self._steps), sum(step.checks for step in self._steps)
        return late * 100 > checks or any(step.passed for step in self._steps)

    def _step(self) -> _Step:
        now = self._steady()
        if not self._steps or now - self._steps[-1].began >= STEP_S:
            self._drop_old()
            self._steps.append(_Step(now))
        return self._steps[-1]

    def _drop_old(self) -> None:
        while self._steps and self._steps[0].began <= self._steady() - WINDOW_S:
            self._steps.popleft()


class LogLimiter:
    """Allows one log line per topic and LOG_INTERVAL_S."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._logged_at: dict[str, float] = {}

    def __call__(self, topic: str) -> bool:
        now = self._steady()
        if now - self._logged_at.get(topic, float("-inf")) < LOG_INTERVAL_S:
            return False
        self._logged_at[topic] = now
        return True
