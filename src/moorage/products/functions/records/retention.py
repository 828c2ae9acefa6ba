"""Forgetting what was recorded of functions: invocations after 30 days or 10,000 newer ones, counters after 90 days."""

from __future__ import annotations

from functools import partial

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.storing import KEPT

KIND = "functions.trim"
CRON = "*/10 * * * *"
INVOCATIONS_KEPT_MS = 30 * DAY_MS
MINUTES_KEPT_MS = 90 * DAY_MS
AT_ONCE = 500  # Others wait to write meanwhile, so no unit takes long.


class TrimRecords(msgspec.Struct, frozen=True, tag="functions.trim_records"):
    """Forget what is too old or too much."""


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimRecords(), trim)


async def trim(run: Run, _: TrimRecords) -> None:
    """Delete in small units until nothing is left to delete."""
    for function_id in await run.read(lambda tx: tx.all(records.CROWDED, most=KEPT)):
        await run.write_until_fewer(
            AT_ONCE, partial(records.keep_newest, function_id=function_id, most=KEPT, at_once=AT_ONCE)
        )
    await run.write_until_fewer(AT_ONCE, _trim_old)
    await run.write_until_fewer(AT_ONCE, _trim_minutes)


@across_organizations("what is old is old in every organization")
def _trim_old(tx: Tx) -> int:
    return tx.run(records.TRIM_OLD, most=AT_ONCE, before=tx.trusted_now - INVOCATIONS_KEPT_MS)


@across_organizations("what is old is old in every organization")
def _trim_minutes(tx: Tx) -> int:
    return tx.run(records.TRIM_MINUTES, most=AT_ONCE, before=tx.trusted_now - MINUTES_KEPT_MS)
