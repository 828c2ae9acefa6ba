"""The prober checks each monitor once per slot, with slow targets and set clocks."""

from __future__ import annotations

import pytest
from tests.products.monitors.prober_support import GOOD, Org, Stage, make, settle, slots_within, some_org

from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

pytestmark = pytest.mark.anyio


async def test_the_first_check_of_a_monitor_comes_at_once(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()

    await stage.refresh()

    [beat] = await stage.beats(monitor)
    assert (beat.slot, beat.at, beat.status, beat.message) == (monitor.from_at, stage.clock.now(), "UP", "200 OK")


async def test_after_the_first_every_slot_of_the_grid_has_one_check(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(5)]
    stage.prober()
    await stage.refresh()

    await stage.pass_s(180)

    for monitor in monitors:
        first, *others = [beat.slot for beat in await stage.beats(monitor)]
        assert first == monitor.from_at
        assert others == slots_within(monitor, first + 15 * SECOND_MS - 1, stage.clock.now())
        assert (await stage.state(monitor)).missed == 0
    assert stage.probers[0].lag().missed == 0


async def test_how_late_a_check_began_is_noted(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()
    stage.clock.advance(700)

    await stage.refresh()

    assert (await stage.state(monitor)).lag_ms == 700


async def test_a_slot_that_comes_while_a_check_runs_is_left_out_and_counted(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    prober = stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()
    await stage.pass_s(100)
    began = stage.targets.times(monitor.id)

    stage.targets.let_go()
    await stage.pass_s(60)

    first, *others = [beat.slot for beat in await stage.beats(monitor)]
    missed = slots_within(monitor, first + 15 * SECOND_MS - 1, first + 100 * SECOND_MS)
    assert began == 1
    assert stage.targets.most_at_once == 1
    assert others == slots_within(monitor, missed[-1], stage.clock.now())
    assert (await stage.state(monitor)).missed == prober.lag().missed == len(missed)


async def test_a_slow_target_delays_nobody_else(org: Org, stage: Stage) -> None:
    slow, quick = await make(stage, org), await make(stage, org)
    stage.prober()
    stage.targets.hold(slow.id)
    await stage.refresh()

    await stage.pass_s(65)

    assert await stage.beats(slow) == []
    assert len(await stage.beats(quick)) == 1 + len(
        slots_within(quick, quick.from_at + 15 * SECOND_MS - 1, stage.clock.now())
    )
    stage.targets.let_go()


async def test_a_check_that_raises_is_no_result_and_the_next_one_comes(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()
    stage.targets.outcomes[monitor.id] = RuntimeError("a mistake of ours")
    await stage.refresh()
    before = await stage.beats(monitor)

    stage.targets.outcomes[monitor.id] = GOOD
    await stage.pass_s(45)

    assert before == []
    assert stage.dropped("crashed") == 1
    assert {beat.status for beat in await stage.beats(monitor)} == {"UP"}


async def test_after_a_restart_everything_is_checked_within_one_interval_and_not_all_at_once(
    org: Org, stage: Stage
) -> None:
    monitors = [await make(stage, org) for _ in range(30)]
    first = stage.prober(owns_store=True)
    await stage.refresh()
    await stage.pass_s(40)
    stage.kill(first)
    stage.clock.advance(10 * MINUTE_MS)
    stage.targets.seen.clear()
    restarted_at = stage.clock.now()
    stage.prober(owns_store=True)

    await stage.refresh()
    at_once = len(stage.targets.seen)
    await stage.pass_s(10)

    assert at_once < 15
    for monitor in monitors:
        beats = await stage.beats(monitor)
        again = [beat for beat in beats if beat.at >= restarted_at]
        assert len(again) == 1
        assert again[0].slot > restarted_at - 30 * SECOND_MS
        # The slots of a grid are all accounted for: each has a check, or was missed.
        slots = slots_within(monitor, monitor.from_at + 15 * SECOND_MS - 1, again[0].slot)
        assert (await stage.state(monitor)).missed == len(slots) - (len(beats) - 1)


async def test_a_restart_within_an_interval_makes_no_check_too_many(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(5)]
    first = stage.prober(owns_store=True)
    await stage.refresh()
    await stage.pass_s(120)
    slots = {monitor.id: [beat.slot for beat in await stage.beats(monitor)] for monitor in monitors}
    stage.kill(first)

    stage.prober(owns_store=True)
    await stage.refresh()

    for monitor in monitors:
        assert [beat.slot for beat in await stage.beats(monitor)] == slots[monitor.id]
        assert (await stage.state(monitor)).missed == 0


async def test_after_a_restart_new_monitors_too_are_checked_within_one_interval(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(20)]
    first = stage.prober(owns_store=True)
    await stage.refresh()
    stage.kill(first)
    restarted_at = stage.clock.now()

    stage.prober(owns_store=True)
    await stage.refresh()
    await stage.pass_s(30)

    for monitor in monitors:
        assert [beat.slot > restarted_at for beat in await stage.beats(monitor)] == [False, True]
        assert (await stage.state(monitor)).missed == 0


async def test_a_monitor_made_while_nobody_checked_is_checked_at_the_start_of_somebody(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org, interval_s=3_600)
    stage.clock.advance(HOUR_MS // 3)
    stage.prober()

    await stage.refresh()

    [beat] = await stage.beats(monitor)
    assert (beat.slot, beat.at) == (monitor.from_at, stage.clock.now())


async def test_a_first_check_that_is_more_than_an_interval_late_is_for_the_latest_slot(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.clock.advance(DAY_MS)
    stage.prober()

    await stage.refresh()
    await stage.pass_s(15)

    beat = (await stage.beats(monitor))[0]
    missed = slots_within(monitor, monitor.from_at + 15 * SECOND_MS - 1, beat.slot - 1)
    assert stage.clock.now() - beat.slot < 45 * SECOND_MS
    assert (await stage.state(monitor)).missed == 1 + len(missed)


async def test_only_so_many_checks_run_at_once_and_the_others_wait_visibly(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(6)]
    prober = stage.prober(most=2)
    stage.targets.hold(*(monitor.id for monitor in monitors))
    await stage.refresh()
    await stage.pass_s(9)
    lag = prober.lag()

    stage.targets.let_go()
    for _ in range(5):
        await stage.step()

    assert (lag.monitors, lag.in_flight, lag.waiting, lag.worst_ms) == (6, 2, 4, 9 * SECOND_MS)
    assert (prober.lag().in_flight, prober.lag().waiting) == (0, 0)
    assert prober.lag().worst_ms == 9 * SECOND_MS
    assert sorted([(await stage.state(monitor)).lag_ms or 0 for monitor in monitors]) == [0, 0, *[9 * SECOND_MS] * 4]


async def test_an_organization_whose_targets_hang_leaves_room_for_the_others(db: Database, stage: Stage) -> None:
    ours, theirs = await some_org(db), await some_org(db)
    hanging = [await make(stage, ours) for _ in range(6)]
    other = await make(stage, theirs)
    prober = stage.prober(most=4)
    stage.targets.hold(*(monitor.id for monitor in hanging))

    await stage.refresh()
    await stage.step()

    assert [beat.status for beat in await stage.beats(other)] == ["UP"]
    assert (prober.lag().in_flight, prober.lag().waiting) == (3, 3)


async def test_slots_that_pass_for_want_of_room_are_counted(org: Org, stage: Stage) -> None:
    hanging, waiting = await make(stage, org), await make(stage, org)
    prober = stage.prober(most=1)
    stage.targets.hold(hanging.id)
    await stage.refresh()
    await stage.pass_s(130)
    behind = prober._pace.is_behind

    stage.targets.let_go()
    await stage.step()
    await stage.step()

    [beat] = await stage.beats(waiting)
    passed = slots_within(waiting, waiting.from_at + 15 * SECOND_MS - 1, stage.clock.now())
    assert not behind
    assert prober._pace.is_behind
    assert beat.slot == passed[-1]
    assert (await stage.state(waiting)).missed == len(passed)


async def test_the_worst_of_the_last_minute_is_forgotten_after_it(org: Org, stage: Stage) -> None:
    hanging, waiting = await make(stage, org), await make(stage, org)
    prober = stage.prober(most=1)
    stage.targets.hold(hanging.id)
    await stage.refresh()
    await stage.pass_s(4, looks=False)
    stage.targets.let_go()
    await stage.step()
    await stage.step()
    seen = prober.lag().worst_ms

    stage.steady_s += 61

    assert stage.targets.times(waiting.id) == 1
    assert seen == 4 * SECOND_MS
    assert prober.lag().worst_ms == 0


async def test_a_clock_that_is_set_forward_counts_what_it_skipped_once_and_starts_no_storm(
    org: Org, stage: Stage
) -> None:
    monitors = [await make(stage, org) for _ in range(30)]
    prober = stage.prober(owns_store=True)
    await stage.refresh()
    await stage.pass_s(45)
    stage.targets.seen.clear()

    stage.clock.advance(HOUR_MS)
    await stage.step()
    at_once = len(stage.targets.seen)
    await stage.pass_s(60)

    assert at_once < 15
    assert stage.targets.most_at_once == 1
    total = 0
    for monitor in monitors:
        beats = await stage.beats(monitor)
        slots = slots_within(monitor, monitor.from_at + 15 * SECOND_MS - 1, beats[-1].slot)
        missed = (await stage.state(monitor)).missed
        assert missed == len(slots) - (len(beats) - 1)
        assert 118 <= missed <= 121
        total += missed
    assert prober.lag().missed == total


async def test_a_process_that_stands_still_again_and_again_checks_all_the_same(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(5)]
    stage.prober(owns_store=True)
    await stage.refresh()

    for _ in range(9):
        stage.clock.advance(50 * SECOND_MS)
        await stage.step()

    assert all(stage.targets.times(monitor.id) >= 4 for monitor in monitors)
    for monitor in monitors:
        beats = await stage.beats(monitor)
        slots = slots_within(monitor, monitor.from_at + 15 * SECOND_MS - 1, beats[-1].slot)
        assert (await stage.state(monitor)).missed == len(slots) - (len(beats) - 1)


async def test_a_clock_that_is_set_back_stops_nothing_and_no_result_is_lost(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(5)]
    stage.prober(owns_store=True)
    await stage.refresh()
    await stage.pass_s(600)
    before = {monitor.id: len(await stage.beats(monitor)) for monitor in monitors}
    stage.targets.seen.clear()

    stage.clock.advance(-5 * MINUTE_MS)
    await stage.pass_s(60)

    for monitor in monitors:
        assert stage.targets.times(monitor.id) == 2
        assert len(await stage.beats(monitor)) == before[monitor.id] + 2


async def test_a_clock_that_is_set_back_a_little_makes_nothing_due_twice(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()
    await stage.refresh()
    await stage.pass_s(120)

    stage.clock.advance(-3 * SECOND_MS)
    await stage.pass_s(60)

    first, *others = [beat.slot for beat in await stage.beats(monitor)]
    assert others == slots_within(monitor, first + 15 * SECOND_MS - 1, stage.clock.now())


async def test_two_that_share_check_each_slot_once(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(8)]
    stage.prober()
    await stage.refresh()
    await stage.pass_s(20)
    stage.prober()

    await stage.pass_s(160)
    await settle()

    assert {prober.lag().monitors for prober in stage.probers} == {4}
    assert stage.targets.most_at_once == 1
    for monitor in monitors:
        first, *others = [beat.slot for beat in await stage.beats(monitor)]
        assert others == slots_within(monitor, first + 15 * SECOND_MS - 1, stage.clock.now())
        assert stage.targets.times(monitor.id) == 1 + len(others)
