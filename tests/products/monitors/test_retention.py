"""Deletion of old rows of monitors."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Table, insert, select
from tests.conftest import RunJobs
from tests.products.monitors.support import Team, add_beats, make_alert, make_monitor, read_beats

from moorage.core import jobs
from moorage.core.db.query import Command, Query, scalar
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.core.worker.scheduler import Scheduler
from moorage.products.monitors import retention, tables
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.retention import BATCH_SIZE, KEPT_BEATS, TrimMonitors
from moorage.products.monitors.tables import DAY_S, HOUR_S, MINUTE_S, Monitor

pytestmark = pytest.mark.anyio

YEAR_MS = 365 * DAY_MS


@pytest.fixture
def trim(db: Database, run_jobs: RunJobs) -> RunJobs:
    """Run the maintenance job to its end."""

    async def run() -> None:
        await db.write(lambda tx: jobs.add(tx, TrimMonitors(), lane=Lane.CHORES))
        await run_jobs()

    return run


async def add(db: Database, of: Table, *rows: dict[str, Any]) -> None:
    def unit(tx: Tx) -> None:
        for row in rows:
            tx.run(Command(insert(of), sets=tuple(row)), **row)

    await db.write(unit)


async def column(db: Database, of: Table, name: str) -> list[Any]:
    return await db.read(lambda tx: tx.all(Query(select(of.c[name]).order_by(of.c[name]), scalar)))


def its(monitor: Monitor, **values: Any) -> dict[str, Any]:
    return {"org_id": monitor.org_id, "monitor_id": monitor.id, **values}


def rollup(monitor: Monitor, span_s: int, start: int) -> dict[str, Any]:
    return its(monitor, span_s=span_s, start=start, up=1, down=0, response_sum=1)


def notice(monitor: Monitor, about: str, created_at: int, **values: Any) -> dict[str, Any]:
    usual = {"kind": "triggered", "channel": "webhook", "target": "", "payload": "{}", "status": "delivered"}
    times = {"attempts": 1, "created_at": created_at, "updated_at": created_at}
    return its(monitor, **usual, **times) | {"uuid": about, "about": about, "alert_id": None, **values}


def incident(monitor: Monitor, uuid: str, resolved_at: int | None) -> dict[str, Any]:
    return its(
        monitor, uuid=uuid, alert_id=1, is_flapping=False, observed="{}", started_at=1000, resolved_at=resolved_at
    )


async def test_heartbeats_stay_two_days_and_the_newest_in_any_case(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs
) -> None:
    busy, quiet, new = [await make_monitor(db, team, name=name) for name in ("busy", "quiet", "new")]
    edge = clock.now() - retention.BEATS_KEPT_MS
    recent = [edge + number * 1000 for number in range(KEPT_BEATS + 10)]
    old = [edge - 1 - number * 1000 for number in range(BATCH_SIZE + 30)]
    await add_beats(db, busy, *recent, *old)
    await add_beats(db, quiet, *old)
    await add_beats(db, new, *old[:3])

    await trim()

    assert [beat.slot for beat in await read_beats(db, team, busy.id)] == recent[::-1]
    assert [beat.slot for beat in await read_beats(db, team, quiet.id)] == old[:KEPT_BEATS]
    assert [beat.slot for beat in await read_beats(db, team, new.id)] == old[:3]


async def test_of_some_that_are_recent_as_many_older_ones_stay_as_make_up_the_newest(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs
) -> None:
    found = await make_monitor(db, team)
    edge = clock.now() - retention.BEATS_KEPT_MS
    slots = [edge + (50 - number) * 1000 for number in range(300)]
    await add_beats(db, found, *slots)

    await trim()

    assert [beat.slot for beat in await read_beats(db, team, found.id)] == slots[:KEPT_BEATS]


@pytest.mark.parametrize(
    ("span_s", "kept_ms"), [(MINUTE_S, 25 * HOUR_MS), (HOUR_S, 90 * DAY_MS), (DAY_S, 730 * DAY_MS)]
)
async def test_rollups_stay_as_long_as_something_is_shown_from_them(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs, span_s: int, kept_ms: int
) -> None:
    found = await make_monitor(db, team)
    edge = clock.now() - kept_ms
    rows = [rollup(found, span_s, edge - 1 - number) for number in range(3)]
    await add(db, tables.rollup, rollup(found, span_s, edge), rollup(found, span_s, clock.now()), *rows)

    await trim()

    assert await column(db, tables.rollup, "start") == [edge, clock.now()]


async def test_what_monitors_leave_that_are_gone_is_cleared_up(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs
) -> None:
    first, kept, last = [await make_monitor(db, team, name=name) for name in ("first", "kept", "last")]
    now = clock.now()
    for each in (first, kept, last):
        slots = [now - number for number in range(BATCH_SIZE + 1 if each is last else 2)]
        await add_beats(db, each, *slots)
        await add(db, tables.rollup, rollup(each, HOUR_S, now), rollup(each, DAY_S, now))
        await add(db, tables.pause, its(each, began_at=now, ended_at=None))
        await add(db, alert_tables.incident, incident(each, f"incident-{each.id}", None))
        await add(db, alert_tables.notice, notice(each, f"notice-{each.id}", now))
        warned = {"fingerprint": "f", "threshold_days": 7, "created_at": now}
        await add(db, tables.certificate_notice, its(each, **warned))
    await team.delete(first.id)
    await team.delete(last.id)

    await trim()

    left = {
        of.name: set(await column(db, of, "monitor_id"))
        for of in (*retention.MONITOR_TABLES, alert_tables.notice, tables.state)
    }
    assert left == {name: {kept.id} for name in left}
    assert len(await read_beats(db, team, kept.id)) == 2


async def test_with_no_monitor_at_all_everything_is_cleared_up(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs
) -> None:
    found = await make_monitor(db, team)
    await add_beats(db, found, clock.now())
    await team.delete(found.id)

    await trim()
    await trim()

    assert await column(db, tables.heartbeat, "id") == []


async def test_notices_stay_a_month_and_the_newest_of_each_channel_in_any_case(
    team: Team, db: Database, clock: ManualClock, trim: RunJobs
) -> None:
    found = await make_monitor(db, team)
    one, two = (await make_alert(db, team, found)).id, (await make_alert(db, team, found)).id
    edge = clock.now() - 30 * DAY_MS
    await add(
        db,
        alert_tables.notice,
        notice(found, "followed", edge - 2, alert_id=one),
        notice(found, "newest", edge - 1, alert_id=one),
        notice(found, "newest by mail", edge - 3, alert_id=one, channel="email"),
        notice(found, "newest of the other", edge - 4, alert_id=two),
        notice(found, "certificate", edge - 1),
        notice(found, "recent certificate", edge),
    )

    await trim()

    assert await column(db, alert_tables.notice, "about") == [
        "newest",
        "newest by mail",
        "newest of the other",
        "recent certificate",
    ]


async def test_history_stays_two_years(team: Team, db: Database, clock: ManualClock, trim: RunJobs) -> None:
    found = await make_monitor(db, team)
    watched = await make_alert(db, team, found)
    edge = clock.now() - 2 * YEAR_MS
    await add(
        db,
        alert_tables.incident,
        incident(found, "old", edge - 1),
        incident(found, "kept", edge),
        incident(found, "open", None),
    )
    await add(
        db,
        tables.pause,
        its(found, began_at=1000, ended_at=edge - 1),
        its(found, began_at=2000, ended_at=edge),
        its(found, began_at=3000, ended_at=None),
    )
    await add(db, alert_tables.notice, notice(found, "old", edge - 1, alert_id=watched.id))

    await trim()

    assert await column(db, alert_tables.incident, "uuid") == ["kept", "open"]
    assert await column(db, tables.pause, "began_at") == [2000, 3000]
    assert await column(db, alert_tables.notice, "about") == []


async def test_probers_that_died_are_forgotten_after_an_hour(db: Database, clock: ManualClock, trim: RunJobs) -> None:
    now = clock.now()
    await add(
        db,
        tables.prober,
        {"token": "long dead", "lease_until": now - HOUR_MS - 1, "created_at": 0},
        {"token": "just dead", "lease_until": now - HOUR_MS, "created_at": 0},
        {"token": "alive", "lease_until": now + 1000, "created_at": 0},
    )

    await trim()

    assert await column(db, tables.prober, "token") == ["alive", "just dead"]


async def test_the_chore_is_in_the_timetable_once_and_is_done_when_its_time_comes(
    db: Database, clock: ManualClock, team: Team, run_jobs: RunJobs
) -> None:
    found = await make_monitor(db, team)
    await add_beats(db, found, clock.now())
    await team.delete(found.id)
    handlers = Handlers()
    retention.register(handlers)
    await handlers.ensure_maintenance(db, clock.now())
    await handlers.ensure_maintenance(db, clock.now())

    clock.advance(41 * MINUTE_MS)
    fired = await Scheduler(db, Telemetry(quiet=True), handlers.ticks).turn()
    await run_jobs()

    assert fired == 1
    assert await column(db, tables.heartbeat, "id") == []
