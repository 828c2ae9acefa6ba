"""Notifications of users inside the product."""

from __future__ import annotations

from sqlalchemy import select, update

from moorage.accounts.identity.tables import notification
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.core.db.schema import Id
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.errors import NotFound

MAX_LISTED = 100
_WHY = "notifications belong to a user, not to an organization"


@dataclass(frozen=True, slots=True)
class Notification:
    id: int
    user_id: int
    org_id: int | None
    kind: str
    title: str
    body: str
    dedupe_key: str
    created_at: int
    read_at: int | None


_n = notification.c
# org_id 0 selects all organizations of the user, for sessions.
_mine = (_n.user_id == arg("user_id")) & ((arg("org_id", Id) == 0) | (_n.org_id == arg("org_id", Id)))
_LIST = Query(select(*columns(notification)).where(_mine).order_by(_n.id.desc()).limit(MAX_LISTED), Notification)
_FIND = Query(select(*columns(notification)).where(_mine & (_n.id == arg("id"))), Notification)
_ADD: Query[int] = Query(
    insert_or_ignore(notification),
    scalar,
    sets=("user_id", "org_id", "kind", "title", "body", "dedupe_key", "created_at"),
)
_READ = Command(
    update(notification).where(_mine & (_n.id == arg("id")) & _n.read_at.is_(None)).values(read_at=arg("now"))
)
_READ_ALL = Command(update(notification).where(_mine & _n.read_at.is_(None)).values(read_at=arg("now")))


@across_organizations(_WHY)
def add(tx: Tx, user_id: int, kind: str, title: str, body: str, *, about: str, org_id: int | None = None) -> None:
    """Add a notification of a user. A second call with the same `about` does nothing."""
    tx.find(
        _ADD,
        user_id=user_id,
        org_id=org_id,
        kind=kind,
        title=title,
        body=body,
        dedupe_key=f"{user_id}:{kind}:{about}",
        created_at=tx.now,
    )


@across_organizations(_WHY)
def all_of(tx: Tx, user_id: int, *, org_id: int = 0) -> list[Notification]:
    """Return the newest notifications of a user, of one organization or of all (0)."""
    return tx.all(_LIST, user_id=user_id, org_id=org_id)


@across_organizations(_WHY)
def mark_read(tx: Tx, user_id: int, notification_id: int, *, org_id: int = 0) -> Notification:
    tx.run(_READ, user_id=user_id, org_id=org_id, id=notification_id, now=tx.now)
    notification = tx.find(_FIND, user_id=user_id, org_id=org_id, id=notification_id)
    if notification is None:
        raise NotFound("There is no such notification")
    return notification


@across_organizations(_WHY)
def mark_all_read(tx: Tx, user_id: int, *, org_id: int = 0) -> int:
    return tx.run(_READ_ALL, user_id=user_id, org_id=org_id, now=tx.now)
