"""Tables of the activity feed: a chain of sealed rows per organization."""

from __future__ import annotations

from sqlalchemy import Column, Index, UniqueConstraint, insert, select, union, update

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

activity = table(
    "activity",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("seq", Id, nullable=False),  # 1, 2, 3 … within the organization: a gap shows
    millis("at"),
    Column("user_id", Id, nullable=True),  # null for the platform itself
    text("actor"),
    text("action"),  # such as `member.role_changed`
    text("target_kind"),
    text("target"),
    text("details"),  # JSON
    text("seal"),
    UniqueConstraint("org_id", "seq"),
    Index("ix_activity_target", "org_id", "target_kind", "target"),
)

audit_head = table(
    "audit_head",
    id_column(),
    Column("org_id", Id, nullable=False, unique=True),
    Column("seq", Id, nullable=False),
    text("seal"),  # HMAC of the newest row's seal, so that an older head cannot be forged
)


@dataclass(frozen=True, slots=True)
class Activity:
    id: int
    org_id: int
    seq: int
    at: int
    user_id: int | None
    actor: str
    action: str
    target_kind: str
    target: str
    details: str
    seal: str


@dataclass(frozen=True, slots=True)
class Head:
    org_id: int
    seq: int
    seal: str


_a = activity.c
_h = audit_head.c

HEAD = Query(select(_h.org_id, _h.seq, _h.seal).where(_h.org_id == arg("org_id")), Head)
ORGANIZATIONS: Query[int] = Query(union(select(_h.org_id), select(_a.org_id)).order_by("org_id"), scalar)
START: Query[int] = Query(insert_or_ignore(audit_head), scalar, sets=("org_id", "seq", "seal"))
# Locks the head of the organization until the commit, so that two writers cannot fork the chain.
TAKE_NEXT = Query(
    update(audit_head).where(_h.org_id == arg("org_id")).values(seq=_h.seq + 1).returning(_h.org_id, _h.seq, _h.seal),
    Head,
)
SET_SEAL = Command(update(audit_head).where(_h.org_id == arg("org_id")).values(seal=arg("seal")))
ADD: Query[int] = Query(
    insert(activity).returning(_a.id),
    scalar,
    sets=("org_id", "seq", "at", "user_id", "actor", "action", "target_kind", "target", "details", "seal"),
)
LATEST = Query(
    select(*_a)
    .where((_a.org_id == arg("org_id")) & (_a.seq < arg("before")))
    .order_by(_a.seq.desc())
    .limit(arg("most")),
    Activity,
)
LATEST_OF = Query(
    select(*_a)
    .where(
        (_a.org_id == arg("org_id"))
        & (_a.target_kind == arg("target_kind"))
        & (_a.target == arg("target"))
        & (_a.seq < arg("before"))
        & _a.at.between(arg("since"), arg("until"))
    )
    .order_by(_a.seq.desc())
    .limit(arg("most")),
    Activity,
)
ACTIONS_OF = Query(
    select(*_a)
    .where(
        (_a.org_id == arg("org_id"))
        & (_a.target_kind == arg("target_kind"))
        & (_a.target == arg("target"))
        & (_a.action == arg("action"))
    )
    .order_by(_a.seq),
    Activity,
)
FROM = Query(
    select(*_a).where((_a.org_id == arg("org_id")) & (_a.seq > arg("after"))).order_by(_a.seq).limit(arg("most")),
    Activity,
)
