"""Forgetting: what was measured of apps after a week, and what they printed after a week or a hundred megabytes."""

from __future__ import annotations

import asyncio

import msgspec

from moorage.core.worker.run import Handlers, Run
from moorage.products.apps.logs.log_files import AppLogs
from moorage.products.apps.metrics import service as metrics

KIND = "apps.trim"
CRON = "23 * * * *"


class TrimApps(msgspec.Struct, frozen=True, tag="apps.trim"):
    """Forget what is too old."""


def register(handlers: Handlers, logs: AppLogs) -> None:
    async def trim(run: Run, _: TrimApps) -> None:
        await run.write_until_fewer(metrics.AT_ONCE, metrics.trim)
        await asyncio.to_thread(logs.trim, run.db.env.clock.trusted_now())

    handlers.maintain(KIND, CRON, TrimApps(), trim)
