"""What apps used and were asked for, minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    case,
    cast,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.products.projects.tables import project

CLASSES = ("s1xx", "s2xx", "s3xx", "s4xx", "s5xx")
ADDED = ("cpu_us", "cpu_share_us", "span_ms", "requests", *CLASSES)
HIGHEST = ("memory_bytes", "replicas")
NOTHING = dict.fromkeys((*ADDED, *HIGHEST), 0)
EMPTY = "[]"  # the latency of no requests

app_sample = table(
    "app_sample",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    millis("at"),  # the start of the minute
    Column("cpu_us", BigInteger, nullable=False),  # used by all replicas
    Column("cpu_share_us", BigInteger, nullable=False),  # what their tier allowed them meanwhile
    Column("span_ms", BigInteger, nullable=False),  # how much of the minute these two were measured in
    Column("memory_bytes", BigInteger, nullable=False),  # the most that all replicas had together
    Column("replicas", Integer, nullable=False),  # the most there were
    Column("requests", BigInteger, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in CLASSES),
    text("latency"),  # JSON: how many requests took as long as each step of `metrics.STEPS_MS`
    UniqueConstraint("project_id", "at"),
)
Index("ix_app_sample_at", app_sample.c.at)


@dataclass(frozen=True, slots=True)
class Sums:
    """What some minutes that follow one another come to."""

    number: int  # which part of the span of time that was asked for
    cpu_us: int
    cpu_share_us: int
    span_ms: int
    requests: int
    s1xx: int
    s2xx: int
    s3xx: int
    s4xx: int
    s5xx: int
    memory_bytes: int
    replicas: int
    latencies: str  # of each minute, with commas between


_s = app_sample.c
_its = (_s.org_id == arg("org_id")) & (_s.project_id == arg("project_id"))


def _add(dialect: str) -> ClauseElement:
    """An INSERT that adds to the row which is there already, and returns its id and latency.

    The latency of a row that was there stays: whoever has more merges it. The row is theirs until the unit ends.
    """
    make: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    added = make(app_sample)
    changes = {name: _s[name] + added.excluded[name] for name in ADDED}
    for name in HIGHEST:
        changes[name] = case((added.excluded[name] > _s[name], added.excluded[name]), else_=_s[name])
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["project_id", "at"], set_=changes).returning(
        _s.id, _s.latency
    )
    return statement


ADD: Query[tuple[int, str]] = Query(_add, pair, sets=("org_id", "project_id", "at", *ADDED, *HIGHEST, "latency"))
SET_LATENCY = Command(update(app_sample).where(_s.id == arg("id")).values(latency=arg("new")))

# The store adds up: a week has ten thousand minutes, and to read each of them would take Python far longer.
_number = ((_s.at - arg("start", BigInteger)) // arg("width", BigInteger)).label("number")
SUMS = Query(
    select(
        _number,
        *(cast(func.sum(_s[name]), BigInteger) for name in ADDED),
        *(func.max(_s[name]) for name in HIGHEST),
        func.aggregate_strings(_s.latency, ","),
    )
    .where(_its & (_s.at >= arg("start")) & (_s.at < arg("end")))
    .group_by(_number)
    .order_by(_number),
    Sums,
)
# Minutes that lie ahead were counted by a clock that was ahead, and say nothing about now.
LAST_ASKED: Query[int] = Query(
    select(_s.at).where(_its & (_s.requests > 0) & (_s.at <= arg("now"))).order_by(_s.at.desc()).limit(1),
    scalar,
)


def _hold_apps(dialect: str) -> ClauseElement:
    """Of some projects, those that exist and are apps. On PostgreSQL they cannot go until the end of the unit."""
    given = arg("given", Text)
    if dialect == "sqlite":
        ids = select(func.json_each(given).table_valued("value").c.value)
    else:
        values = func.json_array_elements_text(cast(given, postgresql.JSON)).table_valued("value")
        ids = select(cast(values.c.value, BigInteger))
    return (
        select(project.c.id)
        .where(project.c.id.in_(ids) & (project.c.slug == "container"))
        .order_by(project.c.id)
        .with_for_update(read=True, key_share=True)
    )


HOLD_APPS: Query[int] = Query(_hold_apps, scalar)

DELETE_OF_PROJECT = Command(delete(app_sample).where(_its))
_oldest = select(_s.id).where(_s.at < arg("before")).limit(arg("most", Integer))
TRIM = Command(delete(app_sample).where(_s.id.in_(_oldest)))
