"""A release is rolled back only where it does far worse than the one before."""

from __future__ import annotations

import pytest

from moorage.products.apps.metrics.service import Stats
from moorage.products.apps.release_guard import GUARD_MS, judge

MINUTE = 60_000


def stats(requests: int, failed: int = 0, p95_ms: float | None = 100.0) -> Stats:
    return Stats(requests, failed, None if p95_ms is None else p95_ms / 2, p95_ms)


@pytest.mark.parametrize(
    ("before", "after", "is_bad"),
    [
        (stats(1000), stats(20, 2), True),
        (stats(1000), stats(19, 19), False),  # too few to say anything
        (stats(1000), stats(100, 5), False),  # five percent, and not more
        (stats(1000), stats(100, 6), True),
        (stats(1000, 20), stats(100, 8), False),  # 2 % before: up to 8 % now
        (stats(1000, 20), stats(100, 9), True),
        (stats(1000, 400), stats(1000, 1000), False),  # it failed all along
        (stats(1000, 300), stats(1000, 950), True),
        (stats(0), stats(100, 5), False),
        (stats(0), stats(100, 6), True),  # nobody asked the old one; the new one fails nevertheless
        (stats(0), stats(0), False),
    ],
)
def test_far_more_errors_than_before_are_a_reason(before: Stats, after: Stats, is_bad: bool) -> None:
    assert (judge(before, after, MINUTE) is not None) is is_bad


@pytest.mark.parametrize(
    ("before", "after", "is_bad"),
    [
        (stats(50, p95_ms=10), stats(50, p95_ms=511), True),
        (stats(50, p95_ms=10), stats(50, p95_ms=510), False),  # half a second more is borne
        (stats(50, p95_ms=1000), stats(50, p95_ms=4001), True),
        (stats(50, p95_ms=1000), stats(50, p95_ms=4000), False),
        (stats(49, p95_ms=10), stats(500, p95_ms=9000), False),
        (stats(500, p95_ms=10), stats(49, p95_ms=9000), False),
        (stats(500, p95_ms=None), stats(500, p95_ms=9000), False),
        (stats(500, p95_ms=10), stats(500, p95_ms=None), False),  # nothing but WebSockets
    ],
)
def test_far_slower_answers_than_before_are_a_reason(before: Stats, after: Stats, is_bad: bool) -> None:
    assert (judge(before, after, MINUTE) is not None) is is_bad


def test_the_reason_is_a_sentence_with_the_figures() -> None:
    errors = judge(stats(1000, 10), stats(100, 42), 40_500)
    latency = judge(stats(1000, p95_ms=120), stats(100, p95_ms=2345.6), 400)

    assert errors == "In the first 40 s after the switch 42 of 100 requests failed (42.0%; 1.0% before)."
    assert latency == "In the first 1 s after the switch one request in twenty took more than 2346 ms (120 ms before)."


def test_after_five_minutes_the_guard_is_over() -> None:
    verdicts = [judge(stats(1000), stats(100, 100), elapsed) for elapsed in (GUARD_MS, GUARD_MS + 1)]

    assert [verdict is not None for verdict in verdicts] == [True, False]
