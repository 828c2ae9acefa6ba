"""Tables of invocations, counters per minute and positions in spool files."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Select,
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

from moorage.core.db.query import Command, Query, arg, insert_for, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.products.functions.tables import function

invocation = table(
    "invocation",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("function_id", Id, nullable=False),
    Column("version", Integer, nullable=False),
    text("activation_id"),
    text("door"),  # `web`, `api` or `schedule`
    Column("schedule_id", Id, nullable=True),
    millis("started_at"),
    Column("duration_us", BigInteger, nullable=False),
    Column("wait_us", BigInteger, nullable=False),
    Column("cold", Boolean, nullable=False),
    Column("ok", Boolean, nullable=False),
    text("error", nullable=True),
    # Log text of an invocation that was recorded before log files existed: compressed entries, both streams.
    Column("logs", LargeBinary, nullable=True),
    text("log_ref", nullable=True),  # reference to its text in the function's log files, see `log_files.py`
)
Index("ix_invocation_function_id_id", invocation.c.function_id, invocation.c.id)

function_minute = table(
    "function_minute",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("function_id", Id, nullable=False),
    millis("minute"),  # its start
    Column("invocations", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("cold_starts", BigInteger, nullable=False),
    Column("duration_us", BigInteger, nullable=False),  # the sum
    Column("mb_ms", BigInteger, nullable=False),  # sum of memory limit times duration: the unit of usage
    UniqueConstraint("function_id", "minute"),
)
Index("ix_function_minute_org_id_minute", function_minute.c.org_id, function_minute.c.minute)

spool_file = table(
    "spool_file",
    id_column(),
    text("name", unique=True),
    Column("position", BigInteger, nullable=False),  # every record before this offset is stored
    millis("updated_at"),
)


@dataclass(frozen=True, slots=True)
class Invocation:
    id: int
    org_id: int
    function_id: int
    version: int
    activation_id: str
    door: str
    started_at: int
    duration_us: int
    wait_us: int
    cold: bool
    ok: bool
    error: str | None
    log_ref: str | None
    stored_size: int  # bytes of the text in the row itself
    small_logs: bytes | None  # that text, if at most SMALL bytes


@dataclass(frozen=True, slots=True)
class Bucket:
    """Counters of one time span."""

    start: int
    invocations: int
    errors: int
    duration_us: int


SMALL = 64 * 2**10  # Logs up to this size are read with their row; larger ones separately.

_i, _m, _s = invocation.c, function_minute.c, spool_file.c
# Callers have looked up the function with its organization. A filter on the function alone lets most queries use only
# the index, which keeps counting and trimming 10,000 rows cheap.
_mine = _i.function_id == arg("function_id")
_size = func.coalesce(func.length(_i.logs), 0)
_ROW = (
    _i.id,
    _i.org_id,
    _i.function_id,
    _i.version,
    _i.activation_id,
    _i.door,
    _i.started_at,
    _i.duration_us,
    _i.wait_us,
    _i.cold,
    _i.ok,
    _i.error,
    _i.log_ref,
    _size,
    case((_size <= SMALL, _i.logs)),
)

FUNCTION_ID: Query[int] = Query(
    select(function.c.id).where((function.c.org_id == arg("org_id")) & (function.c.name == arg("name"))), scalar
)
PAGE = Query(
    select(*_ROW).where(_mine).order_by(_i.id.desc()).limit(arg("most", Integer)).offset(arg("offset", BigInteger)),
    Invocation,
)
COUNT: Query[int] = Query(select(func.count()).where(_mine), scalar)
AFTER = Query(
    select(*_ROW).where(_mine & (_i.id > arg("after"))).order_by(_i.id).limit(arg("most", Integer)), Invocation
)
_this = (_i.org_id == arg("org_id")) & (_i.id == arg("id"))
FIND = Query(select(*_ROW).where(_this), Invocation)
LOGS: Query[bytes | None] = Query(select(_i.logs).where(_this), scalar)
# The id before the newest `most` rows of a function; no row if the function has at most `most` rows.
BEFORE_NEWEST: Query[int] = Query(
    select(_i.id).where(_mine).order_by(_i.id.desc()).limit(1).offset(arg("most", BigInteger)), scalar
)

# The columns of a new row, in the order of a spool record.
ADDED = (
    "door",
    "ok",
    "cold",
    "function_id",
    "org_id",
    "version",
    "started_at",
    "duration_us",
    "wait_us",
    "schedule_id",
    "activation_id",
    "error",
    "log_ref",
)
ROWS_PER_INSERT = 50  # Half the cost of single-row statements; more rows gain little.
_ADD = Command(insert(invocation), sets=ADDED)
_ADD_MANY = Command(
    insert(invocation).values([{name: arg(f"{name}{row}") for name in ADDED} for row in range(ROWS_PER_INSERT)])
)
_ADD_MANY_NAMES = tuple(f"{name}{row}" for row in range(ROWS_PER_INSERT) for name in ADDED)
_BY_ACTIVATION = Query(
    select(*_ROW)
    .where(_mine & (_i.activation_id == arg("activation_id")) & (_i.id > arg("after")))
    .order_by(_i.id.desc())
    .limit(1),
    Invocation,
)
SET_LOG_REF = Command(update(invocation).where(_this).values(log_ref=arg("new")))
# Replaces the references of a row by one, if they have not changed since they were read.
JOIN_LOGS = Command(update(invocation).where(_this & (_i.log_ref == arg("was"))).values(log_ref=arg("new"), logs=None))


def _add_to_minute(dialect: str) -> ClauseElement:
    make = insert_for(dialect)
    added = make(function_minute)
    names = ("invocations", "errors", "cold_starts", "duration_us", "mb_ms")
    sums = {name: function_minute.c[name] + added.excluded[name] for name in names}
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["function_id", "minute"], set_=sums)
    return statement


ADD_TO_MINUTE = Command(
    _add_to_minute,
    sets=("org_id", "function_id", "minute", "invocations", "errors", "cold_starts", "duration_us", "mb_ms"),
)


def _existing_functions(dialect: str) -> Select[tuple[int]]:
    """Select those of the given ids that are functions."""
    ids = arg("ids", Text)
    if dialect == "sqlite":
        given = select(func.json_each(ids).table_valued("value").c.value)
    else:
        texts = func.json_array_elements_text(cast(ids, JSON)).table_valued("value")
        given = select(cast(texts.c.value, BigInteger))
    return select(function.c.id).where(function.c.id.in_(given)).order_by(function.c.id)


def _lock_functions(dialect: str) -> ClauseElement:
    """Select the existing functions and, on PostgreSQL, lock them in order.

    The lock prevents the deletion of a function while its records are written. It also serialises two machines that
    record calls of one function: the second gets its row ids after the first has committed, so a reader that follows
    the ids misses no row.
    """
    return _existing_functions(dialect).with_for_update(key_share=True)


_EXISTING_FUNCTIONS: Query[int] = Query(_existing_functions, scalar)
_LOCK_FUNCTIONS: Query[int] = Query(_lock_functions, scalar)
_LOCK_FUNCTION: Query[int] = Query(
    select(function.c.id)
    .where((function.c.org_id == arg("org_id")) & (function.c.id == arg("function_id")))
    .with_for_update(),
    scalar,
)

POSITIONS = Query(select(_s.name, _s.position).where(_s.name.like(arg("pattern"))), lambda name, at: (name, at))
ADD_FILE: Query[int] = Query(insert_or_ignore(spool_file), scalar, sets=("name", "position", "updated_at"))
ADVANCE_POSITION = Command(
    update(spool_file)
    .where((_s.name == arg("file")) & (_s.position == arg("was")))
    .values(position=arg("to"), updated_at=arg("now"))
)
DELETE_FILE = Command(delete(spool_file).where(_s.name == arg("file")))

_bucket = (_m.minute // arg("width", BigInteger) * arg("width", BigInteger)).label("bucket")
BUCKETS = Query(
    select(
        _bucket,
        cast(func.sum(_m.invocations), BigInteger),
        cast(func.sum(_m.errors), BigInteger),
        cast(func.sum(_m.duration_us), BigInteger),
    )
    .where(
        (_m.org_id == arg("org_id"))
        & (_m.function_id == arg("function_id"))
        & (_m.minute >= arg("start"))
        & (_m.minute < arg("end"))
    )
    .group_by(_bucket),
    Bucket,
)
USED = Query(
    select(
        cast(func.coalesce(func.sum(_m.invocations), 0), BigInteger),
        cast(func.coalesce(func.sum(_m.mb_ms), 0), BigInteger),
    ).where((_m.org_id == arg("org_id")) & (_m.minute >= arg("start"))),
    lambda invocations, mb_ms: (invocations, mb_ms),
)

_oldest = select(_i.id).where(_mine & (_i.id <= arg("upto"))).order_by(_i.id).limit(arg("most", Integer))
TRIM_FUNCTION = Command(delete(invocation).where(_i.id.in_(_oldest)))
# Ids grow with time, so the oldest rows have the lowest ids, and no index on the time is needed.
_first = select(_i.id).order_by(_i.id).limit(arg("most", Integer))
TRIM_OLD = Command(delete(invocation).where(_i.id.in_(_first) & (_i.started_at < arg("before"))))
_first_minutes = select(_m.id).order_by(_m.id).limit(arg("most", Integer))
TRIM_MINUTES = Command(delete(function_minute).where(_m.id.in_(_first_minutes) & (_m.minute < arg("before"))))
CROWDED: Query[int] = Query(
    select(_i.function_id).group_by(_i.function_id).having(func.count() > arg("most", Integer)), scalar
)
_DELETE_ALL = Command(delete(invocation).where(_mine & (_i.org_id == arg("org_id"))))


@across_organizations("a batch has calls of many organizations")
def lock_functions(tx: Tx, ids: set[int]) -> set[int]:
    """Return the existing functions and lock them until the transaction ends."""
    return set(tx.all(_LOCK_FUNCTIONS, ids=msgspec.json.encode(sorted(ids)).decode()))


@across_organizations("log files belong to the platform")
def existing_functions(tx: Tx, ids: set[int]) -> set[int]:
    return set(tx.all(_EXISTING_FUNCTIONS, ids=msgspec.json.encode(sorted(ids)).decode()))


@across_organizations("a batch has calls of many organizations")
def add(tx: Tx, rows: list[list[Any]]) -> None:
    """Add invocations, each with its values in the order of `ADDED`."""
    full = len(rows) - len(rows) % ROWS_PER_INSERT
    groups = [chain.from_iterable(rows[at : at + ROWS_PER_INSERT]) for at in range(0, full, ROWS_PER_INSERT)]
    if groups:
        tx.run_many(_ADD_MANY, [dict(zip(_ADD_MANY_NAMES, values, strict=True)) for values in groups])
    if full < len(rows):
        tx.run_many(_ADD, [dict(zip(ADDED, row, strict=True)) for row in rows[full:]])


def find_activation(tx: Tx, org_id: int, function_id: int, activation_id: str, *, among: int) -> Invocation | None:
    """Return an invocation by its activation id, among the newest of a function."""
    before = tx.find(BEFORE_NEWEST, function_id=function_id, most=among)
    row = tx.find(_BY_ACTIVATION, function_id=function_id, activation_id=activation_id, after=before or 0)
    return row if row is not None and row.org_id == org_id else None


def read_logs(tx: Tx, org_id: int, row: Invocation) -> bytes | None:
    """Return the log text in the row of an invocation, of any size."""
    return tx.find(LOGS, org_id=org_id, id=row.id) if row.stored_size > SMALL else row.small_logs


@across_organizations("retention is the same for all organizations")
def keep_newest(tx: Tx, function_id: int, *, most: int, at_once: int) -> int:
    """Delete the oldest rows of a function beyond `most`; return how many."""
    upto = tx.find(BEFORE_NEWEST, function_id=function_id, most=most)
    return 0 if upto is None else tx.run(TRIM_FUNCTION, function_id=function_id, upto=upto, most=at_once)


def delete_all_of(tx: Tx, org_id: int, function_id: int) -> None:
    """Delete a function's invocations, in the transaction that deletes the function.

    The function's row is locked first, so that records of a concurrent recorder are committed and deleted too. The
    counters stay until they expire: deleting a function does not reduce the organization's usage of the month.
    """
    tx.find(_LOCK_FUNCTION, org_id=org_id, function_id=function_id)
    tx.run(_DELETE_ALL, org_id=org_id, function_id=function_id)
