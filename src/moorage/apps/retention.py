"""Forgetting: what was measured of apps after a week, and what they printed after a week or a hundred megabytes."""

from __future__ import annotations

import asyncio

import msgspec

from moorage import jobs
from moorage.apps import metrics
from moorage.apps.log_files import AppLogs
from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.jobs import Lane, timetable
from moorage.jobs.timetable import Tick, TickHandler
from moorage.kit.cron import Cron
from moorage.worker.run import Handlers, Run

PLATFORM = 0
KIND = "apps.trim"
EVERY = Cron.parse("23 * * * *")


class TrimApps(msgspec.Struct, frozen=True, tag="apps.trim"):
    """Forget what is too old."""


def register(handlers: Handlers, ticks: dict[str, TickHandler], logs: AppLogs) -> None:
    async def trim(run: Run, _: TrimApps) -> None:
        await run.write_until_fewer(metrics.AT_ONCE, metrics.trim)
        await asyncio.to_thread(logs.trim, run.db.env.clock.trusted_now())

    handlers.add(TrimApps, trim)
    ticks[KIND] = _on_tick


async def ensure(db: Database, _now: int) -> None:
    """Make sure the timetable holds the chore; for the reconciler."""
    await db.write(lambda tx: timetable.ensure(tx, PLATFORM, KIND, "", EVERY))


@across_organizations("the platform's own timetable")
def _on_tick(tx: Tx, tick: Tick) -> None:
    jobs.add(tx, TrimApps(), key=KIND, dedupe_key=KIND, lane=Lane.CHORES)
