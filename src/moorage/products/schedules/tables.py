"""Tables of scheduled functions and of their uncounted runs."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Text,
    UniqueConstraint,
    case,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.jobs.tables import timetable
from moorage.core.kit.records import dataclass
from moorage.products.functions.tables import function

KIND = "schedule"  # kind of the timetable entries; `ref` is the schedule's id

schedule = table(
    "schedule",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("name"),
    Column("function_id", Id, ForeignKey("function.id"), nullable=False),
    text("cron"),
    text("timezone"),
    Column("enabled", Boolean, nullable=False),
    text("params"),  # JSON: a record
    millis("last_run_at", nullable=True),
    text("last_status", nullable=True),  # `success` or `error`
    text("last_error", nullable=True),
    Column("total_runs", BigInteger, nullable=False),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "name"),
)
Index("ix_schedule_function_id", schedule.c.function_id)

# A row exists from the tick until the run is counted, so that a run is sent and counted once.
schedule_run = table(
    "schedule_run",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("schedule_id", Id, nullable=False),
    text("activation_id", unique=True),
    millis("due_at"),
    millis("started_at", nullable=True),  # when the edge passed it to a worker
)


@dataclass(frozen=True, slots=True)
class Schedule:
    id: int
    org_id: int
    name: str
    function_id: int
    cron: str
    timezone: str
    enabled: bool
    params: str
    last_run_at: int | None
    last_status: str | None
    last_error: str | None
    total_runs: int
    created_at: int
    updated_at: int
    function_name: str | None
    next_run_at: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """An uncounted run, with the fields of its invocation."""

    org_id: int
    schedule_id: int
    activation_id: str
    due_at: int
    started_at: int | None
    function_id: int | None  # None if the schedule is deleted
    params: str | None
    timeout_ms: int | None


_s, _r, _f, _t = schedule.c, schedule_run.c, function.c, timetable.c
_mine = _s.org_id == arg("org_id")
_this = _mine & (_s.id == arg("id"))
_entry = (_t.kind == KIND) & (_t.org_id == _s.org_id) & (_t.ref == cast(_s.id, Text))
_schedules = (
    select(*schedule.c, _f.name, case((_s.enabled, _t.next_run_at)))
    .select_from(schedule)
    .outerjoin(function, _f.id == _s.function_id)
    .outerjoin(timetable, _entry)
)


def _locked(dialect: str) -> ClauseElement:
    """Select and lock a schedule, to serialise updates."""
    row = _schedules.where(_this)
    return row.with_for_update(of=schedule) if dialect == "postgresql" else row


FIND = Query(_schedules.where(_this), Schedule)
LOCK = Query(_locked, Schedule)
ALL_OF = Query(_schedules.where(_mine).order_by(_s.id), Schedule)
IDS_OF_FUNCTION: Query[int] = Query(select(_s.id).where(_mine & (_s.function_id == arg("function_id"))), scalar)
COUNT_OF_ORG: Query[int] = Query(select(func.count()).select_from(schedule).where(_mine), scalar)
IDS_OF_ORG: Query[int] = Query(select(_s.id).where(_mine), scalar)
ADD: Query[int] = Query(
    insert_or_ignore(schedule),
    scalar,
    sets=tuple(
        column.name for column in schedule.c if column.name not in ("id", "last_run_at", "last_status", "last_error")
    ),
)
UPDATE = Command(
    update(schedule)
    .where(_this)
    .values(
        cron=arg("new_cron"),
        timezone=arg("new_timezone"),
        enabled=arg("new_enabled"),
        params=arg("new_params"),
        updated_at=arg("now"),
    )
)
DELETE = Command(delete(schedule).where(_this))

_runs = (
    select(*schedule_run.c[1:], _s.function_id, _s.params, _f.timeout_ms)
    .select_from(schedule_run)
    .outerjoin(schedule, _s.id == _r.schedule_id)
    .outerjoin(function, _f.id == _s.function_id)
)
ADD_RUN = Command(insert(schedule_run), sets=("org_id", "schedule_id", "activation_id", "due_at"))
# Invocation fields of a new run.
TO_RUN: Query[tuple[int, str, int]] = Query(
    select(_s.function_id, _s.params, _f.timeout_ms).join(function, _f.id == _s.function_id).where(_this),
    lambda *row: (row[0], row[1], row[2]),
)
FIND_RUN = Query(_runs.where(_r.activation_id == arg("activation_id")), Run)
# The oldest run of each organization first: many runs of one organization must not hide those of others.
_turn = func.row_number().over(partition_by=_r.org_id, order_by=_r.id)
OPEN_RUNS = Query(_runs.where(_r.due_at <= arg("before")).order_by(_turn, _r.id).limit(arg("most")), Run)
SET_STARTED = Command(
    update(schedule_run)
    .where((_r.activation_id == arg("activation_id")) & _r.started_at.is_(None))
    .values(started_at=arg("started"))
)
# Only the transaction that deletes the row counts the run.
TAKE_RUN: Query[int] = Query(
    delete(schedule_run).where(_r.activation_id == arg("activation_id")).returning(_r.schedule_id), scalar
)
DELETE_RUNS_OF = Command(delete(schedule_run).where((_r.org_id == arg("org_id")) & (_r.schedule_id == arg("id"))))

# Runs may end out of order; the shown status is that of the run that started last.
_is_latest = _s.last_run_at.is_(None) | (_s.last_run_at <= arg("started", BigInteger))
COUNT_RUN = Command(
    update(schedule)
    .where(_s.id == arg("id"))
    .values(
        total_runs=_s.total_runs + 1,
        last_run_at=case((_is_latest, arg("started", BigInteger)), else_=_s.last_run_at),
        last_status=case((_is_latest, arg("status", Text)), else_=_s.last_status),
        last_error=case((_is_latest, arg("error", Text)), else_=_s.last_error),
    )
)
