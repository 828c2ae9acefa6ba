"""The prober while its monitors are paused, changed or deleted."""

from __future__ import annotations

import pytest
from tests.products.monitors.prober_support import (
    GOOD,
    WRONG,
    Org,
    Stage,
    change,
    damage_secrets,
    make,
    pause,
    resume,
)
from tests.products.monitors.support import ADA

from moorage.products.monitors import service
from moorage.products.monitors.probing import grid

pytestmark = pytest.mark.anyio


async def test_a_check_of_a_monitor_that_is_paused_is_called_off(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    prober = stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()

    await pause(stage, monitor)
    await stage.refresh()
    stage.targets.let_go()
    await stage.pass_s(60)

    assert stage.targets.called_off == [monitor.id]
    assert [beat.status for beat in await stage.beats(monitor)] == ["PAUSE"]
    assert prober.lag().monitors == 0


async def test_the_first_check_after_a_pause_comes_at_once(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org, interval_s=3_600)
    stage.prober()
    await stage.refresh()
    await pause(stage, monitor)
    await stage.pass_s(600)

    await resume(stage, monitor)
    await stage.refresh()

    assert [beat.status for beat in await stage.beats(monitor)] == ["UP", "PAUSE", "UP"]
    assert (await stage.beats(monitor))[-1].at == stage.clock.now()
    assert (await stage.state(monitor)).missed == 0


async def test_a_pause_that_nobody_saw_begins_anew_all_the_same_and_never_twice_at_once(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org, interval_s=3_600)
    stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()
    await pause(stage, monitor)
    await stage.pass_s(1, looks=False)
    await resume(stage, monitor)

    await stage.refresh()
    stage.targets.let_go()
    await stage.pass_s(1)

    assert stage.targets.most_at_once == 1
    assert stage.targets.times(monitor.id) == 2
    assert [beat.status for beat in await stage.beats(monitor)] == ["PAUSE", "UP"]


async def test_a_check_of_a_monitor_that_is_deleted_is_called_off(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    prober = stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()

    await stage.db.write(lambda tx: service.delete(tx, org.org_id, ADA, monitor.id))
    await stage.refresh()
    await stage.pass_s(60)

    assert stage.targets.called_off == [monitor.id]
    assert stage.targets.times(monitor.id) == 1
    assert (prober.lag().monitors, prober.lag().in_flight) == (0, 0)


async def test_what_a_check_finds_of_a_monitor_that_was_paused_meanwhile_is_not_written(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()
    await pause(stage, monitor)

    stage.targets.let_go()
    await stage.step()

    assert [beat.status for beat in await stage.beats(monitor)] == ["PAUSE"]


async def test_a_monitor_that_is_changed_during_a_check_is_checked_anew_for_the_same_slot(
    org: Org, stage: Stage
) -> None:
    monitor = await make(stage, org, url="http://127.0.0.1:9/old")
    stage.prober()
    stage.targets.hold(monitor.id)
    stage.targets.outcomes[monitor.id] = WRONG
    await stage.refresh()

    await change(stage, monitor, url="http://127.0.0.1:9/new")
    stage.targets.outcomes[monitor.id] = GOOD
    await stage.refresh()
    stage.targets.let_go()
    await stage.pass_s(1)

    [beat] = await stage.beats(monitor)
    assert [target.url[-3:] for target in stage.targets.seen] == ["old", "new"]
    assert stage.targets.most_at_once == 1
    assert (beat.slot, beat.status) == (monitor.from_at, "UP")


async def test_a_new_name_calls_no_check_off(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober()
    stage.targets.hold(monitor.id)
    await stage.refresh()

    await change(stage, monitor, name="Another")
    await stage.refresh()
    stage.targets.let_go()
    await stage.pass_s(3)

    assert stage.targets.called_off == []
    assert stage.targets.times(monitor.id) == 1


async def test_a_shorter_interval_holds_from_the_next_look_on(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org, interval_s=86_400)
    stage.prober()
    await stage.refresh()
    await stage.pass_s(60)

    await change(stage, monitor, interval_s=30)
    changed_at = stage.clock.now()
    await stage.refresh()
    await stage.pass_s(90)

    late = [beat for beat in await stage.beats(monitor) if beat.at >= changed_at]
    assert 3 <= len(late) <= 4
    assert all((beat.slot - grid.phase_ms(monitor.id, 30)) % 30_000 == 0 for beat in late)


async def test_a_monitor_whose_secrets_cannot_be_read_waits_for_a_change_and_others_do_not(
    org: Org, stage: Stage
) -> None:
    broken = await make(stage, org, headers=[("X-Key", "s3cret")])
    fine = await make(stage, org)
    await damage_secrets(stage.db, broken)
    stage.prober()
    await stage.refresh()
    await stage.pass_s(6)
    before = (stage.targets.times(broken.id), stage.targets.times(fine.id))

    await stage.db.write(lambda tx: service.update(tx, org.org_id, ADA, broken.id, {}, {"headers": [("X-Key", "new")]}))
    await stage.pass_s(6)

    assert before == (0, 1)
    assert stage.targets.times(broken.id) == 1
    assert stage.targets.seen[-1].headers == (("X-Key", "new"),)
