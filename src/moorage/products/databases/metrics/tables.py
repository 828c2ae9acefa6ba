"""Queries of database metrics: current usage of servers, and samples over time."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Integer, Text, case, cast, delete, func, or_, select, update
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, insert_for, scalar
from moorage.core.kit.records import dataclass
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server, database, sample, server

COUNTED = ("looks", "answers", "connections", "queries_ms")
# None if the server has no such counter, or its process was not measured.
NULLABLE = ("queries", "cache_hits", "cache_reads", "cpu_milli", "cpu_looks", "memory_bytes", "memory_looks")
LATEST_VALUES = ("max_connections", "disk_bytes")  # not summed
REASON = "its disk is full"  # prefix of the status reason of a read-only database


@dataclass(frozen=True, slots=True)
class SampleSums:
    """Sums over the samples of one bucket; the disk usage is the largest."""

    number: int  # index of the bucket in the requested range
    looks: int
    answers: int
    connections: int
    queries_ms: int
    queries: int | None
    cache_hits: int | None
    cache_reads: int | None
    cpu_milli: int | None
    cpu_looks: int | None
    memory_bytes: int | None
    memory_looks: int | None
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class Latest:
    at: int
    answers: int
    connections: int
    max_connections: int | None


_d, _s, _m = database.c, server.c, sample.c
_its = (_m.org_id == arg("org_id")) & (_m.database_id == arg("database_id")) & (_m.step_s == arg("step_s"))
_runs = (_d.status == DatabaseStatus.RUNNING) & _d.deleted_at.is_(None)

RUNNING = Query(select(*columns(database)).where(_runs).order_by(_d.id), Database)
SERVERS_OF_RUNNING = Query(
    select(*columns(server)).join(database, _d.id == _s.database_id).where(_runs).order_by(_s.id), Server
)
NEVER_SEEN: Query[int] = Query(
    select(_d.id).join(server, _s.database_id == _d.id).where(_runs & _s.seen_at.is_(None)).distinct(), scalar
)


def _existing(dialect: str) -> ClauseElement:
    """Select existing databases; PostgreSQL locks the rows against deletion."""
    json_ids = arg("ids", Text)
    if dialect == "sqlite":
        ids = select(func.json_each(json_ids).table_valued("value").c.value)
    else:
        values = func.json_array_elements_text(cast(json_ids, JSON)).table_valued("value")
        ids = select(cast(values.c.value, BigInteger))
    held = select(_d.id).where(_d.id.in_(ids)).order_by(_d.id)
    return held.with_for_update(read=True, key_share=True)


EXISTING: Query[int] = Query(_existing, scalar)

# A server that switched its folder since the measurement has another token: the values do not apply to it.
SET_SEEN = Command(
    update(server)
    .where((_s.org_id == arg("org_id")) & (_s.id == arg("id")) & (_s.token == arg("token")))
    .values(
        cpu_milli=arg("cpu"),
        memory_bytes=arg("memory"),
        seen_restarts=arg("seen"),
        started_at=arg("since"),
        seen_at=arg("at"),
    )
)


def _add(dialect: str) -> ClauseElement:
    """Build an upsert that adds to the existing row."""
    insert = insert_for(dialect)
    added = insert(sample)
    changes = {name: _m[name] + added.excluded[name] for name in COUNTED}
    for name in NULLABLE:
        changes[name] = func.coalesce(_m[name] + added.excluded[name], added.excluded[name], _m[name])
    for name in LATEST_VALUES:
        changes[name] = func.coalesce(added.excluded[name], _m[name])
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["database_id", "step_s", "at"], set_=changes)
    return statement


ADD = Command(_add, sets=("org_id", "database_id", "step_s", "at", *LATEST_VALUES, *COUNTED, *NULLABLE))

_number = ((_m.at - arg("start", BigInteger)) // arg("width", BigInteger)).label("number")
SUMS = Query(
    select(
        _number,
        *(cast(func.sum(_m[name]), BigInteger) for name in (*COUNTED, *NULLABLE)),
        func.max(_m.disk_bytes).label("disk_bytes"),
    )
    .where(_its & (_m.at >= arg("start")) & (_m.at < arg("end")))
    .group_by(_number)
    .order_by(_number),
    SampleSums,
)
LATEST = Query(
    select(_m.at, _m.answers, _m.connections, _m.max_connections).where(_its).order_by(_m.at.desc()).limit(1), Latest
)
DELETE_OF_DATABASE = Command(
    delete(sample).where((_m.org_id == arg("org_id")) & (_m.database_id == arg("database_id")))
)
_oldest = select(_m.id).where((_m.step_s == arg("step_s")) & (_m.at < arg("before"))).limit(arg("most", Integer))
TRIM = Command(delete(sample).where(_m.id.in_(_oldest)))

# Running databases only: a job that changes the database sets its reason, and the next measurement comes soon.
_this = (_d.org_id == arg("org_id")) & (_d.id == arg("id")) & _runs
SET_USED = Command(update(database).where(_this).values(disk_bytes=arg("used")))
SET_FULL = Command(
    update(database)
    .where(_this)
    .values(is_full=True, disk_bytes=arg("used"), status_reason=arg("reason"), updated_at=arg("now"))
)
_is_ours = or_(_d.status_reason.like(f"{REASON}%"), _d.status_reason.is_(None))
SET_WRITABLE = Command(
    update(database)
    .where(_this)
    .values(
        is_full=False,
        disk_bytes=arg("used"),
        status_reason=case((_is_ours, None), else_=_d.status_reason),
        updated_at=arg("now"),
    )
)
