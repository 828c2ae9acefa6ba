"""The table of idempotency keys."""

from __future__ import annotations

from sqlalchemy import Column, Integer, UniqueConstraint, delete, select, update

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

idempotency_key = table(
    "idempotency_key",
    id_column(),
    Column("org_id", Id, nullable=False),  # 0 for routes without an organization
    text("actor"),  # `user:7` or `token:12`
    text("route"),  # see `keys.route_of`
    text("key"),
    text("fingerprint"),  # of the body
    Column("status", Integer, nullable=True),  # null while the first request runs
    text("answer", nullable=True),  # null where the answer showed a secret or was too long
    millis("created_at"),
    millis("expires_at"),
    UniqueConstraint("org_id", "actor", "route", "key"),
)

_k = idempotency_key.c
_mine = (_k.org_id == arg("org_id")) & (_k.actor == arg("actor")) & (_k.route == arg("route")) & (_k.key == arg("key"))


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    id: int
    fingerprint: str
    status: int | None
    answer: str | None
    expires_at: int


# Leases expire by the system clock. Stored answers expire by the trusted clock, so that they survive a clock change.
_lapsed = _k.status.is_(None) & (_k.expires_at <= arg("now"))
_outdated = _k.status.is_not(None) & (_k.expires_at <= arg("trusted_now"))
FORGET_EXPIRED = Command(delete(idempotency_key).where(_mine & (_lapsed | _outdated)))
FORGET = Command(delete(idempotency_key).where(_k.id == arg("id")))
RENEW = Command(
    update(idempotency_key).where((_k.id == arg("id")) & _k.status.is_(None)).values(expires_at=arg("expires_at"))
)
RELEASE = Command(delete(idempotency_key).where(_k.status.is_(None)))
FORGET_ALL_EXPIRED = Command(delete(idempotency_key).where(_k.expires_at <= arg("now")))
FIND = Query(select(_k.id, _k.fingerprint, _k.status, _k.answer, _k.expires_at).where(_mine), StoredAnswer)
CLAIM: Query[int] = Query(
    insert_or_ignore(idempotency_key),
    scalar,
    sets=("org_id", "actor", "route", "key", "fingerprint", "created_at", "expires_at"),
)
SAVE = Command(
    update(idempotency_key)
    .where(_k.id == arg("id"))
    .values(status=arg("status"), answer=arg("answer"), expires_at=arg("expires_at"))
)
