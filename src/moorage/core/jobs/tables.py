"""Tables of jobs (a transactional outbox) and of the timetable."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Index,
    Integer,
    UniqueConstraint,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    union,
    update,
)
from sqlalchemy.sql.elements import ClauseElement, ColumnElement
from sqlalchemy.sql.selectable import FromClause

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, partial_index, table, text
from moorage.core.jobs.states import JobStatus
from moorage.core.kit.records import dataclass

job = table(
    "job",
    id_column(),
    text("kind"),
    text("lane"),
    text("key", nullable=True),  # jobs with the same key run one at a time, oldest first
    text("dedupe_key", nullable=True),  # while a job with this key is queued, no second one is added
    text("payload"),  # JSON
    text("status"),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    millis("run_at"),
    millis("lease_until", nullable=True),
    text("lease_token", nullable=True),  # the fence: only its holder may write the job's effects
    text("last_error", nullable=True),
    text("trace_id", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    Column("machine_id", Id, nullable=True),  # only workers of this machine run the job; null for any
)
# Literals instead of parameters: a partial index is used only if the query contains the condition of the index.
_QUEUED = literal(JobStatus.QUEUED.value, literal_execute=True)
_RUNNING = literal(JobStatus.RUNNING.value, literal_execute=True)
_queued = job.c.status == _QUEUED
_running = job.c.status == _RUNNING
# Partial indexes of unfinished jobs, so that finished ones cost nothing.
partial_index("ix_job_due", job.c.lane, job.c.run_at, job.c.id, where=_queued)
partial_index("ix_job_lease", job.c.lease_until, where=_running)
partial_index("uq_job_running_key", job.c.key, unique=True, where=_running)
partial_index("ix_job_queued_key", job.c.key, job.c.id, where=_queued)
partial_index("uq_job_waiting", job.c.dedupe_key, unique=True, where=_queued)
Index("ix_job_finished", job.c.status, job.c.updated_at)

timetable = table(
    "timetable",
    id_column(),
    text("kind"),  # selects the handler
    Column("org_id", Id, nullable=False),  # 0 for the platform's own
    text("ref"),  # resource of the entry, for the handler
    text("expression"),
    text("timezone"),
    Column("enabled", Boolean, nullable=False),
    millis("next_run_at"),
    millis("last_tick_at", nullable=True),
    UniqueConstraint("kind", "org_id", "ref"),
)
Index("ix_timetable_due", timetable.c.enabled, timetable.c.next_run_at)


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    kind: str
    lane: str
    key: str | None
    payload: str
    status: str
    attempts: int
    max_attempts: int
    run_at: int
    trace_id: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class Due:
    id: int
    kind: str
    org_id: int
    ref: str
    expression: str
    timezone: str
    next_run_at: int
    last_tick_at: int | None = None


_j = job.c
_ROW = (
    _j.id,
    _j.kind,
    _j.lane,
    _j.key,
    _j.payload,
    _j.status,
    _j.attempts,
    _j.max_attempts,
    _j.run_at,
    _j.trace_id,
    _j.created_at,
)
_SETS = (
    "kind",
    "lane",
    "key",
    "dedupe_key",
    "payload",
    "status",
    "attempts",
    "max_attempts",
    "run_at",
    "trace_id",
    "created_at",
    "updated_at",
    "machine_id",
)
# Other processes LISTEN on this channel; PostgreSQL notifies them when the transaction commits.
CHANNEL = "moorage_jobs"
NOTIFY = Command(select(func.pg_notify(CHANNEL, "")))
ADD: Query[int] = Query(insert(job).returning(_j.id), scalar, sets=_SETS)
ADD_ONCE: Query[int] = Query(insert_or_ignore(job), scalar, sets=_SETS)
CONSIDERED = 500  # due jobs of a shared lane from each end: organizations without a free slot may have many more


def _is_due() -> ColumnElement[bool]:
    is_here = _j.machine_id.is_(None) | (_j.machine_id == arg("machine_id"))
    return (_j.lane == arg("lane")) & _queued & (_j.run_at <= arg("now")) & is_here


def _has_free_key(due: FromClause) -> ColumnElement[bool]:
    """Return the condition of due jobs whose key is free, at most one per key."""
    other = job.alias("other")
    busy = select(literal(1)).where((other.c.key == due.c.key) & (other.c.status == _RUNNING))
    older = select(literal(1)).where(
        (other.c.key == due.c.key)
        & (other.c.status == _QUEUED)
        & (other.c.id < due.c.id)
        & (other.c.run_at <= arg("now"))
    )
    return ~busy.exists() & ~older.exists()


def _claim(dialect: str) -> ClauseElement:
    """Claim due jobs, oldest first."""
    return _claim_where(dialect, _is_due() & _has_free_key(job))


def _claim_in_shares(dialect: str) -> ClauseElement:
    """Claim due jobs, oldest first; an organization gets at most as many slots as remain free.

    `most` is the number of free slots of the worker. The payloads of these jobs have an `org_id`. Only the oldest and
    the latest due jobs are considered: jobs of an organization without a free slot must not make this query slow, nor
    hide the jobs of others.
    """
    own = job.alias("own")
    org_of_own = _org_of(dialect, own.c.payload).label("org_id")
    is_own = (own.c.status == _RUNNING) & (own.c.lane == arg("lane")) & (own.c.lease_token == arg("lease"))
    running = select(org_of_own, func.count().label("count")).where(is_own).group_by(org_of_own).subquery()
    oldest = select(_j.id).where(_is_due()).order_by(_j.run_at, _j.id).limit(CONSIDERED).subquery()
    latest = select(_j.id).where(_is_due()).order_by(_j.run_at.desc(), _j.id.desc()).limit(CONSIDERED).subquery()
    ends = union(select(oldest.c.id), select(latest.c.id)).subquery()
    columns = (_j.id, _j.key, _j.run_at, _org_of(dialect, _j.payload).label("org_id"))
    due = select(*columns).select_from(ends.join(job, _j.id == ends.c.id)).cte("due")
    place = func.row_number().over(partition_by=due.c.org_id, order_by=(due.c.run_at, due.c.id))
    # Each claimed job takes a free slot and adds one to those of its organization.
    share = (arg("most", Integer) - func.coalesce(running.c.count, 0) + 1) // 2
    ranked = (
        select(due.c.id, place.label("place"), share.label("share"))
        .select_from(due.outerjoin(running, running.c.org_id == due.c.org_id))
        .where(_has_free_key(due))
        .subquery()
    )
    return _claim_where(dialect, _j.id.in_(select(ranked.c.id).where(ranked.c.place <= ranked.c.share)) & _queued)


def _org_of(dialect: str, payload: ColumnElement[str]) -> ColumnElement[Any]:
    if dialect == "postgresql":
        return func.json_extract_path_text(cast(payload, JSON), "org_id")
    return func.json_extract(payload, "$.org_id")


def _claim_where(dialect: str, condition: ColumnElement[bool]) -> ClauseElement:
    due = select(_j.id).where(condition).order_by(_j.run_at, _j.id).limit(arg("most"))
    if dialect == "postgresql":
        due = due.with_for_update(skip_locked=True)
    return (
        update(job)
        .where(_j.id.in_(due.scalar_subquery()))
        .values(
            status=JobStatus.RUNNING.value,
            attempts=_j.attempts + 1,
            lease_until=arg("until"),
            lease_token=arg("lease"),
            updated_at=arg("now"),
        )
        .returning(*_ROW)
    )


CLAIM = Query(_claim, JobRow)
CLAIM_IN_SHARES = Query(_claim_in_shares, JobRow)
_held = (_j.id == arg("id")) & (_j.lease_token == arg("lease")) & _running
# Updating the row checks the lease and locks the row until the commit: the lease cannot be lost in between.
HOLD = Command(update(job).where(_held).values(updated_at=arg("now")))
_twin = job.alias("twin")
_is_added_again = select(literal(1)).where((_twin.c.dedupe_key == _j.dedupe_key) & (_twin.c.status == _QUEUED)).exists()
# A job that is queued again gives up its dedupe key if an equal job was queued meanwhile: both run.
FINISH = Command(
    update(job)
    .where(_held)
    .values(
        status=arg("to"),
        dedupe_key=case(((arg("to") == JobStatus.QUEUED.value) & _is_added_again, null()), else_=_j.dedupe_key),
        run_at=case((arg("to") == JobStatus.QUEUED.value, arg("run_at")), else_=_j.run_at),
        last_error=arg("error"),
        lease_until=None,
        lease_token=None,
        updated_at=arg("now"),
    )
)
RENEW = Command(update(job).where(_held).values(lease_until=arg("until")))
EXPIRED = Query(select(*_ROW).where(_running & (_j.lease_until <= arg("now"))).limit(100), JobRow)
# Requeues a job whose worker died without counting the attempt.
REQUEUE_LOST = Command(
    update(job)
    .where((_j.id == arg("id")) & _running & (_j.lease_until <= arg("now")))
    .values(
        status=JobStatus.QUEUED.value,
        dedupe_key=None,
        max_attempts=_j.max_attempts + 1,
        run_at=arg("run_at"),
        lease_until=None,
        lease_token=None,
        last_error="the platform stopped while this ran",
        updated_at=arg("now"),
    )
)
# Requeues jobs whose worker died; the worker fails those without attempts left.
RELEASE_EXPIRED = Command(
    update(job)
    .where(_running & (_j.lease_until <= arg("now")) & (_j.attempts < _j.max_attempts))
    .values(
        status=JobStatus.QUEUED.value,
        dedupe_key=None,  # An equal job may be queued already, or be released with it.
        lease_until=None,
        lease_token=None,
        last_error="the platform stopped while this ran",
        updated_at=arg("now"),
    )
)
EXHAUSTED = Query(
    select(*_ROW).where(_running & (_j.lease_until <= arg("now")) & (_j.attempts >= _j.max_attempts)).limit(100), JobRow
)
TAKE_EXHAUSTED = Command(
    update(job)
    .where((_j.id == arg("id")) & _running & (_j.lease_until <= arg("now")))
    .values(lease_token=arg("lease"), lease_until=arg("until"))
)
EXPIRE_ALL = Command(update(job).where(_running).values(lease_until=0))
FORGET = Command(delete(job).where((_j.status == arg("status")) & (_j.updated_at < arg("before"))))
COUNTS = Query(select(_j.status, func.count()).group_by(_j.status), pair)
FIND = Query(select(*_ROW).where(_j.id == arg("id")), JobRow)
_waiting = (_j.id == arg("id")) & _queued
WITHDRAW = Command(delete(job).where(_waiting))
POSTPONE = Command(update(job).where(_waiting).values(run_at=arg("run_at"), updated_at=arg("now")))
NEXT_DUE = Query(select(func.min(_j.run_at)).where(_queued), scalar)
OLDEST_LEASE = Query(select(func.min(_j.lease_until)).where(_running), scalar)


@dataclass(frozen=True, slots=True)
class TimedJob:
    id: int
    kind: str
    at: int  # time of the next run, or end of the lease
    written_at: int


# Jobs queued while the clock was ahead.
QUEUED_AHEAD = Query(
    select(_j.id, _j.kind, _j.run_at, _j.updated_at)
    .where(_queued & (_j.updated_at > arg("latest")))
    .limit(arg("most")),
    TimedJob,
)
CORRECT_RUN_AT = Command(
    update(job)
    .where((_j.id == arg("id")) & _queued & (_j.updated_at == arg("seen")))
    .values(
        run_at=arg("new"),
        updated_at=arg("now"),
        created_at=case((_j.created_at > arg("now"), arg("now")), else_=_j.created_at),
    )
)
# Leases longer than any valid one: the clock of the worker was ahead, and the worker may have died.
LEASED_AHEAD = Query(
    select(_j.id, _j.kind, _j.lease_until, _j.updated_at)
    .where(_running & (_j.lease_until > arg("latest")))
    .limit(arg("most")),
    TimedJob,
)
CORRECT_LEASE = Command(
    update(job).where((_j.id == arg("id")) & _running & (_j.lease_until == arg("seen"))).values(lease_until=arg("new"))
)

_t = timetable.c
# Kinds of ticks that only other processes can handle; "" for none.
_is_handled = (_t.kind != arg("skipped")) & (_t.kind != arg("also_skipped"))
DUE = Query(
    select(_t.id, _t.kind, _t.org_id, _t.ref, _t.expression, _t.timezone, _t.next_run_at)
    .where(_t.enabled & (_t.next_run_at <= arg("now")) & _is_handled)
    .order_by(_t.next_run_at, _t.id)
    .limit(arg("most")),
    Due,
)
NEXT_TICK = Query(select(func.min(_t.next_run_at)).where(_t.enabled & _is_handled), scalar)
# Compare and set: of several schedulers that see the same tick, one advances the entry, and only that one fires.
ADVANCE = Command(
    update(timetable)
    .where((_t.id == arg("id")) & (_t.next_run_at == arg("seen")) & _t.enabled)
    .values(next_run_at=arg("next"), last_tick_at=arg("tick"))
)
AHEAD = Query(
    select(_t.id, _t.kind, _t.org_id, _t.ref, _t.expression, _t.timezone, _t.next_run_at, _t.last_tick_at)
    .where(_t.enabled & (_t.next_run_at > arg("later_than")) & (_t.id > arg("after")))
    .order_by(_t.id)
    .limit(arg("most")),
    Due,
)
CORRECT = Command(
    update(timetable)
    .where((_t.id == arg("id")) & (_t.next_run_at == arg("seen")) & _t.enabled)
    .values(next_run_at=arg("next"))
)
_entry = (_t.kind == arg("kind")) & (_t.org_id == arg("org_id")) & (_t.ref == arg("ref"))
ADD_ENTRY: Query[int] = Query(
    insert_or_ignore(timetable),
    scalar,
    sets=("kind", "org_id", "ref", "expression", "timezone", "enabled", "next_run_at"),
)
SET_ENTRY = Command(
    update(timetable)
    .where(_entry)
    .values(expression=arg("expr"), timezone=arg("zone"), enabled=arg("on"), next_run_at=arg("next"))
)
FIND_ENTRY = Query(
    select(_t.id, _t.kind, _t.org_id, _t.ref, _t.expression, _t.timezone, _t.next_run_at).where(_entry), Due
)
REMOVE_ENTRY = Command(delete(timetable).where(_entry))
