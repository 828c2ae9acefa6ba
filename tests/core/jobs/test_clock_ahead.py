"""Times that were stored while the clock was ahead are corrected."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import structlog

from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.jobs import tables, timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock, to_wire
from moorage.core.kit.cron import Cron
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import LEASE_MS, Worker
from moorage.core.worker.run import Handlers, Run
from moorage.core.worker.scheduler import Scheduler

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

EVERY_MINUTE = Cron.parse("* * * * *")
YEAR_MS = 365 * DAY_MS


class Count(msgspec.Struct, frozen=True, tag="test.count"):
    pass


def make_scheduler(db: Database, fired: list[Tick]) -> Scheduler:
    return Scheduler(db, Telemetry(quiet=True), {"test": lambda tx, tick: fired.append(tick)})


async def put(db: Database, cron: Cron = EVERY_MINUTE, ref: str = "a") -> int:
    return await db.write(lambda tx: timetable.put(tx, 1, "test", ref, cron))


async def next_tick(db: Database, ref: str = "a") -> int:
    entry = await db.read(lambda tx: timetable.find(tx, 1, "test", ref))
    assert entry is not None
    return entry.next_run_at


@pytest.mark.parametrize(
    ("expression", "ahead_ms"), [("* * * * *", HOUR_MS), ("17 3 * * *", YEAR_MS), ("0 0 1 * *", YEAR_MS)]
)
async def test_an_entry_fires_at_its_time_again_after_the_clock_was_ahead(
    db: Database, clock: ManualClock, expression: str, ahead_ms: int
) -> None:
    fired: list[Tick] = []
    due, scheduler = await put(db, Cron.parse(expression)), make_scheduler(db, fired)
    clock.advance(ahead_ms)
    await scheduler.turn()
    clock.advance(-ahead_ms)
    fired.clear()

    with structlog.testing.capture_logs() as logged:
        scheduler.correct_soon()
        await scheduler.turn()
    clock.now_ms = due
    await scheduler.turn()

    assert [tick.at for tick in fired] == [due]
    [warning] = [line for line in logged if line["log_level"] == "warning"]
    assert warning["row"] == "timetable test a of organization 1"
    assert warning["before"] > to_wire(due + ahead_ms - 32 * DAY_MS)
    assert warning["after"] == to_wire(due)


async def test_a_scheduler_that_starts_after_the_clock_was_ahead_corrects_every_entry(
    db: Database, clock: ManualClock
) -> None:
    clock.advance(YEAR_MS)
    refs = [f"entry {number}" for number in range(1100)]
    await db.write(lambda tx: [timetable.put(tx, 1, "test", ref, EVERY_MINUTE) for ref in refs])
    clock.advance(-YEAR_MS)

    await make_scheduler(db, []).turn()

    assert {await next_tick(db, ref) for ref in refs[::90]} == {EVERY_MINUTE.next_after(clock.now())}
    ahead = await db.read(lambda tx: tx.all(tables.AHEAD, later_than=tx.now + DAY_MS, after=0, most=1))
    assert ahead == []


async def test_a_clock_that_is_set_back_a_little_fires_no_tick_twice(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    scheduler = make_scheduler(db, fired)
    due = await put(db)
    clock.now_ms = due
    await scheduler.turn()

    clock.now_ms = due - 3_000
    for _ in range(2):
        scheduler.correct_soon()
        await scheduler.turn()
        clock.now_ms = due

    assert [tick.at for tick in fired] == [due]
    assert await next_tick(db) == due + MINUTE_MS


async def test_right_entries_stay_as_they_are_and_nothing_is_logged(db: Database, clock: ManualClock) -> None:
    expressions = ["*/5 * * * *", "@yearly", "0 0 29 2 *", "30 2 * * SUN"]
    ticks = {each: await put(db, Cron.parse(each, "Europe/Berlin"), each) for each in expressions}

    with structlog.testing.capture_logs() as logged:
        await make_scheduler(db, []).turn()

    assert {each: await next_tick(db, each) for each in expressions} == ticks
    assert logged == []


async def test_a_job_that_was_queued_by_a_clock_ahead_runs_as_long_from_now_as_was_asked(
    db: Database, clock: ManualClock
) -> None:
    handlers, ran = Handlers(), []
    handlers.add(Count, lambda tx, payload: ran.append(tx.now))
    worker = Worker(db, handlers, Telemetry(quiet=True))
    clock.advance(YEAR_MS)
    await db.write(lambda tx: jobs.add(tx, Count(), dedupe_key="one", delay_ms=HOUR_MS))
    clock.advance(-YEAR_MS)
    asked = clock.now()

    await make_scheduler(db, []).turn()
    await worker.run_due()
    early = list(ran)
    clock.advance(HOUR_MS)
    await worker.run_due()

    assert early == []
    assert ran == [asked + HOUR_MS]


async def test_the_lease_of_a_dead_worker_whose_clock_was_ahead_expires(db: Database, clock: ManualClock) -> None:
    handlers, ran = Handlers(), []
    handlers.add(Count, lambda tx, payload: ran.append(tx.now))
    await db.write(lambda tx: jobs.add(tx, Count()))
    clock.advance(YEAR_MS)
    dead = Worker(db, handlers, Telemetry(quiet=True))
    await dead._claim(jobs.Lane.INTERACTIVE, 1)
    clock.advance(-YEAR_MS)

    await make_scheduler(db, []).turn()
    clock.advance(LEASE_MS)
    await Worker(db, handlers, Telemetry(quiet=True)).run_due(turns=2)

    assert len(ran) == 1


async def test_a_job_that_runs_while_the_clock_is_set_forward_is_not_started_again(
    db: Database, clock: ManualClock
) -> None:
    started, go_on = [], asyncio.Event()

    async def slow(run: Run, payload: Count) -> None:
        started.append(run.attempt)
        await go_on.wait()
        await run.write(lambda tx: None)

    handlers = Handlers()
    handlers.add(Count, slow)
    worker = Worker(db, handlers, Telemetry(quiet=True))
    await db.write(lambda tx: jobs.add(tx, Count()))
    running = asyncio.create_task(worker.run_due())
    while not started:
        await asyncio.sleep(0.001)

    clock.advance(HOUR_MS)
    await worker._turn()
    await worker._turn()
    go_on.set()
    await running

    assert started == [1]
    assert dict(await db.read(lambda tx: tx.all(tables.COUNTS))) == {"done": 1}


async def test_leases_of_others_are_not_taken_right_after_the_clock_was_set(db: Database, clock: ManualClock) -> None:
    handlers, ran = Handlers(), []
    handlers.add(Count, lambda tx, payload: ran.append(tx.now))
    await db.write(lambda tx: jobs.add(tx, Count()))
    [claimed] = await Worker(db, handlers, Telemetry(quiet=True))._claim(jobs.Lane.INTERACTIVE, 1)
    other = Worker(db, handlers, Telemetry(quiet=True))

    clock.advance(HOUR_MS)
    other.clock_was_set()
    await other.run_due(turns=2)

    assert claimed.attempts == 1
    assert ran == []
