"""Repositories of the built-in git server, and where GitHub's app is installed."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Boolean, Column, UniqueConstraint, delete, select, update

from moorage.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.db.schema import Id, id_column, millis, table, text
from moorage.repositories.names import Name

repository = table(
    "repository",
    id_column(),
    Column("org_id", Id, nullable=False, index=True),
    text("owner"),
    text("name"),
    text("owner_key"),  # lower case, as they are compared
    text("name_key"),
    Column("size_bytes", BigInteger, nullable=False),
    text("default_branch"),
    millis("created_at"),
    millis("updated_at"),  # when somebody last began to push, or has pushed
    UniqueConstraint("owner_key", "name_key"),
)

github_installation = table(
    "github_installation",
    id_column(),
    text("login"),  # the account, as GitHub spells it
    text("login_key", unique=True),
    Column("installation_id", BigInteger, nullable=False),
    Column("suspended", Boolean, nullable=False),
    # The organization whose builds may read through it; none until one has asked for a private repository.
    Column("org_id", Id, nullable=True),
    millis("created_at"),
    millis("updated_at"),
)


@dataclass(frozen=True, slots=True)
class Repository:
    id: int
    org_id: int
    owner: str
    name: str
    owner_key: str
    name_key: str
    size_bytes: int
    default_branch: str
    created_at: int
    updated_at: int

    @property
    def full_name(self) -> Name:
        return Name(self.owner, self.name)


@dataclass(frozen=True, slots=True)
class Installation:
    id: int
    login: str
    login_key: str
    installation_id: int
    suspended: bool
    org_id: int | None
    created_at: int
    updated_at: int


_r, _i = repository.c, github_installation.c
_this = (_r.org_id == arg("org_id")) & (_r.id == arg("id"))
_account = _i.login_key == arg("login_key")

FIND = Query(
    select(*columns(repository)).where((_r.owner_key == arg("owner_key")) & (_r.name_key == arg("name_key"))),
    Repository,
)
FIRST_USER: Query[int] = Query(
    select(_r.org_id).where(_r.owner_key == arg("owner_key")).order_by(_r.id).limit(1), scalar
)
ADD: Query[int] = Query(
    insert_or_ignore(repository), scalar, sets=tuple(column.name for column in repository.c if column.name != "id")
)
TOUCH = Command(update(repository).where(_this).values(updated_at=arg("now")))
FINISH = Command(
    update(repository).where(_this).values(size_bytes=arg("size"), default_branch=arg("branch"), updated_at=arg("now"))
)
IDS_OF: Query[int] = Query(select(_r.id).where(_r.org_id == arg("org_id")).order_by(_r.id), scalar)
DELETE_OF = Command(delete(repository).where(_r.org_id == arg("org_id")))
PAGE = Query(select(*columns(repository)).where(_r.id > arg("after")).order_by(_r.id).limit(arg("most")), Repository)
IS_THERE: Query[int] = Query(select(_r.id).where(_r.id == arg("id")), scalar)
# The time is looked at again, because somebody may have begun to push since the row was read.
DELETE_UNUSED = Command(delete(repository).where((_r.id == arg("id")) & (_r.updated_at <= arg("before"))))

FIND_INSTALLATION = Query(select(*columns(github_installation)).where(_account), Installation)
ADD_INSTALLATION: Query[int] = Query(
    insert_or_ignore(github_installation),
    scalar,
    sets=tuple(column.name for column in github_installation.c if column.name != "id"),
)
SET_INSTALLATION = Command(
    update(github_installation)
    .where(_account)
    .values(login=arg("shown"), installation_id=arg("number"), suspended=arg("stopped"), updated_at=arg("now"))
)
CLAIM_INSTALLATION = Command(
    update(github_installation)
    .where(_account & _i.org_id.is_(None))
    .values(org_id=arg("org_id"), updated_at=arg("now"))
)
RELEASE_INSTALLATIONS = Command(
    update(github_installation).where(_i.org_id == arg("org_id")).values(org_id=None, updated_at=arg("now"))
)
DELETE_INSTALLATION = Command(delete(github_installation).where(_account & (_i.installation_id == arg("number"))))
