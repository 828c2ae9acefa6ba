"""Retention of database metrics and logs."""

from __future__ import annotations

from functools import partial

import msgspec

from moorage.core.worker.run import Handlers, Run
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.servers import LOGS
from moorage.runtime.engines.ports import Logs

KIND = "databases.trim_metrics"
CRON = "*/30 * * * *"


class TrimDatabaseMetrics(msgspec.Struct, frozen=True, tag="databases.trim_metrics"):
    """Delete samples and logs after their retention."""


def register(handlers: Handlers, logs: Logs) -> None:
    async def trim(run: Run, _: TrimDatabaseMetrics) -> None:
        """Delete in small transactions until no expired rows are left."""
        for step_s in metrics.RETENTION_MS:
            await run.delete_in_batches(metrics.MAX_DELETED_ROWS, partial(metrics.trim, step_s=step_s))
        await logs.trim(LOGS, run.db.env.clock.trusted_now())

    handlers.maintain(KIND, CRON, TrimDatabaseMetrics(), trim)
