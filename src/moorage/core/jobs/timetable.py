"""The timetable: entries with a cron expression, each tick fires exactly once.

A row holds the next tick of an entry. Firing is one transaction: compare-and-set advances the entry, and the handler
writes the effect of the tick, usually a job. After a crash before the commit the tick fires later; after the commit it
never fires again.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.core.db.tx import Tx
from moorage.core.jobs import tables
from moorage.core.jobs.tables import Due
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.cron import Cron
from moorage.core.kit.records import dataclass

# After an outage the latest tick still fires if it is younger than this; older ticks are skipped.
CATCH_UP_MS = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Tick:
    """One firing of one entry."""

    kind: str
    org_id: int
    ref: str
    at: int  # due time


TickHandler = Callable[[Tx, Tick], None]


def put(tx: Tx, org_id: int, kind: str, ref: str, cron: Cron, *, enabled: bool = True) -> int:
    """Create or replace an entry and return its next tick after now."""
    upcoming = cron.next_after(tx.now)
    entry = {"kind": kind, "org_id": org_id, "ref": ref}
    entry_id = tx.find(
        tables.ADD_ENTRY,
        expression=cron.expression,
        timezone=cron.timezone,
        enabled=enabled,
        next_run_at=upcoming,
        **entry,
    )
    if entry_id is None:
        tx.run(tables.SET_ENTRY, expr=cron.expression, zone=cron.timezone, on=enabled, next=upcoming, **entry)
    return upcoming


def ensure(tx: Tx, org_id: int, kind: str, ref: str, cron: Cron) -> None:
    """Ensure that an entry has this schedule; an unchanged entry keeps its next tick."""
    entry = find(tx, org_id, kind, ref)
    if entry is None or (entry.expression, entry.timezone) != (cron.expression, cron.timezone):
        put(tx, org_id, kind, ref, cron)


def find(tx: Tx, org_id: int, kind: str, ref: str) -> Due | None:
    return tx.find(tables.FIND_ENTRY, org_id=org_id, kind=kind, ref=ref)


def remove(tx: Tx, org_id: int, kind: str, ref: str) -> None:
    tx.run(tables.REMOVE_ENTRY, org_id=org_id, kind=kind, ref=ref)


def tick_to_fire(due: Due, now: int) -> tuple[int | None, int]:
    """Return the tick of a due entry that still fires, if any, and its next tick."""
    cron = Cron.parse(due.expression, due.timezone)
    latest = cron.latest_in(due.next_run_at - 1, now)
    fires = latest if latest is not None and now - latest < CATCH_UP_MS else None
    return fires, cron.next_after(now)
