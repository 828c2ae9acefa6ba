"""Tables of hourly figures, daily top lists, recent visitors and read positions."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Index,
    Integer,
    Select,
    Table,
    Text,
    UniqueConstraint,
    cast,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, Source, arg, insert_for, insert_or_ignore, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.projects.tables import project

PATH, REFERRER = "path", "referrer"
OTHER = ""  # name of the row for all names without an own row; real paths and hosts are never empty
STATUSES = ("s2xx", "s3xx", "s4xx", "s5xx")

analytics_hour = table(
    "analytics_hour",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    millis("hour"),  # its start
    Column("requests", BigInteger, nullable=False),
    Column("visitors", BigInteger, nullable=False),  # distinct visitors in this hour
    Column("newcomers", BigInteger, nullable=False),  # visitors with their first request of the day in this hour
    Column("bytes", BigInteger, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in STATUSES),
    UniqueConstraint("project_id", "hour"),
)
Index("ix_analytics_hour_hour", analytics_hour.c.hour)

analytics_top = table(
    "analytics_top",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    text("kind"),  # `path` or `referrer`
    millis("day"),  # its start
    text("name"),
    Column("requests", BigInteger, nullable=False),
    UniqueConstraint("project_id", "kind", "day", "name"),
)
Index("ix_analytics_top_day", analytics_top.c.day)

analytics_visitor = table(
    "analytics_visitor",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    millis("day"),  # its start
    text("visitor"),  # hash keyed with the day's salt, which is deleted after the day
    Column("hours", Integer, nullable=False),  # one bit per hour of the day with a request
    UniqueConstraint("project_id", "day", "visitor"),
)
Index("ix_analytics_visitor_day", analytics_visitor.c.day)

analytics_position = table(
    "analytics_position",
    id_column(),
    text("folder", unique=True),  # id of a folder with an access log; each machine has one
    Column("head_size", Integer, nullable=False),
    text("head"),  # digest of the file's first bytes, which identifies the file under any name
    Column("position", BigInteger, nullable=False),  # every line before this offset is counted
    millis("updated_at"),
)


@dataclass(frozen=True, slots=True)
class Hour:
    start: int
    requests: int
    visitors: int
    newcomers: int
    bytes: int
    s2xx: int
    s3xx: int
    s4xx: int
    s5xx: int


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Read position: a file, identified by its first bytes, and an offset in it."""

    head_size: int
    head: str
    position: int


_h, _t, _v, _p = analytics_hour.c, analytics_top.c, analytics_visitor.c, analytics_position.c
_FIGURES = ("requests", "visitors", "newcomers", "bytes", *STATUSES)


def _scoped(of: Any) -> Any:
    return (of.org_id == arg("org_id")) & (of.project_id == arg("project_id"))


def _add_up(into: Table, keys: tuple[str, ...], sums: dict[str, str]) -> Source:
    """Return an upsert that adds to an existing row; `sums` maps columns to operators."""

    def source(dialect: str) -> ClauseElement:
        make = insert_for(dialect)
        added = make(into)
        changes = {name: into.c[name].op(operator)(added.excluded[name]) for name, operator in sums.items()}
        statement: ClauseElement = added.on_conflict_do_update(index_elements=list(keys), set_=changes)
        return statement

    return source


def as_list(values: Any) -> str:
    """Encode values as the JSON array that `_json_elements` expands."""
    return msgspec.json.encode(values).decode()


def _json_elements(dialect: str) -> Select[Any]:
    """Select the elements of the JSON array parameter `given`."""
    values = arg("given", Text)
    if dialect == "sqlite":
        return select(func.json_each(values).table_valued("value").c.value)
    return select(func.json_array_elements_text(cast(values, JSON)).table_valued("value").c.value)


ADD_TO_HOUR = Command(
    _add_up(analytics_hour, ("project_id", "hour"), dict.fromkeys(_FIGURES, "+")),
    sets=("org_id", "project_id", "hour", *_FIGURES),
)
ADD_TO_TOP = Command(
    _add_up(analytics_top, ("project_id", "kind", "day", "name"), {"requests": "+"}),
    sets=("org_id", "project_id", "kind", "day", "name", "requests"),
)
ADD_VISITOR = Command(
    _add_up(analytics_visitor, ("project_id", "day", "visitor"), {"hours": "|"}),
    sets=("org_id", "project_id", "day", "visitor", "hours"),
)

