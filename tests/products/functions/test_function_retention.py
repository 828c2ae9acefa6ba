"""Retention: old and surplus records are deleted in small transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RunJobs
from tests.products.functions.spool_writer import NOON, invocations, make_function, minutes, record, write, writing

from moorage.app import App
from moorage.core import jobs
from moorage.core.db.scope import PLATFORM_ORG_ID
from moorage.core.db.store import Database
from moorage.core.jobs import timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, ManualClock
from moorage.products.functions.records import retention
from moorage.products.functions.records.retention import TrimRecords
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(settings: Settings) -> Path:
    return settings.folder("spool")


async def trim(db: Database, run_jobs: RunJobs) -> None:
    await db.write(lambda tx: jobs.add(tx, TrimRecords()))
    await run_jobs()


async def test_invocations_go_after_thirty_days_and_counters_after_ninety(
    app: App, db: Database, folder: Path, run_jobs: RunJobs, clock: ManualClock
) -> None:
    function_id = await make_function(db)
    ages = (91, 89, 31, 29, 0)
    write(folder, *(record(age, function_id, started_ms=NOON - age * DAY_MS) for age in ages))
    await app.products.functions.recorder.catch_up()

    await trim(db, run_jobs)

    assert [row["duration_us"] for row in await invocations(db)] == [29, 0]
    assert [(NOON - row["minute"]) // DAY_MS for row in await minutes(db)] == [89, 31, 29, 0]


async def test_more_old_rows_than_one_unit_takes_all_go(
    app: App, db: Database, folder: Path, run_jobs: RunJobs, clock: ManualClock
) -> None:
    function_id = await make_function(db)
    count = 2 * retention.DELETE_BATCH + 10
    with writing(folder, 2**20) as writer:
        for number in range(count):
            writer.append(record(number, function_id, started_ms=NOON + number * MINUTE_MS))
    await app.products.functions.recorder.catch_up()
    assert len(await invocations(db)) == count

    clock.advance(100 * DAY_MS)
    await trim(db, run_jobs)

    assert await invocations(db) == []
    assert await minutes(db) == []


async def test_a_function_keeps_its_newest_and_others_keep_theirs(
    app: App, db: Database, folder: Path, run_jobs: RunJobs
) -> None:
    busy, quiet = await make_function(db), await make_function(db, name="quiet")
    with writing(folder, 4 * 2**20) as writer:
        writer.append(record(1, quiet))
        for number in range(11_500):
            writer.append(record(number, busy))
    while len(await minutes(db)) < 2 or sum(row["invocations"] for row in await minutes(db)) < 11_501:
        await app.products.functions.recorder.catch_up()

    await trim(db, run_jobs)

    found = await invocations(db)
    assert [row["duration_us"] for row in found if row["function_id"] == busy] == list(range(1_500, 11_500))
    assert [row["duration_us"] for row in found if row["function_id"] == quiet] == [1]


async def test_the_chore_stands_in_the_timetable_and_its_tick_asks_for_the_job(
    app: App, db: Database, folder: Path, run_jobs: RunJobs
) -> None:
    function_id = await make_function(db)
    write(folder, record(1, function_id, started_ms=NOON - 31 * DAY_MS))
    await app.products.functions.recorder.catch_up()

    await app.handlers.ensure_maintenance(db, NOON)
    entry = await db.read(lambda tx: timetable.find(tx, PLATFORM_ORG_ID, retention.KIND, ""))
    await db.write(lambda tx: app.handlers.ticks[retention.KIND](tx, Tick(retention.KIND, PLATFORM_ORG_ID, "", NOON)))
    await run_jobs()

    assert entry is not None
    assert entry.next_run_at - NOON == 10 * MINUTE_MS
    assert await invocations(db) == []
