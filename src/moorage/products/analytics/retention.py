"""Retention: figures 90 days, visitors 2 days, salts 1 hour after their day."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moorage.core.db.query import Command
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.products.analytics import tables
from moorage.products.analytics.counting import KEPT_MS, SALTS

KIND = "analytics.trim"
CRON = "7 * * * *"
SALT_GRACE_MS = HOUR_MS  # The last lines of a day may be read a little later.
DELETE_BATCH = 500  # short transactions, because other writers wait for them


class TrimAnalytics(msgspec.Struct, frozen=True, tag="analytics.trim"):
    """Delete expired analytics data."""


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimAnalytics(), trim)


async def trim(run: Run, _: TrimAnalytics) -> None:
    """Delete expired rows in batches."""
    await run.write(_delete_salts)
    today = run.db.env.clock.trusted_now() // DAY_MS * DAY_MS
    await run.delete_in_batches(DELETE_BATCH, _delete_before(tables.TRIM_HOURS, today - KEPT_MS))
    await run.delete_in_batches(DELETE_BATCH, _delete_before(tables.TRIM_TOP, today - KEPT_MS))
    # Yesterday's visitors are still needed to count the visitors of the last 24 hours.
    await run.delete_in_batches(DELETE_BATCH, _delete_before(tables.TRIM_VISITORS, today - DAY_MS))


def _delete_before(command: Command, before: int) -> Callable[[Tx], int]:
    return lambda tx: tx.run(command, before=before, most=DELETE_BATCH)


@across_organizations("daily salts belong to the platform")
def _delete_salts(tx: Tx) -> None:
    oldest = (tx.trusted_now - SALT_GRACE_MS) // DAY_MS
    for day in vault.names(tx, PLATFORM_ORG_ID, SALTS):
        if int(day) < oldest:
            vault.remove(tx, PLATFORM_ORG_ID, SALTS, day)
