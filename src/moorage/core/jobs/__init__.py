"""Adds jobs: rows in the same transaction as the change that requires the work.

A payload is a msgspec struct whose tag is the kind of the job. The worker runs a job at least once; the lease fences
its writes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.jobs import tables
from moorage.core.jobs.states import JobStatus

DEFAULT_MAX_ATTEMPTS = 8


class Lane(StrEnum):
    """Each lane has its own worker slots, so that no kind of work starves another."""

    INTERACTIVE = "swift"  # interactive work that a user waits for: less than a second each
    HEAVY = "heavy"  # builds, restores: minutes each
    APPS = "apps"  # starting apps, on the machine that runs them: seconds each
    SERVERS = "servers"  # creating and changing database servers, on the machine that runs them: seconds each
    BACKUPS = "backups"  # backups and restores of databases: minutes each
    NOTICES = "notices"  # notifications to receivers that may answer slowly: seconds each
    CHORES = "chores"  # snapshots, sweeps, retention


# Wakes the workers of this process after the commit; the workers of other processes poll.
JOB_ADDED: Hook[[], None] = Hook("job.added")


@across_organizations("a job's payload names its organization")
def add(
    tx: Tx,
    payload: msgspec.Struct,
    *,
    key: str | None = None,
    lane: Lane = Lane.INTERACTIVE,
    dedupe_key: str | None = None,
    delay_ms: int = 0,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    machine_id: int | None = None,
) -> int | None:
    """Add a job; return its id, or None if its dedupe key is queued.

    With a `machine_id`, only workers of that machine run it.
    """
    values = {
        "kind": kind_of(type(payload)),
        "lane": lane,
        "key": key,
        "dedupe_key": dedupe_key,
        "payload": msgspec.json.encode(payload).decode(),
        "status": JobStatus.QUEUED,
        "attempts": 0,
        "max_attempts": max_attempts,
        "run_at": tx.now + delay_ms,
        "trace_id": tx.trace_id,
        "created_at": tx.now,
        "updated_at": tx.now,
        "machine_id": machine_id,
    }
    job_id = tx.find(tables.ADD_ONCE, **values) if dedupe_key is not None else tx.one(tables.ADD, **values)
    for wake in tx.env.hooks.of(JOB_ADDED).values():
        tx.after_commit(wake)
    if tx.dialect == "postgresql":
        tx.run(tables.NOTIFY)
    return job_id


@across_organizations("the caller added the job itself")
def withdraw(tx: Tx, job_id: int) -> bool:
    """Remove a queued job; return False if it already runs or has ended."""
    return tx.run(tables.WITHDRAW, id=job_id) > 0


@across_organizations("the caller added the job itself")
def postpone(tx: Tx, job_id: int, delay_ms: int) -> None:
    """Delay a queued job."""
    tx.run(tables.POSTPONE, id=job_id, run_at=tx.now + delay_ms, now=tx.now)


def kind_of(payload: type[msgspec.Struct]) -> str:
    tag = payload.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{payload.__name__} needs a tag: it is the job's kind")
    return tag
