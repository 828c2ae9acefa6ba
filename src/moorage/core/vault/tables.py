"""One table for all secrets, so that rotation and masking find them."""

from __future__ import annotations

from sqlalchemy import Column, Text, UniqueConstraint, delete, insert, select, update

from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

vault_secret = table(
    "vault_secret",
    id_column(),
    Column("org_id", Id, nullable=False),  # 0 for the platform's own
    text("resource"),  # such as `project:12`
    text("name"),
    text("ciphertext"),
    millis("updated_at"),
    text("origin", nullable=True),  # such as `database:7` for a generated secret; null for a user's own
    UniqueConstraint("org_id", "resource", "name"),
)


@dataclass(frozen=True, slots=True)
class Secret:
    id: int
    org_id: int
    resource: str
    name: str
    ciphertext: str
    origin: str | None

    @property
    def place(self) -> str:
        return place(self.org_id, self.resource, self.name)


def place(org_id: int, resource: str, name: str) -> str:
    """Return the additional authenticated data of a ciphertext."""
    return f"{org_id}/{resource}/{name}"


_s = vault_secret.c
_all = (_s.id, _s.org_id, _s.resource, _s.name, _s.ciphertext, _s.origin)
_mine = (_s.org_id == arg("org_id")) & (_s.resource == arg("resource"))

FIND = Query(select(*_all).where(_mine & (_s.name == arg("name"))), Secret)
LIST = Query(select(*_all).where(_mine).order_by(_s.name), Secret)
ADD: Query[int] = Query(
    insert(vault_secret).returning(_s.id),
    scalar,
    sets=("org_id", "resource", "name", "ciphertext", "updated_at", "origin"),
)
REPLACE = Command(
    update(vault_secret)
    .where(_s.id == arg("id"))
    .values(ciphertext=arg("new"), updated_at=arg("now"), origin=arg("new_origin"))
)
# Compare and set, so that rotation does not overwrite a concurrent change.
ROTATE = Command(
    update(vault_secret)
    .where((_s.id == arg("id")) & (_s.ciphertext == arg("old")))
    .values(ciphertext=arg("new"), updated_at=arg("now"))
)
REMOVE = Command(delete(vault_secret).where(_mine & (_s.name == arg("name"))))
REMOVE_ALL = Command(delete(vault_secret).where(_mine))
NEXT_BELOW = Query(
    select(*_all)
    .where(_s.resource.like(arg("pattern", Text)) & (_s.id > arg("after")))
    .order_by(_s.id)
    .limit(arg("most")),
    Secret,
)
NEXT_AFTER = Query(select(*_all).where(_s.id > arg("after")).order_by(_s.id).limit(arg("most")), Secret)
