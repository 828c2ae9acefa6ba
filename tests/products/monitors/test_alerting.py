"""Tables of samples, and when alerts fire and resolve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.kit.clock import DAY_MS, MINUTE_MS, SECOND_MS
from moorage.products.monitors.alerts.rules import (
    FLAP_FIRES,
    FLAP_WITHIN_MS,
    STEADY_MS,
    Event,
    Progress,
    Rule,
    Sample,
    judge,
    value_of,
)
from moorage.products.monitors.probing.beats import Certificate, Outcome
from moorage.products.monitors.states import AlertStatus

START = 1_767_225_600_000
IS_DOWN = Rule("eq", 0.0, 1)
FRESH = Progress(AlertStatus.ACTIVE)
UP, DOWN, NOTHING = 1.0, 0.0, None

Told = list[tuple[float, str]]


def follow(rule: Rule, samples: Iterable[tuple[float, float | None]], progress: Progress = FRESH) -> Told:
    """Judge samples by minute; return the events with their minutes."""
    told = []
    for minute, value in samples:
        progress, event = judge(rule, progress, Sample(START + int(minute * MINUTE_MS), value))
        if event is not None:
            told.append((minute, event.value))
    return told


def reach(rule: Rule, samples: Iterable[tuple[float, float | None]], progress: Progress = FRESH) -> Progress:
    """Return the progress of an alert after samples."""
    for minute, value in samples:
        progress, _ = judge(rule, progress, Sample(START + int(minute * MINUTE_MS), value))
    return progress


def each_minute(values: str, start: float = 0, step: float = 1) -> list[tuple[float, float | None]]:
    """Parse samples: `u` is up, `d` is down, `-` is no data."""
    return [(start + number * step, {"u": UP, "d": DOWN, "-": NOTHING}[letter]) for number, letter in enumerate(values)]


@pytest.mark.parametrize(
    ("duration_min", "step", "values", "told"),
    [
        (1, 1, "uuuu", []),
        (1, 1, "d", []),  # one sample alone never fires
        (0, 1, "d", []),
        (0, 1, "dd", [(1, "triggered")]),
        (1, 1, "dd", [(1, "triggered")]),
        (1, 0.5, "dd", []),
        (1, 0.5, "ddd", [(1, "triggered")]),
        (5, 1, "ddddd", []),
        (5, 1, "dddddd", [(5, "triggered")]),
        (1, 10, "dd", [(10, "triggered")]),  # an interval longer than the duration takes two in a row
        (3, 1, "ddduddd", []),  # a good sample in between restarts the count
        (3, 1, "dddudddd", [(7, "triggered")]),
        (1, 1, "d-d", [(2, "triggered")]),  # no data changes nothing
        (1, 1, "d---", []),
        (1, 1, "ddddd", [(1, "triggered")]),  # once
        (1, 1, "ddu", [(1, "triggered")]),
        (1, 1, "dduu", [(1, "triggered"), (3, "resolved")]),
        (1, 1, "ddudu", [(1, "triggered")]),  # good ones in a row only
        (1, 1, "ddududuu", [(1, "triggered"), (7, "resolved")]),
        (1, 1, "ddu-u", [(1, "triggered"), (4, "resolved")]),
        (1, 1, "dd----", [(1, "triggered")]),
        (1, 1, "dduudd", [(1, "triggered"), (3, "resolved"), (5, "triggered")]),
    ],
)
def test_a_condition_fires_when_it_has_held_and_resolves_after_two_good_samples(
    duration_min: int, step: float, values: str, told: Told
) -> None:
    rule = replace(IS_DOWN, duration_min=duration_min)

    assert follow(rule, each_minute(values, step=step)) == told


@pytest.mark.parametrize(
    ("condition", "matching", "others"),
    [
        ("gt", [500.5, 1e9], [500.0, 499.9, -1.0]),
        ("lt", [499.9, -1.0], [500.0, 500.1]),
        ("eq", [500.0], [499.999, 500.001]),
        ("neq", [499.999, 0.0], [500.0]),
    ],
)
def test_conditions_compare_strictly_and_exactly(condition: str, matching: list[float], others: list[float]) -> None:
    rule = Rule(condition, 500.0, 1)

    assert [rule.matches(value) for value in matching] == [True] * len(matching)
    assert [rule.matches(value) for value in others] == [False] * len(others)


def test_the_third_fire_in_half_an_hour_is_flapping_and_holds_until_ten_minutes_were_steady() -> None:
    often = each_minute("dduudduudd" + "u" * 10)

    flapping = follow(IS_DOWN, often)
    steady = follow(IS_DOWN, [*often, (20, UP)])

    assert [event for _, event in flapping] == ["triggered", "resolved", "triggered", "resolved", "flapping"]
    assert steady == [*flapping, (20, "resolved")]


def test_while_it_flaps_any_match_begins_the_ten_minutes_anew_and_tells_nothing() -> None:
    often = each_minute("dduudduudd" + "u" * 9 + "d" + "u" * 10)

    held = follow(IS_DOWN, often)
    steady = follow(IS_DOWN, [*often, (30, UP)])

    assert held[-1:] == [(9, "flapping")]
    assert steady == [*held, (30, "resolved")]


def test_flapping_needs_two_good_samples_however_far_apart() -> None:
    flapping = reach(IS_DOWN, each_minute("dduudduudd"))

    assert follow(IS_DOWN, [(60, UP)], flapping) == []
    assert follow(IS_DOWN, [(60, UP), (120, UP)], flapping) == [(120, "resolved")]


def test_fires_that_are_further_apart_are_no_flapping() -> None:
    fires = [sample for start in (0, 16, 32) for sample in each_minute("dduu", start)]

    assert [event for _, event in follow(IS_DOWN, fires)] == ["triggered", "resolved"] * 3


def test_a_fire_soon_after_flapping_ended_is_flapping_again() -> None:
    calm = reach(IS_DOWN, [*each_minute("dduudduudd"), *each_minute("u" * 11, 10)])

    assert not calm.is_flapping
    assert follow(IS_DOWN, each_minute("dd", 30), calm) == [(31, "flapping")]
    assert follow(IS_DOWN, each_minute("dd", 60), calm) == [(61, "triggered")]


def test_a_sample_that_says_nothing_new_leaves_the_very_same_progress() -> None:
    """An unchanged progress is not written."""
    pending = reach(IS_DOWN, each_minute("d"))
    fired = reach(IS_DOWN, each_minute("dd"))
    held = reach(IS_DOWN, each_minute("dduudduudduu"))

    assert judge(IS_DOWN, FRESH, Sample(START, UP))[0] is FRESH
    assert judge(replace(IS_DOWN, duration_min=9), pending, Sample(START + MINUTE_MS, DOWN))[0] is pending
    assert judge(IS_DOWN, fired, Sample(START + 2 * MINUTE_MS, DOWN))[0] is fired
    assert judge(IS_DOWN, held, Sample(START + 12 * MINUTE_MS, UP))[0] is held


def test_an_inactive_alert_stays_as_it_is() -> None:
    inactive = Progress(AlertStatus.INACTIVE)

    assert follow(IS_DOWN, each_minute("dddd"), inactive) == []
    assert reach(IS_DOWN, each_minute("dddd"), inactive) is inactive


def test_a_clock_that_is_set_back_begins_the_row_anew_and_forgets_fires_of_the_future() -> None:
    pending = reach(IS_DOWN, each_minute("d", 60))
    fired_twice = reach(IS_DOWN, each_minute("dduudduu", 60))

    assert follow(IS_DOWN, each_minute("dd"), pending) == [(1, "triggered")]
    assert follow(IS_DOWN, each_minute("dd"), fired_twice) == [(1, "triggered")]
    assert follow(IS_DOWN, each_minute("uu"), reach(IS_DOWN, each_minute("ddu", 60))) == [(0, "resolved")]


STEPS = st.lists(
    st.tuples(st.integers(1, 20 * MINUTE_MS), st.sampled_from([UP, DOWN, NOTHING])), min_size=1, max_size=120
)


@given(STEPS, st.integers(1, 60))
def test_whatever_the_samples_it_never_fires_twice_without_resolving_in_between(
    steps: list[tuple[int, float | None]], duration_min: int
) -> None:
    at, progress, events = START, FRESH, []
    for after_ms, value in steps:
        at += after_ms
        progress, event = judge(replace(IS_DOWN, duration_min=duration_min), progress, Sample(at, value))
        events += [event] if event else []
        assert (progress.status == AlertStatus.TRIGGERED) == (bool(events) and events[-1] is not Event.RESOLVED)

    is_fire = [event is not Event.RESOLVED for event in events]
    assert is_fire == [number % 2 == 0 for number in range(len(events))]


@given(STEPS, st.integers(1, 60))
def test_samples_without_data_make_no_difference_to_what_happens(
    steps: list[tuple[int, float | None]], duration_min: int
) -> None:
    at, samples = START, []
    for after_ms, value in steps:
        at += after_ms
        samples.append(((at - START) / MINUTE_MS, value))
    rule = replace(IS_DOWN, duration_min=duration_min)

    with_data = [(minute, value) for minute, value in samples if value is not None]

    assert follow(rule, samples) == follow(rule, with_data)
    assert reach(rule, samples) == reach(rule, with_data)


@given(STEPS)
def test_it_never_tells_more_than_flapping_allows(steps: list[tuple[int, float | None]]) -> None:
    """The third fire within 30 minutes is flapping, and resolves after 10 good minutes."""
    at, progress, good_since, held = START, FRESH, None, False
    fires: list[int] = []
    for after_ms, value in steps:
        at += after_ms
        progress, event = judge(IS_DOWN, progress, Sample(at, value))
        if value is not None:
            good_since = (good_since or at) if value == UP else None
        if event in (Event.FIRED, Event.FLAPPING):
            fires = [*fires, at]
            held = len(fires) >= FLAP_FIRES and at - fires[-FLAP_FIRES] <= FLAP_WITHIN_MS
            assert (event is Event.FLAPPING) == held == progress.is_flapping
        if event is Event.RESOLVED:
            assert good_since is not None
            assert not held or at - good_since >= STEADY_MS


def test_each_metric_reads_its_own_value() -> None:
    certificate = Certificate("shop.example", "Harbor CA", START + 3 * DAY_MS - SECOND_MS, "aa")
    up = Outcome(is_up=True, message="200 OK", response_ms=120, code=200, certificate=certificate)

    read = {
        metric: value_of(metric, up, error_rate=12.5, now=START)
        for metric in ("status", "response_time", "status_code", "error_rate", "ssl_expiry")
    }

    assert read == {"status": 1, "response_time": 120, "status_code": 200, "error_rate": 12.5, "ssl_expiry": 2}


def test_a_check_that_got_no_answer_says_nothing_but_that_it_is_down() -> None:
    down = Outcome(is_up=False, message="connect: refused", phase="connect")

    read = {
        metric: value_of(metric, down, error_rate=None, now=START)
        for metric in ("status", "response_time", "status_code", "error_rate", "ssl_expiry")
    }

    assert read == {"status": 0, "response_time": None, "status_code": None, "error_rate": None, "ssl_expiry": None}


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="no metric 'mood'"):
        value_of("mood", Outcome(is_up=True, message="200 OK"), error_rate=None, now=START)
