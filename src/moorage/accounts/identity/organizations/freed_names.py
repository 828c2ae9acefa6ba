"""Reserves released names for 30 days against takeover by other organizations.

A released slug, project name or repository owner stays reserved for its organization, because links, bookmarks and git
remotes still use it. The organization itself may take it again immediately.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Column, UniqueConstraint, delete, insert, literal, select

from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS

RESERVATION_MS = 30 * DAY_MS
MAX_RESERVED = 200  # reserved names of one organization; beyond that the oldest become available


class NameKind(StrEnum):
    SLUG = "slug"  # of an organization
    PROJECT = "project"  # also the prefix of its previews' names
    OWNER = "owner"  # first part of a repository name, in lower case


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
_DELETE = Command(delete(freed_name).where(_this))
_RESERVED: Query[int] = Query(
    select(literal(1)).where(_this & (_f.until > arg("now")) & (_f.org_id != arg("org_id"))), scalar
)
_SURPLUS: Query[int] = Query(
    select(_f.id).where(_f.org_id == arg("org_id")).order_by(_f.id.desc()).limit(1).offset(MAX_RESERVED), scalar
)
_DELETE_OLDEST = Command(delete(freed_name).where((_f.org_id == arg("org_id")) & (_f.id <= arg("last"))))
_DELETE_EXPIRED = Command(delete(freed_name).where(_f.until <= arg("now")))


def reserve(tx: Tx, org_id: int, kind: NameKind, name: str) -> None:
    """Reserve a name that an organization releases. Safe to repeat."""
    tx.run(_DELETE, kind=kind, name=name)
    tx.run(_ADD, org_id=org_id, kind=kind, name=name, until=tx.now + RESERVATION_MS)
    surplus = tx.find(_SURPLUS, org_id=org_id)
    if surplus is not None:
        tx.run(_DELETE_OLDEST, org_id=org_id, last=surplus)


def is_reserved(tx: Tx, org_id: int, kind: NameKind, name: str) -> bool:
    """Return whether a name is reserved for another organization."""
    return tx.find(_RESERVED, org_id=org_id, kind=kind, name=name, now=tx.trusted_now) is not None


@across_organizations("expired rows of all organizations")
def sweep(tx: Tx) -> None:
    tx.run(_DELETE_EXPIRED, now=tx.trusted_now)
