"""The grid of due times, determined by the id and interval of a monitor."""

from __future__ import annotations

from itertools import pairwise

import pytest

from moorage.products.monitors.probing import grid

T = 1_767_225_600_000
INTERVALS = (30, 60, 61, 300, 86_400)


@pytest.mark.parametrize("interval_s", INTERVALS)
@pytest.mark.parametrize("monitor_id", [1, 2, 77, 2**32, 2**63 - 1])
def test_a_moment_lies_between_two_slots_that_are_one_interval_apart(monitor_id: int, interval_s: int) -> None:
    for t in (T, T + 1, T + 29_999, T + 12_345_678):
        before, after = grid.slot_at_or_before(t, monitor_id, interval_s), grid.slot_after(t, monitor_id, interval_s)

        assert before <= t < after
        assert after - before == interval_s * 1000
        assert (before - grid.phase_ms(monitor_id, interval_s)) % (interval_s * 1000) == 0


@pytest.mark.parametrize("interval_s", INTERVALS)
def test_a_slot_is_at_itself_and_the_next_is_after_it(interval_s: int) -> None:
    slot = grid.slot_after(T, 7, interval_s)

    assert grid.slot_at_or_before(slot, 7, interval_s) == slot
    assert grid.slot_at_or_before(slot - 1, 7, interval_s) == slot - interval_s * 1000
    assert grid.slot_after(slot, 7, interval_s) == slot + interval_s * 1000


def test_monitors_that_are_made_in_a_row_are_spread_over_the_interval_evenly() -> None:
    per_second = [0] * 30
    for monitor_id in range(1, 3_001):
        per_second[grid.phase_ms(monitor_id, 30) // 1000] += 1

    assert sum(per_second) == 3_000
    assert min(per_second) > 90
    assert max(per_second) < 110


def test_a_few_monitors_are_apart_as_well() -> None:
    phases = sorted(grid.phase_ms(monitor_id, 60) for monitor_id in range(1, 6))

    assert min(after - before for before, after in pairwise(phases)) > 5_000


def test_what_follows_a_slot_of_the_grid_is_one_interval_later() -> None:
    slot = grid.slot_after(T, 5, 60)

    assert grid.following(slot, 5, 60) == slot + 60_000


def test_what_follows_a_check_off_the_grid_is_the_first_slot_at_least_half_an_interval_later() -> None:
    slot = grid.slot_after(T, 5, 60)

    assert grid.following(slot - 29_999, 5, 60) == slot + 60_000
    assert grid.following(slot - 30_000, 5, 60) == slot
    assert grid.following(slot - 59_999, 5, 60) == slot


def test_slots_between_two_checks_are_counted() -> None:
    slot = grid.slot_after(T, 5, 60)

    assert [grid.missed_between(slot, slot + n * 60_000, 5, 60) for n in (0, 1, 2, 11)] == [0, 0, 1, 10]


def test_between_a_check_off_the_grid_and_the_one_that_follows_it_nothing_is_missed() -> None:
    slot = grid.slot_after(T, 5, 60)
    first = slot - 10_000

    assert grid.missed_between(first, slot + 60_000, 5, 60) == 0
    assert grid.missed_between(first, slot + 120_000, 5, 60) == 1
    assert grid.missed_between(slot + 1, slot, 5, 60) == 0
