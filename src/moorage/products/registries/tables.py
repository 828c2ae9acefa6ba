"""Table of private image registries. Their secrets are in the vault."""

from __future__ import annotations

from sqlalchemy import Column, UniqueConstraint, delete, func, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

registry = table(
    "registry",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("host"),  # with optional port, as in image references
    text("username"),
    text("token_host"),  # a further host that may get the credentials; "" for none
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "host"),
)


@dataclass(frozen=True, slots=True)
class Registry:
    id: int
    org_id: int
    host: str
    username: str
    token_host: str
    created_at: int
    updated_at: int


_r = registry.c
_mine = _r.org_id == arg("org_id")
_this = _mine & (_r.id == arg("id"))
_all = select(*columns(registry))

ALL_OF = Query(_all.where(_mine).order_by(_r.host), Registry)
COUNT: Query[int] = Query(select(func.count()).where(_mine), scalar)
FIND = Query(_all.where(_this), Registry)
FIND_BY_HOST = Query(_all.where(_mine & (_r.host == arg("host"))), Registry)
ADD: Query[int] = Query(insert_or_ignore(registry), scalar, sets=sets_of(registry))
UPDATE = Command(
    update(registry)
    .where(_this)
    .values(username=arg("new_username"), token_host=arg("new_token_host"), updated_at=arg("now"))
)
DELETE = Command(delete(registry).where(_this))
