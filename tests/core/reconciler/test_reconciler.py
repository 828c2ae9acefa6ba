"""The reconciler: runs each `ensure` at startup, on `wake` and periodically, also after errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.jobs import tables
from moorage.core.reconciler.loop import Reconciler
from moorage.core.telemetry import Telemetry

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


@asynccontextmanager
async def reconciling(reconciler: Reconciler) -> AsyncIterator[None]:
    task = asyncio.create_task(reconciler.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def reaches(seen: list[str], wanted: int) -> None:
    async with asyncio.timeout(10):
        while len(seen) < wanted:
            await asyncio.sleep(0.005)


async def test_a_part_runs_at_start_and_again_when_it_is_woken(db: Database) -> None:
    seen: list[str] = []

    async def ensure(_db: Database, now: int) -> None:
        seen.append(f"{now}")

    reconciler = Reconciler(db, Telemetry(quiet=True))
    reconciler.add("routes", ensure, every_s=3600)

    async with reconciling(reconciler):
        await reaches(seen, 1)
        reconciler.wake("routes")
        await reaches(seen, 2)

    assert seen == [f"{db.env.clock.now()}"] * 2


async def test_a_part_that_crashes_runs_again_and_does_not_stop_the_others(db: Database) -> None:
    crashes: list[str] = []
    seen: list[str] = []

    async def crashes_always(_db: Database, _now: int) -> None:
        crashes.append("again")
        raise RuntimeError("the engine is away")

    async def works(_db: Database, _now: int) -> None:
        seen.append("ok")

    reconciler = Reconciler(db, Telemetry(quiet=True))
    reconciler.add("crashes", crashes_always, every_s=0.01)
    reconciler.add("works", works, every_s=0.01)

    async with reconciling(reconciler):
        await reaches(crashes, 3)
        await reaches(seen, 3)

    assert len(crashes) >= 3
    assert len(seen) >= 3


async def test_a_chore_that_is_missing_from_the_timetable_comes_back(app: App, db: Database) -> None:
    await app.handlers.ensure_maintenance(db, 0)
    await db.write(lambda tx: tx.run(tables.REMOVE_ENTRY, kind="platform.sweep", org_id=0, ref=""))

    await app.handlers.ensure_maintenance(db, 0)

    entry = await db.read(lambda tx: tx.find(tables.FIND_ENTRY, kind="platform.sweep", org_id=0, ref=""))
    assert entry is not None
