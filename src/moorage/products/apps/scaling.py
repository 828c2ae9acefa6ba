"""Pure decisions on the number of replicas, and whether an app should sleep.

Load is measured in replicas: 1.5 means the CPU time of one and a half replicas at their tier's limit. Scaling up is
fast and may add many replicas, because users wait. Scaling down is slow and removes one at a time, because a surplus
replica does no harm. It requires that the load stays well below the target with one replica fewer, so that a constant
load does not oscillate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from moorage.core.kit.clock import MINUTE_MS, SECOND_MS
from moorage.core.kit.records import dataclass
from moorage.products.apps.metrics.service import Usage

WINDOW_MS = 30 * SECOND_MS
CALM_MS = 5 * MINUTE_MS
IDLE_MS = 30 * MINUTE_MS
MIN_MEASURED = 0.8  # A window counts if this fraction of it was measured, because samples may be late.
HEADROOM = 0.7  # With one replica fewer, the load must stay below this fraction of the target.


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU use of the measured replicas in the `span_ms` before `at`."""

    at: int
    span_ms: int
    cpu_us: int
    share_us: int  # CPU time that the tier allowed all of them
    replicas: int

    @classmethod
    def of(cls, at: int, usage: Usage) -> Sample:
        return cls(at, usage.span_ms, usage.cpu_us, usage.cpu_share_us, usage.replicas)

    @property
    def load(self) -> float:
        return self.cpu_us * self.replicas / self.share_us if self.share_us else 0.0

    def overlap_ms(self, start: int, end: int) -> int:
        return max(0, min(self.at, end) - max(self.at - self.span_ms, start))


def decide(
    history: Sequence[Sample],
    *,
    now: int,
    current: int,
    least: int,
    most: int,
    target_percent: float,
    last_change_ms: int | None,
) -> int:
    """Return the desired number of replicas, between `least` and `most`.

    `history` has the samples of the last five minutes in any order; `last_change_ms` is the time of the last change.
    """
    bounded = max(least, min(most, current))
    if bounded != current or current < 1:
        return bounded
    since_ms = math.inf if last_change_ms is None else now - last_change_ms
    if since_ms >= WINDOW_MS and (more := _more(history, now, current, target_percent)) > current:
        return min(more, most)
    if since_ms >= CALM_MS and current > max(least, 1) and _is_calm(history, now, current, target_percent):
        return current - 1
    return current


def _more(history: Sequence[Sample], now: int, current: int, target_percent: float) -> int:
    """Return the replicas for the load of the last window, at most 2 * current + 1.

    The load is divided by all desired replicas, because starting ones will take their share.
    """
    load = _load(history, now - WINDOW_MS, now)
    if load is None or load * 100 <= current * target_percent:
        return current
    return min(max(current + 1, math.ceil(load * 100 / target_percent)), 2 * current + 1)


def _is_calm(history: Sequence[Sample], now: int, current: int, target_percent: float) -> bool:
    """Return whether one replica fewer was enough for the last five minutes.

    Only samples of all replicas count: a replica that starts or cannot be measured is not without load.
    """
    whole = [sample for sample in history if sample.replicas >= current]
    for end in range(now, now - CALM_MS, -WINDOW_MS):
        load = _load(whole, end - WINDOW_MS, end)
        if load is None or load * 100 >= (current - 1) * target_percent * HEADROOM:
            return False
    return True


def _load(history: Sequence[Sample], start: int, end: int) -> float | None:
    """Return the average load of a window; None below MIN_MEASURED."""
    parts = [(sample.overlap_ms(start, end), sample.load) for sample in history]
    measured_ms = sum(overlap_ms for overlap_ms, _ in parts)
    if measured_ms < MIN_MEASURED * (end - start):
        return None
    return sum(overlap_ms * load for overlap_ms, load in parts) / measured_ms


def should_sleep(
    *,
    is_free: bool,
    now: int,
    ready_since: int | None,
    last_request_at: int | None,
    connections: int,
    idle_ms: int = IDLE_MS,
) -> bool:
    """Return whether an app of the free tier had no request for `idle_ms`.

    `ready_since` is None while the app is not ready; `connections` counts the open connections to all its replicas.
    """
    if not is_free or ready_since is None or connections > 0:
        return False
    return now - max(ready_since, last_request_at or 0) >= idle_ms
