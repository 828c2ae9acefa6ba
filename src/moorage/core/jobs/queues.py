"""Jobs as operators see them: depth of queues, failing jobs, and their retry or removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sqlalchemy import delete, func, select, update

from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.jobs import JOB_ADDED, tables
from moorage.core.jobs.states import JobStatus
from moorage.core.jobs.tables import job
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, NotFound

_WHY = "the operator sees the jobs of every organization"
FailingState = Literal["failed", "retrying"]


@dataclass(frozen=True, slots=True)
class QueueDepth:
    kind: str
    lane: str
    status: str
    count: int
    run_at: int  # the earliest
    created_at: int  # of the oldest


@dataclass(frozen=True, slots=True)
class FailingJob:
    id: int
    kind: str
    lane: str
    key: str | None
    payload: str
    status: str
    attempts: int
    max_attempts: int
    run_at: int
    last_error: str | None
    trace_id: str | None
    created_at: int
    updated_at: int


_j = job.c
_FAILING = (
    *(_j.id, _j.kind, _j.lane, _j.key, _j.payload, _j.status, _j.attempts, _j.max_attempts, _j.run_at),
    *(_j.last_error, _j.trace_id, _j.created_at, _j.updated_at),
)
_DEPTH = Query(
    select(_j.kind, _j.lane, _j.status, func.count(), func.min(_j.run_at), func.min(_j.created_at))
    .where(_j.status == arg("status"))
    .group_by(_j.kind, _j.lane, _j.status)
    .order_by(_j.kind, _j.lane),
    QueueDepth,
)
_with_error = (_j.status == arg("status")) & _j.last_error.is_not(None)
_PAGE = Query(
    select(*_FAILING)
    .where(_with_error)
    .order_by(_j.updated_at.desc(), _j.id.desc())
    .limit(arg("most"))
    .offset(arg("skip")),
    FailingJob,
)
_COUNT: Query[int] = Query(select(func.count()).select_from(job).where(_with_error), scalar)
_FIND = Query(select(*_FAILING).where(_j.id == arg("id")), FailingJob)
_RETRY_FAILED = Command(
    update(job)
    .where((_j.id == arg("id")) & (_j.status == JobStatus.FAILED.value))
    .values(status=JobStatus.QUEUED.value, attempts=0, run_at=arg("now"), updated_at=arg("now"))
)
_FAIL_QUEUED = Command(
    update(job)
    .where((_j.id == arg("id")) & (_j.status == JobStatus.QUEUED.value))
    .values(status=JobStatus.FAILED.value, last_error=arg("error"), updated_at=arg("now"))
)
_REMOVE_FAILED = Command(delete(job).where((_j.id == arg("id")) & (_j.status == JobStatus.FAILED.value)))
_STATUS = {"failed": JobStatus.FAILED, "retrying": JobStatus.QUEUED}


@across_organizations(_WHY)
def depths(tx: Tx) -> list[QueueDepth]:
    """Return the number of unfinished and failed jobs by kind, lane and status."""
    statuses = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FAILED)
    return [depth for status in statuses for depth in tx.all(_DEPTH, status=status)]


@across_organizations(_WHY)
def failing(tx: Tx, state: FailingState, *, skip: int, most: int) -> tuple[list[FailingJob], int]:
    """Return a page of jobs that failed, or that wait for another attempt after an error; and their number."""
    status = _STATUS[state]
    return tx.all(_PAGE, status=status, skip=skip, most=most), tx.one(_COUNT, status=status)


@across_organizations(_WHY)
def get(tx: Tx, job_id: int) -> FailingJob:
    failing_job = tx.find(_FIND, id=job_id)
    if failing_job is None:
        raise NotFound("There is no such job")
    return failing_job


@across_organizations(_WHY)
def retry(tx: Tx, failing_job: FailingJob, *, was_undone: bool) -> None:
    """Run a queued job now, or a failed one again from its first attempt.

    `was_undone`: the job's handler has already marked its resource as failed, and a user may have started another.
    """
    if failing_job.status == JobStatus.QUEUED:
        tx.run(tables.POSTPONE, id=failing_job.id, run_at=tx.now, now=tx.now)
    elif failing_job.status == JobStatus.FAILED:
        if was_undone:
            raise Conflict("Its resource is marked as failed already; start the work again there, not the job")
        try:
            with tx.savepoint():
                tx.run(_RETRY_FAILED, id=failing_job.id, now=tx.now)
        except UniqueClash:
            raise Conflict("An equal job is queued already") from None
    else:
        raise Conflict(f"The job is {failing_job.status}; only a failed or queued one can be tried again")
    for wake in tx.env.hooks.of(JOB_ADDED).values():
        tx.after_commit(wake)


@across_organizations(_WHY)
def discard(tx: Tx, failing_job: FailingJob, undo: Callable[[], None] | None, why: str) -> None:
    """Remove a failed job from the list, or end a queued one as failed, with the effects of a failure (`undo`)."""
    if failing_job.status == JobStatus.FAILED:
        tx.run(_REMOVE_FAILED, id=failing_job.id)
    elif failing_job.status != JobStatus.QUEUED:
        raise Conflict(f"The job is {failing_job.status}; only a failed or queued one can be discarded")
    elif undo is None:
        raise Conflict("Without this job its resource would stay in between two states; try it again instead")
    elif tx.run(_FAIL_QUEUED, id=failing_job.id, error=why, now=tx.now):
        undo()
    else:
        raise Conflict("The job was started just now")