HOURS = Query(
    select(_h.hour, *(_h[name] for name in _FIGURES)).where(_scoped(_h) & (_h.hour >= arg("start"))).order_by(_h.hour),
    Hour,
)
NEWCOMERS: Query[int] = Query(
    select(cast(func.coalesce(func.sum(_h.newcomers), 0), BigInteger)).where(
        _scoped(_h) & (_h.hour >= arg("start")) & (_h.hour < arg("end"))
    ),
    scalar,
)
# Visitors of a day with a request in any of the given hours.
COUNT_VISITORS: Query[int] = Query(
    select(func.count()).where(
        _scoped(_v) & (_v.day == arg("day")) & (_v.hours.bitwise_and(arg("hours", Integer)) != 0)
    ),
    scalar,
)
KNOWN_VISITORS: Query[tuple[str, int]] = Query(
    lambda dialect: select(_v.visitor, _v.hours).where(
        _scoped(_v) & (_v.day == arg("day")) & _v.visitor.in_(_json_elements(dialect))
    ),
    pair,
)

_list = _scoped(_t) & (_t.kind == arg("kind"))
_requests = cast(func.sum(_t.requests), BigInteger)
TOP: Query[tuple[str, int]] = Query(
    select(_t.name, _requests)
    .where(_list & (_t.day >= arg("start")) & (_t.name != OTHER))
    .group_by(_t.name)
    .order_by(_requests.desc(), _t.name)
    .limit(arg("most", Integer)),
    pair,
)
LISTED: Query[int] = Query(
    select(cast(func.coalesce(func.sum(_t.requests), 0), BigInteger)).where(_list & (_t.day >= arg("start"))), scalar
)
KNOWN_NAMES: Query[str] = Query(
    lambda dialect: select(_t.name).where(_list & (_t.day == arg("day")) & _t.name.in_(_json_elements(dialect))), scalar
)
COUNT_NAMES: Query[int] = Query(select(func.count()).where(_list & (_t.day == arg("day")) & (_t.name != OTHER)), scalar)


def _lock_projects(dialect: str) -> ClauseElement:
    """Select the given projects with analytics, and on PostgreSQL lock them.

    The lock prevents the deletion of a project while its figures are written, and serialises two machines that count
    visits to one project, so that the second sees the visitors of the first.
    """
    ids = _json_elements(dialect).subquery()
    return (
        select(project.c.id)
        .where(project.c.id.in_(select(cast(ids.c.value, BigInteger))) & project.c.enable_analytics)
        .order_by(project.c.id)
        .with_for_update(key_share=True)
    )


LOCK_PROJECTS: Query[int] = Query(_lock_projects, scalar)
LOCK_PROJECT: Query[int] = Query(
    select(project.c.id)
    .where((project.c.org_id == arg("org_id")) & (project.c.id == arg("project_id")))
    .with_for_update(),
    scalar,
)
PROJECT_NAMED: Query[tuple[int, int]] = Query(
    select(project.c.org_id, project.c.id).where(project.c.name == arg("name")), pair
)

FIND_POSITION = Query(select(_p.head_size, _p.head, _p.position).where(_p.folder == arg("folder")), LogPosition)
ADD_POSITION: Query[int] = Query(
    insert_or_ignore(analytics_position), scalar, sets=("folder", "head_size", "head", "position", "updated_at")
)
ADVANCE_POSITION = Command(
    update(analytics_position)
    .where(
        (_p.folder == arg("folder"))
        & (_p.head_size == arg("was_head_size"))
        & (_p.head == arg("was_head"))
        & (_p.position == arg("was_position"))
    )
    .values(head_size=arg("head_size"), head=arg("head"), position=arg("position"), updated_at=arg("now"))
)

DELETE_OF_PROJECT = tuple(
    Command(delete(of).where(_scoped(of.c))) for of in (analytics_hour, analytics_top, analytics_visitor)
)


def _trim(of: Table, column: str) -> Command:
    """Return a command that deletes at most `most` rows older than `before`."""
    oldest = select(of.c.id).where(of.c[column] < arg("before")).limit(arg("most", Integer))
    return Command(delete(of).where(of.c.id.in_(oldest)))


TRIM_HOURS = _trim(analytics_hour, "hour")
TRIM_TOP = _trim(analytics_top, "day")
TRIM_VISITORS = _trim(analytics_visitor, "day")
