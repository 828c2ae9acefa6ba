"""Retention of database metrics and logs."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from moorage.core.worker.run import Handlers, Run
from moorage.products.databases.metrics import service as metrics
from moorage.runtime.logs import logfile

KIND = "databases.trim_metrics"
CRON = "*/30 * * * *"


class TrimDatabaseMetrics(msgspec.Struct, frozen=True, tag="databases.trim_metrics"):
    """Delete samples and logs after their retention."""


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimDatabaseMetrics(), trim)


async def trim(run: Run, _: TrimDatabaseMetrics) -> None:
    """Delete in small transactions until no expired rows are left."""
    for step_s in metrics.RETENTION_MS:
        await run.delete_in_batches(metrics.MAX_DELETED_ROWS, partial(metrics.trim, step_s=step_s))
    logs = run.db.env.settings.folder("logs") / "databases"
    await asyncio.to_thread(logfile.trim_each, logs, run.db.env.clock.trusted_now())
