"""Replicas follow the load: fast up, slowly down, without oscillation."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from moorage.core.kit.clock import MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics.service import Usage
from moorage.products.apps.scaling import CALM_MS, IDLE_MS, WINDOW_MS, Sample, decide, should_sleep

NOW = 1_767_225_600_000
SHARE_US_PER_MS = 250  # a quarter of a core


def sample(load: float, replicas: int, *, at: int = NOW, span_ms: int = 10 * SECOND_MS) -> Sample:
    """Sample of so many replicas at a load in replicas."""
    share_us = replicas * SHARE_US_PER_MS * span_ms
    return Sample(at, span_ms, round(load * SHARE_US_PER_MS * span_ms), share_us, replicas)


def samples(load: float, replicas: int, *, last_ms: int = CALM_MS, now: int = NOW) -> list[Sample]:
    """Samples of a load that did not change."""
    return [sample(load, replicas, at=at) for at in range(now, now - last_ms, -10 * SECOND_MS)]


def choose(history: list[Sample], current: int, *, least: int = 1, most: int = 20, changed_ago_ms: int = 10**9) -> int:
    return decide(
        history,
        now=NOW,
        current=current,
        least=least,
        most=most,
        target_percent=60,
        last_change_ms=NOW - changed_ago_ms,
    )


@pytest.mark.parametrize(
    ("load", "current", "wanted"),
    [
        (1.2, 2, 2),  # 60 percent, which is the target
        (1.3, 2, 3),
        (1.9, 2, 4),
        (3.0, 3, 5),
        (1.0, 1, 2),
        (3.0, 1, 3),  # would need five, but no more than twice as many and one
        (15.0, 12, 20),  # and no more than the most
    ],
)
def test_one_full_window_above_the_target_is_enough_to_have_as_many_as_it_needs(
    load: float, current: int, wanted: int
) -> None:
    assert choose(samples(load, current, last_ms=WINDOW_MS), current) == wanted


def test_less_than_a_window_is_not_enough() -> None:
    assert choose(samples(2, 2, last_ms=20 * SECOND_MS), 2) == 2
    assert choose([], 2) == 2


def test_a_look_that_came_a_little_late_does_not_matter() -> None:
    late = [sample(2, 2, at=NOW - 3 * SECOND_MS), sample(2, 2, at=NOW - 13 * SECOND_MS, span_ms=20 * SECOND_MS)]

    assert choose(late, 2) == 4


def test_a_short_peak_within_a_window_is_averaged_away() -> None:
    peak = [sample(2, 2), *samples(0.5, 2, now=NOW - 10 * SECOND_MS, last_ms=WINDOW_MS)]

    assert choose(peak, 2) == 2


def test_it_grows_no_sooner_than_half_a_minute_after_the_last_change() -> None:
    busy = samples(2, 2, last_ms=WINDOW_MS)

    assert [choose(busy, 2, changed_ago_ms=ago) for ago in (0, WINDOW_MS - 1, WINDOW_MS)] == [2, 2, 4]


def test_replicas_that_only_start_are_waited_for() -> None:
    """Two of four are busy to the brim; with the other two there will be room."""
    assert choose(samples(2, 2), 4) == 4


@pytest.mark.parametrize(
    ("load", "current", "wanted"),
    [
        (0.0, 3, 2),
        (0.83, 3, 2),  # 41.5 percent with two
        (0.85, 3, 3),  # 42.5 percent with two: above 70 percent of the target
        (0.0, 1, 1),
        (0.0, 2, 1),
    ],
)
def test_one_fewer_after_five_minutes_in_which_it_would_have_done(load: float, current: int, wanted: int) -> None:
    assert choose(samples(load, current), current) == wanted


def test_a_busy_window_within_five_minutes_keeps_all() -> None:
    history = [sample(1.5 if 60 <= (NOW - each.at) // SECOND_MS < 90 else 0, 3, at=each.at) for each in samples(0, 3)]

    assert choose(history, 3) == 3


@pytest.mark.parametrize("missing", range(0, 300, 60))
def test_where_something_was_not_measured_nothing_is_taken_away(missing: int) -> None:
    kept = [each for each in samples(0, 3) if not missing <= (NOW - each.at) // SECOND_MS < missing + 30]
    some_of_three = [
        sample(0, 2 if missing <= (NOW - each.at) // SECOND_MS < missing + 30 else 3, at=each.at)
        for each in samples(0, 3)
    ]

    assert choose(kept, 3) == 3
    assert choose(some_of_three, 3) == 3


def test_it_shrinks_no_sooner_than_five_minutes_after_the_last_change() -> None:
    idle = samples(0, 3)

    assert [choose(idle, 3, changed_ago_ms=ago) for ago in (0, CALM_MS - 1, CALM_MS)] == [3, 3, 2]


def test_bounds_that_were_changed_hold_at_once() -> None:
    assert choose([], 3, least=5, changed_ago_ms=0) == 5
    assert choose([], 9, most=4, changed_ago_ms=0) == 4
    assert choose([], 0) == 1


def test_a_sample_is_made_of_what_an_app_used() -> None:
    usage = Usage(cpu_us=3_750_000, cpu_share_us=5_000_000, span_ms=10_000, memory_bytes=1, replicas=2)

    made = Sample.of(NOW, usage)

    assert (made.at, made.span_ms, made.replicas, made.load) == (NOW, 10_000, 2, 1.5)


figures = some.builds(
    Sample,
    at=some.integers(NOW - 2 * CALM_MS, NOW),
    span_ms=some.integers(0, 60_000),
    cpu_us=some.integers(0, 10**9),
    share_us=some.integers(0, 10**8),
    replicas=some.integers(0, 30),
)


@given(
    history=some.lists(figures, max_size=40),
    current=some.integers(0, 200),
    bounds=some.tuples(some.integers(1, 50), some.integers(0, 50)),
    target=some.integers(1, 100),
    changed=some.none() | some.integers(NOW - 2 * CALM_MS, NOW),
)
def test_whatever_is_measured_the_answer_is_within_bounds_and_a_step_is_not_too_large(
    history: list[Sample], current: int, bounds: tuple[int, int], target: int, changed: int | None
) -> None:
    least, most = bounds[0], bounds[0] + bounds[1]

    wanted = decide(
        history, now=NOW, current=current, least=least, most=most, target_percent=target, last_change_ms=changed
    )

    assert least <= wanted <= most
    if least <= current <= most:
        assert current - 1 <= wanted <= 2 * current + 1


@given(
    loads=some.lists(some.floats(0, 12), min_size=30, max_size=30),
    more=some.lists(some.floats(0, 6), min_size=30, max_size=30),
    current=some.integers(1, 12),
    target=some.integers(1, 100),
)
def test_more_load_never_means_fewer_replicas(loads: list[float], more: list[float], current: int, target: int) -> None:
    def wanted(given: list[float]) -> int:
        history = [sample(load, current, at=NOW - at * 10 * SECOND_MS) for at, load in enumerate(given)]
        return decide(history, now=NOW, current=current, least=1, most=12, target_percent=target, last_change_ms=None)

    heavier = [load + extra for load, extra in zip(loads, more, strict=True)]

    assert wanted(heavier) >= wanted(loads)


def course(load: float, begun_with: int, target: int) -> list[int]:
    """Let a constant load run for as long as every replica could take to go, and return how many there were."""
    now, current, changed = NOW, begun_with, NOW
    history: list[Sample] = []
    course = [current]
    for _ in range(12 * CALM_MS // WINDOW_MS + 20):
        now += WINDOW_MS
        history = [*history[-9:], sample(min(load, current), current, at=now, span_ms=WINDOW_MS)]
        wanted = decide(
            history, now=now, current=current, least=1, most=12, target_percent=target, last_change_ms=changed
        )
        if wanted != current:
            current, changed = wanted, now
            course.append(current)
    return course


@settings(max_examples=60, deadline=None)
@given(load=some.floats(0, 15), begun_with=some.integers(1, 12), target=some.integers(10, 100))
def test_under_a_constant_load_the_number_goes_one_way_and_comes_to_rest(
    load: float, begun_with: int, target: int
) -> None:
    steps = [after - before for before, after in pairwise(course(load, begun_with, target))]

    assert all(step > 0 for step in steps) or all(step == -1 for step in steps)


@pytest.mark.parametrize(("load", "begun_with", "rest"), [(3.0, 1, 5), (0.0, 4, 1), (5.0, 9, 9), (30.0, 2, 12)])
def test_a_constant_load_ends_with_as_many_as_it_needs(load: float, begun_with: int, rest: int) -> None:
    assert course(load, begun_with, 60)[-1] == rest


@pytest.mark.parametrize(
    ("changed", "sleeps"),
    [
        ({}, True),
        ({"last_request_at": None}, True),
        ({"is_free": False}, False),
        ({"ready_since": None}, False),
        ({"ready_since": NOW - IDLE_MS + 1}, False),
        ({"ready_since": NOW - IDLE_MS}, True),
        ({"last_request_at": NOW - IDLE_MS + 1}, False),
        ({"last_request_at": NOW - MINUTE_MS}, False),
        ({"connections": 1}, False),
        ({"idle_ms": 3 * IDLE_MS}, False),
    ],
)
def test_an_app_of_the_free_tier_sleeps_when_nobody_wants_anything_of_it(
    changed: dict[str, int | None], sleeps: bool
) -> None:
    idle = {
        "is_free": True,
        "now": NOW,
        "ready_since": NOW - 2 * IDLE_MS,
        "last_request_at": NOW - IDLE_MS,
        "connections": 0,
    }

    assert should_sleep(**{**idle, **changed}) is sleeps  # type: ignore[arg-type]
