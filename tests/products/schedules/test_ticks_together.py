"""Ticks of the same minute share transactions but succeed or fail separately."""

from __future__ import annotations

import asyncio

import pytest

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.kit.cron import Cron
from moorage.core.telemetry import Telemetry
from moorage.core.worker.scheduler import Scheduler

pytestmark = pytest.mark.anyio

EVERY_MINUTE = Cron.parse("* * * * *")


async def put(db: Database, count: int) -> None:
    def unit(tx: Tx) -> None:
        for number in range(count):
            timetable.put(tx, 1, "test", str(number), EVERY_MINUTE)

    await db.write(unit)


async def test_a_tick_whose_handler_fails_does_not_take_others_along(db: Database, clock: ManualClock) -> None:
    fired: list[str] = []
    is_broken = True

    def handler(tx: Tx, tick: Tick) -> None:
        if tick.ref == "60" and is_broken:
            raise ConnectionError("this one is broken")
        tx.after_commit(lambda: fired.append(tick.ref))

    scheduler = Scheduler(db, Telemetry(quiet=True), {"test": handler})
    await put(db, 120)
    clock.advance(MINUTE_MS)

    with pytest.raises(ConnectionError):
        await scheduler.turn()
    others = sorted(fired, key=int)
    is_broken = False
    await scheduler.turn()

    assert others == [str(number) for number in range(120) if number != 60]
    assert fired[119:] == ["60"]


async def test_schedulers_that_race_for_many_ticks_fire_each_once(db: Database, clock: ManualClock) -> None:
    fired: list[str] = []

    def handler(tx: Tx, tick: Tick) -> None:
        tx.after_commit(lambda: fired.append(tick.ref))

    await put(db, 300)
    clock.advance(MINUTE_MS)

    turns = [Scheduler(db, Telemetry(quiet=True), {"test": handler}).turn() for _ in range(4)]
    counts = await asyncio.gather(*turns)

    assert sum(counts) == 300
    assert sorted(fired, key=int) == [str(number) for number in range(300)]


async def test_a_running_scheduler_fires_a_tick_when_it_is_due(db: Database, clock: ManualClock) -> None:
    fired = asyncio.Event()
    scheduler = Scheduler(db, Telemetry(quiet=True), {"test": lambda tx, tick: tx.after_commit(fired.set)})
    await put(db, 1)
    # The clock moves past the next tick.
    clock.now_ms += MINUTE_MS - 50
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(0.02)
    early = fired.is_set()

    clock.advance(50)
    await asyncio.wait_for(fired.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert early is False
