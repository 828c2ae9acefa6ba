"""Names that rest after their organization gave them up, so that nobody else shows up under them.

A slug, a project's name or an owner of repositories that was freed stays with its organization for 30 days: links,
bookmarks and remotes of others still lead there. The organization itself may take it back at once.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Column, UniqueConstraint, delete, insert, literal, select

from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS

REST_MS = 30 * DAY_MS
MOST_OF_ONE = 200  # Names that one organization can hold back; beyond these its oldest are free again.


class NameKind(StrEnum):
    SLUG = "slug"  # of an organization
    PROJECT = "project"  # also the begin of its previews' names
    OWNER = "owner"  # the first part of a repository's name, in lower case


freed_name = table(
    "freed_name",
    id_column(),
    Column("org_id", Id, nullable=False, index=True),
    text("kind"),  # NameKind
    text("name"),
    millis("until"),
    UniqueConstraint("kind", "name"),
)

_f = freed_name.c
_this = (_f.kind == arg("kind")) & (_f.name == arg("name"))
_ADD = Command(insert(freed_name), sets=("org_id", "kind", "name", "until"))
_DROP = Command(delete(freed_name).where(_this))
_RESTS: Query[int] = Query(
    select(literal(1)).where(_this & (_f.until > arg("now")) & (_f.org_id != arg("org_id"))), scalar
)
_SURPLUS: Query[int] = Query(
    select(_f.id).where(_f.org_id == arg("org_id")).order_by(_f.id.desc()).limit(1).offset(MOST_OF_ONE), scalar
)
_DROP_OLDEST = Command(delete(freed_name).where((_f.org_id == arg("org_id")) & (_f.id <= arg("last"))))
_FORGET = Command(delete(freed_name).where(_f.until <= arg("now")))


def rest(tx: Tx, org_id: int, kind: NameKind, name: str) -> None:
    """Keep a name that an organization gives up from all others. Safe to repeat."""
    tx.run(_DROP, kind=kind, name=name)
    tx.run(_ADD, org_id=org_id, kind=kind, name=name, until=tx.now + REST_MS)
    surplus = tx.find(_SURPLUS, org_id=org_id)
    if surplus is not None:
        tx.run(_DROP_OLDEST, org_id=org_id, last=surplus)


def is_resting(tx: Tx, org_id: int, kind: NameKind, name: str) -> bool:
    """Tell whether a name rests for another organization."""
    return tx.find(_RESTS, org_id=org_id, kind=kind, name=name, now=tx.trusted_now) is not None


@across_organizations("what is old is old in every organization")
def sweep(tx: Tx) -> None:
    tx.run(_FORGET, now=tx.trusted_now)
