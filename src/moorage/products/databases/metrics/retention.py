"""Forgetting what was measured of databases: the finer it is, the sooner."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from moorage.core.worker.run import Handlers, Run
from moorage.products.databases.metrics import service as metrics
from moorage.runtime.shim.logs import logfile

KIND = "databases.trim_metrics"
CRON = "*/30 * * * *"


class TrimDatabaseMetrics(msgspec.Struct, frozen=True, tag="databases.trim_metrics"):
    """Forget what is too old."""


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimDatabaseMetrics(), trim)


async def trim(run: Run, _: TrimDatabaseMetrics) -> None:
    """Delete in small units until nothing is left to delete."""
    for step_s in metrics.KEPT_MS:
        await run.write_until_fewer(metrics.AT_ONCE, partial(metrics.trim, step_s=step_s))
    logs = run.db.env.settings.folder("logs") / "databases"
    await asyncio.to_thread(logfile.trim_each, logs, run.db.env.clock.trusted_now())
