"""Forgetting: what was measured of apps after a week, and what they printed after a week or a hundred megabytes."""

from __future__ import annotations

import asyncio

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, timetable
from moorage.core.jobs.timetable import Tick, TickHandler
from moorage.core.kit.cron import Cron
from moorage.core.worker.run import Handlers, Run
from moorage.products.apps.logs.log_files import AppLogs
from moorage.products.apps.metrics import service as metrics

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
