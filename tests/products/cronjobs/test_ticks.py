"""Ticks of cronjobs: each is one run, over any number of schedulers, clocks and outages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.products.cronjobs.support import IMAGE, Team

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.plans.service import Plan
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock, to_wire
from moorage.core.kit.cron import Cron
from moorage.products.cronjobs import service

pytestmark = pytest.mark.anyio


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


async def due(team: Team) -> list[str | None]:
    """Run one turn of a scheduler; return the due times of all runs, oldest first."""
    await team.scheduler().turn()
    return [to_wire(row.scheduled_for) if row.scheduled_for is not None else None for row in await team.rows()]


async def end_all(team: Team) -> None:
    for row in await team.rows():
        if row.status == "queued":
            await team.finish(row)


async def test_a_tick_is_one_run_however_many_schedulers_there_are(team: Team, clock: ManualClock) -> None:
    for number in range(20):
        await team.create(f"job-{number}", **IMAGE)
    clock.advance(5 * MINUTE_MS)

    await asyncio.gather(*(team.scheduler().turn() for _ in range(4)))

    for number in range(20):
        assert [row.scheduled_for for row in await team.rows(f"job-{number}")] == [clock.now()]


async def test_a_tick_that_comes_twice_is_one_run(team: Team, db: Database, clock: ManualClock) -> None:
    await team.create(**IMAGE)
    found = await team.row()

    first = await db.write(lambda tx: service.on_tick(tx, team.org_id, found.id, clock.now()))
    await end_all(team)
    second = await db.write(lambda tx: service.on_tick(tx, team.org_id, found.id, clock.now()))

    assert first is not None
    assert second is None
    assert len(await team.rows()) == 1


async def test_a_tick_during_a_run_is_skipped_counted_and_told(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE)
    clock.advance(5 * MINUTE_MS)
    await due(team)
    for _ in range(2):
        clock.advance(5 * MINUTE_MS)
        await due(team)

    skipped = (await team.read())["runStats"]["skippedRuns"]
    await end_all(team)
    clock.advance(5 * MINUTE_MS)

    assert skipped == 2
    assert (await team.actions()).count("cronjob.run_skipped") == 2
    assert len(await due(team)) == 2
    assert (await team.read())["runStats"]["skippedRuns"] == 2


async def test_a_run_by_hand_holds_the_next_tick_up_as_well_and_not_the_other_way_round(
    team: Team, clock: ManualClock
) -> None:
    await team.create(**IMAGE)
    await team.trigger()
    clock.advance(5 * MINUTE_MS)

    assert await due(team) == [None]

    await end_all(team)
    clock.advance(5 * MINUTE_MS)
    await due(team)
    await team.trigger()
    assert [row.status for row in await team.rows()] == ["succeeded", "queued", "queued"]


async def test_a_cronjob_that_is_not_built_yet_has_no_runs_and_skips_none(team: Team, clock: ManualClock) -> None:
    await team.create()
    clock.advance(5 * MINUTE_MS)

    assert await due(team) == []
    assert (await team.read())["runStats"]["skippedRuns"] == 0

    await team.set_built()
    clock.advance(5 * MINUTE_MS)
    assert await due(team) == [to_wire(clock.now())]


async def test_while_it_is_built_anew_and_after_that_failed_the_former_is_run(team: Team, clock: ManualClock) -> None:
    await team.create()
    await team.set_built()
    await team.patch(branch="next")
    clock.advance(5 * MINUTE_MS)
    while_built = await due(team)
    await end_all(team)

    await team.fail_build()
    clock.advance(5 * MINUTE_MS)

    assert len(while_built) == 1
    assert len(await due(team)) == 2
    assert (await team.read())["status"] == "failed"


async def test_nothing_begins_while_paused_and_nothing_is_made_up_for(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE)
    await team.post("/nightly/pause")
    clock.advance(17 * MINUTE_MS)
    while_paused = await due(team)

    await team.post("/nightly/resume")
    at_once = await due(team)
    clock.advance(3 * MINUTE_MS)

    assert (while_paused, at_once) == ([], [])
    assert await due(team) == [to_wire(clock.now())]


@pytest.mark.parametrize(("late_ms", "runs"), [(4 * MINUTE_MS, 1), (5 * MINUTE_MS, 0), (3 * HOUR_MS, 0)])
async def test_after_an_outage_the_latest_tick_runs_if_it_is_young(
    team: Team, clock: ManualClock, late_ms: int, runs: int
) -> None:
    clock.now_ms = at("2026-03-01T10:30:00")
    await team.create(**IMAGE, cronSchedule="0 6,12 * * *")

    clock.now_ms = at("2026-03-04T12:00:00") + late_ms

    assert await due(team) == ["2026-03-04T12:00:00.000Z"][:runs]
    assert (await team.read())["runStats"]["nextRunAt"] == "2026-03-05T06:00:00.000Z"


async def test_times_are_utc_whatever_daylight_saving_does_elsewhere(team: Team, clock: ManualClock) -> None:
    """Days of a daylight saving change in Europe and America have 24 hours in UTC."""
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        name = f"on-{day}"
        clock.now_ms = at(f"{day}T00:30:00")
        await team.create(name, **IMAGE, cronSchedule="30 * * * *")
        for _ in range(24):
            clock.advance(HOUR_MS)
            await team.scheduler().turn()
            for row in await team.rows(name):
                if row.status == "queued":
                    await team.finish(row)

        moments = [row.scheduled_for for row in await team.rows(name)]
        assert moments == [at(f"{day}T00:30:00") + hour * HOUR_MS for hour in range(1, 25)]
        await team.post(f"/{name}/pause")


async def test_a_leap_day_comes_every_fourth_year(team: Team, clock: ManualClock) -> None:
    clock.now_ms = at("2026-01-01T00:00:00")
    await team.create(**IMAGE, cronSchedule="0 0 29 2 *")
    first = (await team.read())["runStats"]["nextRunAt"]

    clock.now_ms = at("2028-02-29T00:00:00")
    ran = await due(team)

    assert first == "2028-02-29T00:00:00.000Z"
    assert ran == ["2028-02-29T00:00:00.000Z"]
    assert (await team.read())["runStats"]["nextRunAt"] == "2032-02-29T00:00:00.000Z"


async def test_a_clock_that_is_set_back_runs_nothing_twice(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE, cronSchedule="* * * * *")
    start = clock.now()
    for minute in (1, 2, 3, 1, 2, 3, 4):
        clock.now_ms = start + minute * MINUTE_MS
        await due(team)
        await end_all(team)

    assert [row.scheduled_for for row in await team.rows()] == [start + minute * MINUTE_MS for minute in (1, 2, 3, 4)]


async def test_a_clock_that_is_set_forward_runs_the_latest_tick_only(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE, cronSchedule="* * * * *")

    clock.advance(DAY_MS)

    assert await due(team) == [to_wire(clock.now())]


async def test_next_runs_are_those_of_the_expression(team: Team, clock: ManualClock) -> None:
    expressions = ["@hourly", "15 4 * * mon-fri", "0 0 1 */2 *", "59 23 31 12 *"]
    for number, expression in enumerate(expressions):
        await team.create(f"job-{number}", **IMAGE, cronSchedule=expression)

    shown = [(await team.read(f"job-{number}"))["runStats"]["nextRunAt"] for number in range(len(expressions))]

    assert shown == [to_wire(Cron.parse(expression).next_after(clock.now())) for expression in expressions]


async def test_a_deleted_cronjob_has_no_more_ticks(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE)
    await team.delete()
    clock.advance(5 * MINUTE_MS)

    assert await team.scheduler().turn() == 0


@pytest.mark.settings(billing="manual")
async def test_nothing_runs_by_the_clock_while_the_plan_has_no_cronjobs(
    team: Team, db: Database, clock: ManualClock
) -> None:
    await team.create(**IMAGE)
    await db.write(lambda tx: orgs.set_plan(tx, team.org_id, Actor(None, "Stripe"), Plan.FREE))
    clock.advance(5 * MINUTE_MS)
    unpaid = await due(team)
    await db.write(lambda tx: orgs.set_plan(tx, team.org_id, Actor(None, "Stripe"), Plan.PRO))
    clock.advance(5 * MINUTE_MS)

    assert unpaid == []
    assert len(await due(team)) == 1
