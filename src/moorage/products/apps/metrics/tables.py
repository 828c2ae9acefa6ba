"""Table of the resource usage and requests of apps per minute."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
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
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, insert_for, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
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
    Column("cpu_share_us", BigInteger, nullable=False),  # CPU time that the tier allowed
    Column("span_ms", BigInteger, nullable=False),  # measured part of the minute, for the two CPU columns
    Column("memory_bytes", BigInteger, nullable=False),  # maximum, all replicas together
    Column("replicas", Integer, nullable=False),  # maximum
    Column("requests", BigInteger, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in CLASSES),
    text("latency"),  # JSON: number of requests for each bucket of `service.STEPS_MS`
    UniqueConstraint("project_id", "at"),
)
Index("ix_app_sample_at", app_sample.c.at)


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of the minutes of one bucket."""

    number: int  # of the bucket, from 0
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
    latencies: str  # of each minute, separated by commas


_s = app_sample.c
_its = (_s.org_id == arg("org_id")) & (_s.project_id == arg("project_id"))


def _add(dialect: str) -> ClauseElement:
    """Return an INSERT that adds to an existing row and returns its id and latency.

    The statement leaves the latency of an existing row; the caller merges it while it holds the row lock.
    """
    make = insert_for(dialect)
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

# The database adds up, because a week has ten thousand minutes and reading each row in Python is far slower.
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
# Minutes in the future were counted while the clock was ahead.
LAST_REQUEST_MINUTE: Query[int] = Query(
    select(_s.at).where(_its & (_s.requests > 0) & (_s.at <= arg("now"))).order_by(_s.at.desc()).limit(1),
    scalar,
)


def _hold_apps(dialect: str) -> ClauseElement:
    """Return a query of the ids that are apps; PostgreSQL locks them from deletion."""
    project_ids = arg("project_ids", Text)
    if dialect == "sqlite":
        ids = select(func.json_each(project_ids).table_valued("value").c.value)
    else:
        values = func.json_array_elements_text(cast(project_ids, JSON)).table_valued("value")
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
