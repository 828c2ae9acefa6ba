"""Events as they came in, and what Stripe says each of its customers holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Boolean, Column, ForeignKey, Index, UniqueConstraint, case, delete, func, or_, select, update

from moorage.accounts.identity.tables import organization
from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text


class Provider(StrEnum):
    STRIPE = "stripe"  # the payment processor
    GITHUB = "github"  # the code-hosting app


class Held(StrEnum):
    CARD = "card"  # a payment method; one that is attached makes the card verified
    SUBSCRIPTION = "subscription"  # one that is paid for makes the plan


webhook_event = table(
    "webhook_event",
    id_column(),
    text("provider"),  # Provider
    text("event_id"),  # the provider's own; a second delivery of the same is dropped
    text("kind"),
    text("payload"),  # the JSON text that was signed, to the letter
    text("status"),  # WebhookStatus
    millis("received_at"),
    millis("handled_at", nullable=True),
    UniqueConstraint("provider", "event_id"),
    Index("ix_webhook_event_age", "received_at"),
)

# Stripe's events come in any order, and often before the one that says which organization the customer belongs to.
# This is what they add up to: one row for each thing that was ever mentioned.
stripe_holding = table(
    "stripe_holding",
    id_column(),
    text("kind"),  # Held
    text("stripe_id"),
    text("customer", nullable=True, index=True),
    Column("org_id", Id, ForeignKey(organization.c.id, ondelete="CASCADE"), nullable=True, index=True),  # null: unknown
    Column("alive", Boolean, nullable=False),
    millis("event_at"),  # of the newest event about it; older ones are dropped
    millis("updated_at"),
    UniqueConstraint("kind", "stripe_id"),
)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    id: int
    provider: str
    event_id: str
    kind: str
    payload: str
    status: str
    received_at: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """What an organization holds of one kind."""

    living: int
    newest_at: int | None  # None where nothing was ever mentioned


_e = webhook_event.c
ADD_ONCE: Query[int] = Query(
    insert_or_ignore(webhook_event),
    scalar,
    sets=("provider", "event_id", "kind", "payload", "status", "received_at"),
)
FIND = Query(
    select(_e.id, _e.provider, _e.event_id, _e.kind, _e.payload, _e.status, _e.received_at).where(_e.id == arg("id")),
    StoredEvent,
)
FORGET_EVENTS = Command(delete(webhook_event).where(_e.received_at < arg("before")))

_h = stripe_holding.c
_known = (_h.kind == arg("kind")) & (_h.stripe_id == arg("stripe_id"))
HOLD_FIRST: Query[int] = Query(
    insert_or_ignore(stripe_holding),
    scalar,
    sets=("kind", "stripe_id", "customer", "org_id", "alive", "event_at", "updated_at"),
)
# Stripe counts in seconds. Of two events in the same one the end stands: what has ended does not come back.
_newer = or_(_h.event_at < arg("event_at"), (_h.event_at == arg("event_at")) & or_(_h.alive, arg("has_ended", Boolean)))
HOLD_AGAIN = Command(
    update(stripe_holding)
    .where(_known & _newer)
    .values(
        customer=func.coalesce(arg("customer"), _h.customer),
        org_id=func.coalesce(arg("org_id"), _h.org_id),
        alive=arg("alive"),
        event_at=arg("event_at"),
        updated_at=arg("now"),
    )
)
HOLDER: Query[int | None] = Query(select(_h.org_id).where(_known), scalar)
ADOPT = Command(
    update(stripe_holding)
    .where((_h.customer == arg("customer")) & _h.org_id.is_(None))
    .values(org_id=arg("org_id"), updated_at=arg("now"))
)
HOLDINGS = Query(
    select(func.count(case((_h.alive, 1))), func.max(_h.event_at)).where(
        (_h.org_id == arg("org_id")) & (_h.kind == arg("kind"))
    ),
    Holdings,
)
FORGET_HOLDINGS = Command(
    delete(stripe_holding).where(or_(_h.org_id.is_(None), ~_h.alive) & (_h.updated_at < arg("before")))
)
FORGET_ORGANIZATION = Command(delete(stripe_holding).where(_h.org_id == arg("org_id")))
