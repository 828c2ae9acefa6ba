"""Retention of function records.

Invocations are deleted after 30 days or 10,000 newer ones, counters after 90 days.
"""

from __future__ import annotations

from functools import partial

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.storing import KEPT_INVOCATIONS

KIND = "functions.trim"
CRON = "*/10 * * * *"
INVOCATIONS_KEPT_MS = 30 * DAY_MS
MINUTES_KEPT_MS = 90 * DAY_MS
DELETE_BATCH = 500  # short transactions, because other writers wait for them


class TrimRecords(msgspec.Struct, frozen=True, tag="functions.trim_records"):
    """Delete expired and surplus records."""


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimRecords(), trim)


async def trim(run: Run, _: TrimRecords) -> None:
    """Delete expired and surplus rows in batches."""
    for function_id in await run.read(lambda tx: tx.all(records.CROWDED, most=KEPT_INVOCATIONS)):
        await run.delete_in_batches(
            DELETE_BATCH,
            partial(records.keep_newest, function_id=function_id, most=KEPT_INVOCATIONS, at_once=DELETE_BATCH),
        )
    await run.delete_in_batches(DELETE_BATCH, _trim_old)
    await run.delete_in_batches(DELETE_BATCH, _trim_minutes)


@across_organizations("retention is the same for all organizations")
def _trim_old(tx: Tx) -> int:
    return tx.run(records.TRIM_OLD, most=DELETE_BATCH, before=tx.trusted_now - INVOCATIONS_KEPT_MS)


@across_organizations("retention is the same for all organizations")
def _trim_minutes(tx: Tx) -> int:
    return tx.run(records.TRIM_MINUTES, most=DELETE_BATCH, before=tx.trusted_now - MINUTES_KEPT_MS)
