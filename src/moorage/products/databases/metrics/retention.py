"""Forgetting what was measured of databases: the finer it is, the sooner."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, timetable
from moorage.core.jobs.timetable import Tick, TickHandler
from moorage.core.kit.cron import Cron
from moorage.core.worker.run import Handlers, Run
from moorage.products.databases.metrics import service as metrics
from moorage.runtime.shim.logs import logfile

PLATFORM = 0
KIND = "databases.trim_metrics"
EVERY = Cron.parse("*/30 * * * *")


class TrimDatabaseMetrics(msgspec.Struct, frozen=True, tag="databases.trim_metrics"):
    """Forget what is too old."""


def register(handlers: Handlers, ticks: dict[str, TickHandler]) -> None:
    handlers.add(TrimDatabaseMetrics, trim)
    ticks[KIND] = _on_tick


async def ensure(db: Database, _now: int) -> None:
    """Make sure the timetable holds the chore; for the reconciler."""
    await db.write(lambda tx: timetable.ensure(tx, PLATFORM, KIND, "", EVERY))


@across_organizations("the platform's own timetable")
def _on_tick(tx: Tx, tick: Tick) -> None:
    jobs.add(tx, TrimDatabaseMetrics(), key=KIND, dedupe_key=KIND, lane=Lane.CHORES)


async def trim(run: Run, _: TrimDatabaseMetrics) -> None:
    """Delete in small units until nothing is left to delete."""
    for step_s in metrics.KEPT_MS:
        await run.write_until_fewer(metrics.AT_ONCE, partial(metrics.trim, step_s=step_s))
    logs = run.db.env.settings.folder("logs") / "databases"
    await asyncio.to_thread(logfile.trim_each, logs, run.db.env.clock.trusted_now())
