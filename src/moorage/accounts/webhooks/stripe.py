"""Applies Stripe's events to the card and plan of organizations.

Events arrive repeatedly, late and in any order; the event that links a customer to an organization often comes last.
So an event does not set the card or plan directly: it updates the cards and subscriptions of the customer
(`stripe_holding`), and the organization follows from all of them. A customer that adds a new card before removing the
old one stays verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.accounts.identity.organizations import billing_reference
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.plans.service import Plan, Standing
from moorage.accounts.webhooks import tables
from moorage.accounts.webhooks.service import usable_name
from moorage.accounts.webhooks.tables import HoldingKind, StoredEvent
from moorage.core.audit.service import Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.ids import parse_id
from moorage.core.kit.records import dataclass

STRIPE = Actor(None, "Stripe")
# Stripe retries a late payment for weeks; the plan ends when Stripe gives up.
PAID = frozenset(("active", "trialing", "past_due"))
ENDED = frozenset(("canceled", "unpaid", "incomplete_expired", "paused"))
MAX_SECONDS = 2**40
_WHY = "the content of the event determines the organization"


@dataclass(frozen=True, slots=True)
class StripeEvent:
    at: int  # time of the event by Stripe's clock
    object: dict[str, Any]
    previous: dict[str, Any]

    @classmethod
    def of(cls, stored: StoredEvent, payload: dict[str, Any]) -> StripeEvent:
        created: Any = payload.get("created")
        data = _object(payload.get("data"))
        is_time = type(created) is int and 0 < created < MAX_SECONDS
        at = created * 1000 if is_time else stored.received_at
        return cls(at, _object(data.get("object")), _object(data.get("previous_attributes")))

    @property
    def customer(self) -> str | None:
        """The customer; for a detached payment method, from the previous values."""
        return _id(self.object.get("customer")) or _id(self.previous.get("customer"))


Effect = Callable[[Tx, StripeEvent], bool]


@across_organizations(_WHY)
def apply(tx: Tx, stored: StoredEvent, payload: dict[str, Any]) -> bool:
    """Apply an event. Return False for an unknown organization or kind."""
    effect = EFFECTS.get(stored.kind)
    return effect is not None and effect(tx, StripeEvent.of(stored, payload))


@across_organizations(_WHY)
def _checkout_completed(tx: Tx, event: StripeEvent) -> bool:
    reference = event.object.get("client_reference_id")
    org = _find_signed(tx, reference) or _find_organization(tx, event) or _find_unclaimed(tx, reference)
    if org is None:
        return False
    _link_customer(tx, org.id, event.customer, replacing=True)
    if event.object.get("mode") == "setup" or event.object.get("payment_status") == "paid":
        # This event does not name the card; a separate event for the card comes before or after.
        orgs.set_card(tx, org.id, STRIPE, verified=True, event_at=event.at)
    return True


@across_organizations(_WHY)
def _setup_succeeded(tx: Tx, event: StripeEvent) -> bool:
    return _record_holding(tx, event, HoldingKind.CARD, _id(event.object.get("payment_method")), alive=True)


@across_organizations(_WHY)
def _card_attached(tx: Tx, event: StripeEvent) -> bool:
    return _record_holding(tx, event, HoldingKind.CARD, _id(event.object), alive=True)


@across_organizations(_WHY)
def _card_detached(tx: Tx, event: StripeEvent) -> bool:
    return _record_holding(tx, event, HoldingKind.CARD, _id(event.object), alive=False)


@across_organizations(_WHY)
def _subscription_changed(tx: Tx, event: StripeEvent) -> bool:
    status = usable_name(event.object.get("status"))
    if status not in PAID and status not in ENDED:
        return False  # `incomplete`: the first payment is still being tried.
    return _record_holding(tx, event, HoldingKind.SUBSCRIPTION, _id(event.object), alive=status in PAID)


@across_organizations(_WHY)
def _subscription_deleted(tx: Tx, event: StripeEvent) -> bool:
    return _record_holding(tx, event, HoldingKind.SUBSCRIPTION, _id(event.object), alive=False)


EFFECTS: dict[str, Effect] = {
    "checkout.session.completed": _checkout_completed,
    "setup_intent.succeeded": _setup_succeeded,
    "payment_method.attached": _card_attached,
    "payment_method.detached": _card_detached,
    "customer.subscription.created": _subscription_changed,
    "customer.subscription.updated": _subscription_changed,
    "customer.subscription.deleted": _subscription_deleted,
}


@across_organizations(_WHY)
def _record_holding(tx: Tx, event: StripeEvent, kind: HoldingKind, stripe_id: str | None, *, alive: bool) -> bool:
    """Record a gained or lost card or subscription, and update the organization."""
    org = _find_organization(tx, event, kind, stripe_id)
    if stripe_id is not None:
        _store(tx, org.id if org else None, event, kind, stripe_id, alive=alive)
    if org is None:
        return False
    _link_customer(tx, org.id, event.customer)
    if stripe_id is None:
        _set(tx, org.id, kind, alive=alive, event_at=event.at)
    else:
        _sync_organization(tx, org.id)
    return True


def _store(tx: Tx, org_id: int | None, event: StripeEvent, kind: HoldingKind, stripe_id: str, *, alive: bool) -> None:
    """Add or update a holding; an event older than the stored one changes nothing."""
    holding = {"kind": kind, "stripe_id": stripe_id, "customer": event.customer, "org_id": org_id}
    is_new = tx.find(tables.ADD_HOLDING, alive=alive, event_at=event.at, updated_at=tx.now, **holding) is not None
    if not is_new:
        tx.run(tables.UPDATE_HOLDING, alive=alive, has_ended=not alive, event_at=event.at, now=tx.now, **holding)


def _link_customer(tx: Tx, org_id: int, customer: str | None, *, replacing: bool = False) -> None:
    """Link a customer with its holdings to an organization, at most one."""
    if customer is None:
        return
    owner = orgs.find_by_customer(tx, customer)
    if owner is None and (replacing or orgs.get(tx, org_id).stripe_customer is None):
        orgs.set_customer(tx, org_id, customer)
        owner = orgs.get(tx, org_id)
    if owner is not None and owner.id == org_id and tx.run(tables.ADOPT, customer=customer, org_id=org_id, now=tx.now):
        _sync_organization(tx, org_id)


def _sync_organization(tx: Tx, org_id: int) -> None:
    """Set card and plan by the holdings, unless an operator set them later."""
    org = orgs.get(tx, org_id)
    now = {HoldingKind.CARD: org.card_verified, HoldingKind.SUBSCRIPTION: org.plan != Plan.FREE}
    for kind, is_set in now.items():
        held = tx.one(tables.HOLDINGS, org_id=org_id, kind=kind)
        # A renewal changes nothing and adds no activity.
        if held.newest_at is not None and is_set != (held.living > 0):
            _set(tx, org_id, kind, alive=held.living > 0, event_at=held.newest_at)


def _set(tx: Tx, org_id: int, kind: HoldingKind, *, alive: bool, event_at: int) -> None:
    if kind is HoldingKind.CARD:
        orgs.set_card(tx, org_id, STRIPE, verified=alive, event_at=event_at)
    else:
        orgs.set_plan(tx, org_id, STRIPE, Plan.PRO if alive else Plan.FREE, event_at=event_at)


@across_organizations(_WHY)
def _find_organization(
    tx: Tx, event: StripeEvent, kind: HoldingKind | None = None, stripe_id: str | None = None
) -> Organization | None:
    """Find the organization by the metadata, the customer, or the stored holding."""
    org = _find_named(tx, _object(event.object.get("metadata")).get("organization_id"))
    if org is None and event.customer is not None:
        org = orgs.find_by_customer(tx, event.customer)
    if org is None and stripe_id is not None:
        holder = tx.find(tables.HOLDER, kind=kind, stripe_id=stripe_id)
        org = orgs.find(tx, holder) if holder is not None else None
    return org


@across_organizations(_WHY)
def _find_signed(tx: Tx, reference: Any) -> Organization | None:
    org_id = billing_reference.read(tx.env, reference) if isinstance(reference, str) else None
    return orgs.find(tx, org_id) if org_id is not None else None


@across_organizations(_WHY)
def _find_unclaimed(tx: Tx, reference: Any) -> Organization | None:
    """Find the organization of an unsigned id, which is the payer's choice and proves nothing.

    It only counts for an organization without a customer, plan or card, where no operator and no event has decided
    anything: others could lose what they have.
    """
    org = _find_named(tx, reference)
    if org is None or org.stripe_customer is not None or org.standing != Standing(Plan.FREE, False):
        return None
    return org if org.card_event_at == org.plan_event_at == 0 else None


@across_organizations(_WHY)
def _find_named(tx: Tx, value: Any) -> Organization | None:
    org_id = parse_id(str(value)) if type(value) in (str, int) and value != "" else None
    return orgs.find(tx, org_id) if org_id is not None else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _id(value: Any) -> str | None:
    """Return the id in a field, which is a string or an expanded object."""
    return usable_name(value.get("id") if isinstance(value, dict) else value)
