"""The timetable: each tick fires exactly once, over crashes and any number of schedulers."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from moorage.core.db.store import Database
from moorage.core.jobs import timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.kit.cron import Cron
from moorage.core.telemetry import Telemetry
from moorage.core.worker.scheduler import Scheduler

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

EVERY_MINUTE = Cron.parse("* * * * *")


def make_scheduler(db: Database, fired: list[Tick]) -> Scheduler:
    return Scheduler(db, Telemetry(quiet=True), {"test": lambda tx, tick: fired.append(tick)})


async def put(db: Database, ref: str = "a", cron: Cron = EVERY_MINUTE, *, enabled: bool = True) -> int:
    return await db.write(lambda tx: timetable.put(tx, 1, "test", ref, cron, enabled=enabled))


async def test_an_entry_fires_at_its_time_and_not_before(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    scheduler = make_scheduler(db, fired)
    due = await put(db)

    clock.now_ms = due - 1
    await scheduler.turn()
    early = list(fired)
    clock.now_ms = due
    await scheduler.turn()
    await scheduler.turn()

    assert early == []
    assert fired == [Tick("test", 1, "a", due)]


async def test_a_process_leaves_the_ticks_of_some_kinds_to_others(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    for kind in ("test", "schedule", "cronjob"):
        await db.write(partial(timetable.put, org_id=1, kind=kind, ref="a", cron=EVERY_MINUTE))
    handlers = dict.fromkeys(("test", "schedule", "cronjob"), lambda tx, tick: fired.append(tick))
    clock.advance(MINUTE_MS)

    await Scheduler(db, Telemetry(quiet=True), handlers, skip=("schedule", "cronjob")).turn()
    first = [tick.kind for tick in fired]
    await Scheduler(db, Telemetry(quiet=True), handlers, skip=("schedule", "")).turn()
    await Scheduler(db, Telemetry(quiet=True), handlers).turn()

    assert (first, [tick.kind for tick in fired]) == (["test"], ["test", "cronjob", "schedule"])


async def test_many_schedulers_fire_a_tick_once(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    for number in range(20):
        await put(db, f"entry {number}")
    clock.advance(MINUTE_MS)

    await asyncio.gather(*(make_scheduler(db, fired).turn() for _ in range(6)))

    assert len(fired) == 20
    assert len({tick.ref for tick in fired}) == 20


async def test_after_a_short_outage_only_the_latest_tick_fires(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    due = await put(db)

    clock.now_ms = due + 3 * MINUTE_MS + 1
    await make_scheduler(db, fired).turn()

    assert [tick.at for tick in fired] == [due + 3 * MINUTE_MS]


async def test_after_a_long_outage_a_tick_older_than_five_minutes_is_skipped(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    scheduler = make_scheduler(db, fired)
    due = await put(db, cron=Cron.parse("0 * * * *"))

    clock.now_ms = due + 5 * MINUTE_MS
    await scheduler.turn()
    skipped = list(fired)
    clock.now_ms = due + 60 * MINUTE_MS
    await scheduler.turn()

    assert skipped == []
    assert [tick.at for tick in fired] == [due + 60 * MINUTE_MS]


async def test_a_handler_that_raises_leaves_the_tick_to_be_fired_again(db: Database, clock: ManualClock) -> None:
    calls: list[int] = []

    def fails_once(tx: object, tick: Tick) -> None:
        calls.append(tick.at)
        if len(calls) == 1:
            raise ConnectionError("the store went away")

    scheduler = Scheduler(db, Telemetry(quiet=True), {"test": fails_once})
    due = await put(db)
    clock.now_ms = due

    with pytest.raises(ConnectionError):
        await scheduler.turn()
    await scheduler.turn()

    assert calls == [due, due]


async def test_a_disabled_entry_does_not_fire_and_an_enabled_one_counts_from_now(
    db: Database, clock: ManualClock
) -> None:
    fired: list[Tick] = []
    scheduler = make_scheduler(db, fired)
    due = await put(db, enabled=False)
    clock.now_ms = due + 10 * MINUTE_MS

    await scheduler.turn()
    upcoming = await put(db, enabled=True)

    assert fired == []
    assert upcoming == clock.now() + MINUTE_MS - clock.now() % MINUTE_MS


async def test_a_removed_entry_is_gone(db: Database, clock: ManualClock) -> None:
    fired: list[Tick] = []
    due = await put(db)

    await db.write(lambda tx: timetable.remove(tx, 1, "test", "a"))
    clock.now_ms = due
    await make_scheduler(db, fired).turn()

    assert fired == []


async def test_ensuring_the_same_schedule_keeps_the_next_tick(db: Database, clock: ManualClock) -> None:
    due = await put(db)
    clock.now_ms = due + 30_000

    await db.write(lambda tx: timetable.ensure(tx, 1, "test", "a", EVERY_MINUTE))

    entry = await db.read(lambda tx: timetable.find(tx, 1, "test", "a"))
    assert entry is not None
    assert entry.next_run_at == due
