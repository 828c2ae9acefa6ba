"""Whether a new release does so much worse than the one before it that it should be taken back. Pure.

It is asked again and again for five minutes after the traffic went over. A few requests prove nothing, and an app that
failed before may go on failing: only what is far above the old release's counts.
"""

from __future__ import annotations

from moorage.core.kit.clock import MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics.service import Stats

GUARD_MS = 5 * MINUTE_MS
COMPARED_MS = 10 * MINUTE_MS  # What to compare with, before the swap. With the guard's own time it fits into memory.
FEWEST_FOR_ERRORS = 20
FEWEST_FOR_LATENCY = 50
LEAST_ERROR_RATE = 0.05


def judge(before: Stats, after: Stats, elapsed_ms: int) -> str | None:
    """Return a sentence that says why to roll back; None where there is no reason, or the guard is over.

    `before` is what the old release did up to the swap, `after` what the new one did in the `elapsed_ms` since.
    """
    if elapsed_ms > GUARD_MS:
        return None
    why = _errors(before, after) or _latency(before, after)
    return None if why is None else f"In the first {max(elapsed_ms // SECOND_MS, 1)} s after the switch {why}"


def _errors(before: Stats, after: Stats) -> str | None:
    if after.requests < FEWEST_FOR_ERRORS:
        return None
    was, is_now = _error_rate(before), _error_rate(after)
    if is_now <= max(LEAST_ERROR_RATE, 3 * was + 0.02):
        return None
    return f"{after.failed} of {after.requests} requests failed ({is_now:.1%}; {was:.1%} before)."


def _error_rate(stats: Stats) -> float:
    return stats.failed / stats.requests if stats.requests else 0.0


def _latency(before: Stats, after: Stats) -> str | None:
    if min(before.requests, after.requests) < FEWEST_FOR_LATENCY or before.p95_ms is None or after.p95_ms is None:
        return None
    if after.p95_ms <= max(4 * before.p95_ms, before.p95_ms + 500):
        return None
    return f"one request in twenty took more than {after.p95_ms:.0f} ms ({before.p95_ms:.0f} ms before)."
