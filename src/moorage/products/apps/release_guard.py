"""Pure decision whether to roll back a release that does worse than before.

The decision is repeated for five minutes after the switch of traffic. It needs a minimum number of requests, and error
rates or latencies far above those of the old release: an app that failed before may keep failing.
"""

from __future__ import annotations

from moorage.core.kit.clock import MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics.service import Stats

GUARD_MS = 5 * MINUTE_MS
COMPARED_MS = 10 * MINUTE_MS  # before the switch; together with GUARD_MS it fits into the RequestWindow
MIN_REQUESTS_FOR_ERRORS = 20
MIN_REQUESTS_FOR_LATENCY = 50
MIN_ERROR_RATE = 0.05


def judge(before: Stats, after: Stats, elapsed_ms: int) -> str | None:
    """Return the reason for a rollback; None without one, or after GUARD_MS.

    `before` has the requests of the old release, `after` those of the new one in the `elapsed_ms` since the switch.
    """
    if elapsed_ms > GUARD_MS:
        return None
    why = _errors(before, after) or _latency(before, after)
    return None if why is None else f"In the first {max(elapsed_ms // SECOND_MS, 1)} s after the switch {why}"


def _errors(before: Stats, after: Stats) -> str | None:
    if after.requests < MIN_REQUESTS_FOR_ERRORS:
        return None
    old_rate, new_rate = _error_rate(before), _error_rate(after)
    if new_rate <= max(MIN_ERROR_RATE, 3 * old_rate + 0.02):
        return None
    return f"{after.failed} of {after.requests} requests failed ({new_rate:.1%}; {old_rate:.1%} before)."


def _error_rate(stats: Stats) -> float:
    return stats.failed / stats.requests if stats.requests else 0.0


def _latency(before: Stats, after: Stats) -> str | None:
    if min(before.requests, after.requests) < MIN_REQUESTS_FOR_LATENCY or before.p95_ms is None or after.p95_ms is None:
        return None
    if after.p95_ms <= max(4 * before.p95_ms, before.p95_ms + 500):
        return None
    return f"one request in twenty took more than {after.p95_ms:.0f} ms ({before.p95_ms:.0f} ms before)."
