"""Tables of webhook events, and of cards and subscriptions of Stripe customers."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Boolean, Column, ForeignKey, Index, UniqueConstraint, case, delete, func, or_, select, update

from moorage.accounts.identity.tables import organization
from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass


class Provider(StrEnum):
    STRIPE = "stripe"  # the payment processor
    GITHUB = "github"  # the code-hosting app


class HoldingKind(StrEnum):
    CARD = "card"  # a payment method; an attached one verifies the card
    SUBSCRIPTION = "subscription"  # a paid one sets the plan


webhook_event = table(
    "webhook_event",
    id_column(),
    text("provider"),  # Provider
    text("event_id"),  # id of the provider; repeated deliveries are dropped
    text("kind"),
    text("payload"),  # the signed JSON text, unchanged
    text("status"),  # WebhookStatus
    millis("received_at"),
    millis("handled_at", nullable=True),
    UniqueConstraint("provider", "event_id"),
    Index("ix_webhook_event_age", "received_at"),
)

# Cards and subscriptions in Stripe's events. Events arrive in any order, and often before the one that links the
# customer to an organization.
stripe_holding = table(
    "stripe_holding",
    id_column(),
    text("kind"),  # HoldingKind
    text("stripe_id"),
    text("customer", nullable=True, index=True),
    Column("org_id", Id, ForeignKey(organization.c.id, ondelete="CASCADE"), nullable=True, index=True),  # null: unknown
    Column("alive", Boolean, nullable=False),
    millis("event_at"),  # time of the newest event; older ones are dropped
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
    """Summary of an organization's holdings of one kind."""

    living: int
    newest_at: int | None  # None without holdings


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
DELETE_OLD_EVENTS = Command(delete(webhook_event).where(_e.received_at < arg("before")))

_h = stripe_holding.c
_known = (_h.kind == arg("kind")) & (_h.stripe_id == arg("stripe_id"))
ADD_HOLDING: Query[int] = Query(
    insert_or_ignore(stripe_holding),
    scalar,
    sets=("kind", "stripe_id", "customer", "org_id", "alive", "event_at", "updated_at"),
)
# Stripe's times are in seconds. Of two events in the same second the end wins: an ended holding does not return.
_newer = or_(_h.event_at < arg("event_at"), (_h.event_at == arg("event_at")) & or_(_h.alive, arg("has_ended", Boolean)))
UPDATE_HOLDING = Command(
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
DELETE_OLD_HOLDINGS = Command(
    delete(stripe_holding).where(or_(_h.org_id.is_(None), ~_h.alive) & (_h.updated_at < arg("before")))
)
DELETE_HOLDINGS_OF = Command(delete(stripe_holding).where(_h.org_id == arg("org_id")))
