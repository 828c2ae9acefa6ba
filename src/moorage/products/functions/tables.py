"""Tables of functions and their versions."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    UniqueConstraint,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from moorage.core.artifacts.tables import artifact_ref
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

function = table(
    "function",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("name"),
    text("runtime"),  # with its version, such as `python:3.11`
    Column("timeout_ms", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    text("description", nullable=True),
    text("network"),  # `internet` or `none`
    Column("raw_http", Boolean, nullable=False),  # the query and body reach the function unparsed
    Column("own_options", Boolean, nullable=False),  # the function answers OPTIONS itself
    Column("current_version", Integer, nullable=False),
    Column("last_version", Integer, nullable=False),  # version numbers are never reused
    # Incremented by every change that concerns the edge.
    Column("revision", BigInteger, nullable=False),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "name"),
)

function_version = table(
    "function_version",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("function_id", Id, ForeignKey("function.id"), nullable=False),
    Column("version", Integer, nullable=False),
    text("digest"),  # of the artifact: the package with its dependencies
    text("main"),  # the main file inside the package
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("function_id", "version"),
)


@dataclass(frozen=True, slots=True)
class Function:
    id: int
    org_id: int
    name: str
    runtime: str
    timeout_ms: int
    memory_mb: int
    description: str | None
    network: str
    raw_http: bool
    own_options: bool
    current_version: int
    last_version: int
    revision: int
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Version:
    id: int
    org_id: int
    function_id: int
    version: int
    digest: str
    main: str
    created_at: int
    updated_at: int


_f, _v, _r = function.c, function_version.c, artifact_ref.c
_mine = _f.org_id == arg("org_id")
_this = _mine & (_f.id == arg("id"))
_its = (_v.org_id == arg("org_id")) & (_v.function_id == arg("function_id"))

_named = select(*columns(function)).where(_mine & (_f.name == arg("name")))
FIND = Query(_named, Function)
# Row lock for read-modify-write; SQLite has a single writer anyway.
LOCK = Query(_named.with_for_update(), Function)
FIND_BY_ID = Query(select(*columns(function)).where(_this), Function)
ALL_OF = Query(select(*columns(function)).where(_mine).order_by(_f.id), Function)
# Newest first, so that a new function is on the first page.
PAGE = Query(
    select(*columns(function)).where(_mine).order_by(_f.id.desc()).limit(arg("most")).offset(arg("offset")), Function
)
COUNT: Query[int] = Query(select(func.count()).where(_mine), scalar)
ADD: Query[int] = Query(
    insert_or_ignore(function),
    scalar,
    sets=sets_of(function),
)
SETTINGS = ("timeout_ms", "memory_mb", "description", "network", "raw_http", "own_options")
UPDATE = Command(
    update(function)
    .where(_this)
    .values(revision=_f.revision + 1, updated_at=arg("now"), **{name: arg("new_" + name) for name in SETTINGS})
)
# One UPDATE ... RETURNING, so that concurrent deployments get different version numbers.
NEXT_VERSION = Query(
    update(function)
    .where(_this)
    .values(
        last_version=_f.last_version + 1,
        current_version=_f.last_version + 1,
        revision=_f.revision + 1,
        updated_at=arg("now"),
    )
    .returning(*columns(function)),
    Function,
)
SWITCH = Command(
    update(function)
    .where(_this)
    .values(current_version=arg("version"), revision=_f.revision + 1, updated_at=arg("now"))
)
DELETE = Command(delete(function).where(_this))

ADD_VERSION: Query[int] = Query(
    insert(function_version).returning(_v.id),
    scalar,
    sets=("org_id", "function_id", "version", "digest", "main", "created_at", "updated_at"),
)
VERSIONS = Query(select(*columns(function_version)).where(_its).order_by(_v.version.desc()), Version)
FIND_VERSION = Query(select(*columns(function_version)).where(_its & (_v.version == arg("version"))), Version)
DELETE_VERSIONS = Command(delete(function_version).where(_its))
IS_USED: Query[int] = Query(select(literal(1)).where(_v.digest == arg("digest")).limit(1), scalar)

# Functions with the code of their current version, as the edge needs them.
_with_version = select(*columns(function), _v.digest, _v.main).join(
    function_version, (_v.function_id == _f.id) & (_v.version == _f.current_version)
)


@dataclass(frozen=True, slots=True)
class Deployed:
    function: Function
    digest: str
    main: str


def _deployed(*row: object) -> Deployed:
    *columns_, digest, main = row
    return Deployed(Function(*columns_), str(digest), str(main))  # type: ignore[arg-type]


DEPLOYED = Query(_with_version.where(_this), _deployed)
ALL_DEPLOYED = Query(_with_version.where(_f.id > arg("after")).order_by(_f.id).limit(arg("most")), _deployed)

# References of running deployments: `deploy:<epoch ms>:<random>`.
DEPLOYMENT_REFERENCES: Query[tuple[int, str]] = Query(
    select(_r.org_id, _r.owner).where(_r.owner.startswith("deploy:", autoescape=True)).order_by(_r.id), pair
)
