"""How many replicas an app should have, and whether it should sleep. Pure: figures come in, an answer goes out.

Load is counted in replicas: 1.5 is what one and a half use when they use all that their tier allows. Up goes quickly
and in leaps, because somebody waits; down goes slowly and by one, because nobody is hurt by a replica too many. One
fewer is only tried where the load would stay well below the target with it, so a constant load never swings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.core.kit.clock import MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics.service import Usage

WINDOW_MS = 30 * SECOND_MS
CALM_MS = 5 * MINUTE_MS
IDLE_MS = 30 * MINUTE_MS
FULL = 0.8  # A window counts if so much of it was measured: a look comes late now and then.
ROOM = 0.7  # One fewer has to keep the load below this part of the target.


@dataclass(frozen=True, slots=True)
class Sample:
    """What the replicas that were measured used in the time up to a moment."""

    at: int
    span_ms: int
    cpu_us: int
    share_us: int  # what the tier allowed them in that time, all together
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
    """Return how many replicas there should be, between `least` and `most`.

    `history` has the samples of the last five minutes in any order; `last_change_ms` is when the number last changed.
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
    """Return how many the load of the last window needs, at most twice as many and one.

    It is compared with all replicas that are wanted: those that only start will take their part of it.
    """
    load = _load(history, now - WINDOW_MS, now)
    if load is None or load * 100 <= current * target_percent:
        return current
    return min(max(current + 1, math.ceil(load * 100 / target_percent)), 2 * current + 1)


def _is_calm(history: Sequence[Sample], now: int, current: int, target_percent: float) -> bool:
    """Say whether in every window of five minutes one replica fewer would have had room to spare.

    Only what was measured of all replicas counts: one that starts, or cannot be asked, is not one that has no load.
    """
    whole = [sample for sample in history if sample.replicas >= current]
    for end in range(now, now - CALM_MS, -WINDOW_MS):
        load = _load(whole, end - WINDOW_MS, end)
        if load is None or load * 100 >= (current - 1) * target_percent * ROOM:
            return False
    return True


def _load(history: Sequence[Sample], start: int, end: int) -> float | None:
    """Return the average load of a window; None where too little of it was measured."""
    parts = [(sample.overlap_ms(start, end), sample.load) for sample in history]
    measured_ms = sum(overlap_ms for overlap_ms, _ in parts)
    if measured_ms < FULL * (end - start):
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
    """Say whether an app should be put to sleep: one of the free tier that nobody has wanted anything of for long.

    `ready_since` is None while it is not ready; `connections` are those that are open to any of its replicas now.
    """
    if not is_free or ready_since is None or connections > 0:
        return False
    return now - max(ready_since, last_request_at or 0) >= idle_ms
