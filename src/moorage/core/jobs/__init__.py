"""Asking for work: a job row in the transaction that makes it necessary.

A payload is a msgspec struct whose tag is the job's kind. The worker runs it at least once; its effects are fenced.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.jobs import tables
from moorage.core.jobs.states import JobStatus

ATTEMPTS = 8


class Lane(StrEnum):
    """Lanes have workers of their own, so that one kind of work cannot starve another."""

    SWIFT = "swift"  # what a user waits for: a moment each
    HEAVY = "heavy"  # builds, restores: minutes each
    APPS = "apps"  # bringing apps up, on the machine that runs them: seconds each
    SERVERS = "servers"  # making and changing database servers, there as well: seconds each
    BACKUPS = "backups"  # of databases, and bringing them back: minutes each
    NOTICES = "notices"  # telling receivers who may be slow to answer: seconds each
    CHORES = "chores"  # snapshots, sweeps, retention


# Wakes the workers of this process after the commit; the workers of other processes poll.
JOB_ADDED: Hook[[], None] = Hook("job.added")


@across_organizations("a job's payload names its organization")
def add(
    tx: Tx,
    payload: msgspec.Struct,
    *,
    key: str | None = None,
    lane: Lane = Lane.SWIFT,
    dedupe_key: str | None = None,
    delay_ms: int = 0,
    max_attempts: int = ATTEMPTS,
) -> int | None:
    """Add a job to the caller's transaction. Return its id, or None where one with the same dedupe key waits."""
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
    }
    job_id = tx.find(tables.ADD_ONCE, **values) if dedupe_key is not None else tx.one(tables.ADD, **values)
    for wake in tx.env.hooks.of(JOB_ADDED).values():
        tx.after_commit(wake)
    if tx.dialect == "postgresql":
        tx.run(tables.NOTIFY)
    return job_id


@across_organizations("the caller added the job itself")
def withdraw(tx: Tx, job_id: int) -> bool:
    """Remove a job that waits. False where a worker has taken it, or it has ended."""
    return tx.run(tables.WITHDRAW, id=job_id) > 0


@across_organizations("the caller added the job itself")
def postpone(tx: Tx, job_id: int, delay_ms: int) -> None:
    """Let a job that waits run no sooner than after a delay."""
    tx.run(tables.POSTPONE, id=job_id, run_at=tx.now + delay_ms, now=tx.now)


def kind_of(payload: type[msgspec.Struct]) -> str:
    tag = payload.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{payload.__name__} needs a tag: it is the job's kind")
    return tag
