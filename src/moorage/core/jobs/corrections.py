"""Corrects times that were stored while the clock was ahead.

Such a time lies further in the future than any valid one. Uncorrected, it blocks a timetable entry, a job or all jobs
of the job's key until that time.
"""

from __future__ import annotations

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import tables
from moorage.core.jobs.tables import Due
from moorage.core.jobs.timetable import CATCH_UP_MS
from moorage.core.kit.clock import SKEW_MS
from moorage.core.kit.cron import Cron
from moorage.core.kit.records import dataclass

BATCH = 500
_WHY = "a clock is wrong for every organization"


@dataclass(frozen=True, slots=True)
class Correction:
    """A stored time that was moved back."""

    what: str  # table and row
    column: str
    before: int
    after: int


@across_organizations(_WHY)
def find_ahead(tx: Tx, after: int) -> list[Due]:
    """Return a batch of timetable entries due later than clock skew explains."""
    return tx.all(tables.AHEAD, later_than=tx.now + SKEW_MS, after=after, most=BATCH)


def right_tick(entry: Due, now: int) -> int:
    """Return the correct next tick of an entry.

    After the clock was set back by up to CATCH_UP_MS, the latest tick does not fire again. After a larger step, the
    ticks since then had fired for a wrong date, and fire again.
    """
    last = entry.last_tick_at
    begin = last if last is not None and now < last <= now + CATCH_UP_MS else now
    return Cron.parse(entry.expression, entry.timezone).next_after(begin)


@across_organizations(_WHY)
def correct_ticks(tx: Tx, wrong: list[Due]) -> list[Correction]:
    done = []
    for entry in wrong:
        right = right_tick(entry, tx.now)
        if entry.next_run_at > right and tx.run(tables.CORRECT, id=entry.id, seen=entry.next_run_at, next=right):
            what = f"timetable {entry.kind} {entry.ref} of organization {entry.org_id}"
            done.append(Correction(what, "next_run_at", entry.next_run_at, right))
    return done


@across_organizations(_WHY)
def has_jobs_ahead(tx: Tx, lease_ms: int) -> bool:
    queued = tx.all(tables.QUEUED_AHEAD, latest=tx.now + SKEW_MS, most=1)
    return bool(queued or tx.all(tables.LEASED_AHEAD, latest=tx.now + lease_ms + SKEW_MS, most=1))


@across_organizations(_WHY)
def correct_jobs(tx: Tx, lease_ms: int) -> list[Correction]:
    """Restart the delay of queued jobs, and shorten leases to a new one's length."""
    done = []
    for job in tx.all(tables.QUEUED_AHEAD, latest=tx.now + SKEW_MS, most=BATCH):
        right = tx.now + max(job.at - job.written_at, 0)
        tx.run(tables.CORRECT_RUN_AT, id=job.id, seen=job.written_at, new=right, now=tx.now)
        done.append(Correction(f"job {job.id} {job.kind}", "run_at", job.at, right))
    for job in tx.all(tables.LEASED_AHEAD, latest=tx.now + lease_ms + SKEW_MS, most=BATCH):
        right = tx.now + lease_ms
        tx.run(tables.CORRECT_LEASE, id=job.id, seen=job.at, new=right)
        done.append(Correction(f"job {job.id} {job.kind}", "lease_until", job.at, right))
    return done
