"""Hourly job that deletes metrics and logs of apps after a week or 100 MB."""

from __future__ import annotations

import msgspec

from moorage.core.worker.run import Handlers, Run
from moorage.products.apps.metrics import service as metrics
from moorage.runtime.engines.ports import Logs

KIND = "apps.trim"
CRON = "23 * * * *"


class TrimApps(msgspec.Struct, frozen=True, tag="apps.trim"):
    """Delete expired metrics and logs."""


def register(handlers: Handlers, logs: Logs) -> None:
    async def trim(run: Run, _: TrimApps) -> None:
        await run.delete_in_batches(metrics.TRIM_BATCH, metrics.trim)
        await logs.trim("apps", run.db.env.clock.trusted_now())

    handlers.maintain(KIND, CRON, TrimApps(), trim, on_each_machine=True)
