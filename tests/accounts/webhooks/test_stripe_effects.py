"""Effects of Stripe's events on card and plan, in any order."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select
from tests.accounts.webhooks.deliveries import SECRETS, organization, send_stripe, stored_events
from tests.builders import make_org
from tests.client import Client
from tests.conftest import RunJobs

from moorage.accounts.identity.organizations import billing_reference
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.plans.service import Plan
from moorage.accounts.webhooks import service
from moorage.accounts.webhooks.states import WebhookStatus
from moorage.accounts.webhooks.stripe import EFFECTS
from moorage.accounts.webhooks.tables import stripe_holding
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.query import Query, scalar
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.settings(**SECRETS)]

Deliver = Callable[..., Awaitable[None]]
FOREIGN = pytest.mark.boundary(
    "stranger-to-platform", "A payer cannot take over the billing of an organization by naming its id in a checkout."
)
_HELD: Query[str] = Query(select(stripe_holding.c.stripe_id).order_by(stripe_holding.c.id), scalar)


@pytest.fixture
async def org(db: Database) -> Organization:
    """A new organization with billing by Stripe."""
    return await make_org(db, plan=Plan.FREE, card_verified=False)


@pytest.fixture
async def customer(db: Database, org: Organization) -> str:
    await db.write(lambda tx: orgs.set_customer(tx, org.id, "cus_1"))
    return "cus_1"


@pytest.fixture
def deliver(api: Client, clock: ManualClock, run_jobs: RunJobs) -> Deliver:
    """Deliver one event and run its job. `at` is in seconds from the clock's start."""
    ids = itertools.count(1)

    async def send(kind: str, *, at: int = 0, previous: Any = None, **fields: Any) -> None:
        event = {
            "id": f"evt_{next(ids)}",
            "object": "event",
            "type": kind,
            "created": clock.now() // 1000 - 1000 + at,
            "data": {"object": fields, "previous_attributes": previous},
        }
        reply = await send_stripe(api, clock, event)
        assert reply.json == {"received": True}
        await run_jobs()

    return send


async def statuses(db: Database) -> list[str]:
    return [event.status for event in await stored_events(db)]


async def feed(db: Database, org: Organization) -> list[tuple[str, str]]:
    """Return the billing rows of the organization's activity, oldest first."""
    rows = await db.read(lambda tx: audit.after(tx, org.id, 0))
    return [(row.actor, row.action) for row in rows if row.action.startswith("billing.")]


async def test_a_completed_setup_verifies_the_card_and_remembers_the_customer(
    db: Database, org: Organization, deliver: Deliver
) -> None:
    await deliver(
        "checkout.session.completed", mode="setup", client_reference_id=str(org.id), customer="cus_1", id="cs_1"
    )

    now = await organization(db, org)
    assert (now.card_verified, now.stripe_customer, now.plan) == (True, "cus_1", Plan.FREE)
    assert await feed(db, org) == [("Stripe", "billing.card_verified")]
    assert await statuses(db) == [WebhookStatus.HANDLED]


@pytest.mark.parametrize(("payment_status", "verified"), [("paid", True), ("unpaid", False), (None, False)])
async def test_a_checkout_verifies_the_card_only_when_it_was_paid(
    db: Database, org: Organization, deliver: Deliver, payment_status: str | None, verified: bool
) -> None:
    await deliver(
        "checkout.session.completed",
        mode="payment",
        payment_status=payment_status,
        client_reference_id=str(org.id),
        customer=None,
    )

    now = await organization(db, org)
    assert (now.card_verified, now.stripe_customer) == (verified, None)


@pytest.mark.parametrize("kind", ["setup_intent.succeeded", "payment_method.attached"])
async def test_a_card_of_a_known_customer_is_verified(
    db: Database, org: Organization, customer: str, deliver: Deliver, kind: str
) -> None:
    await deliver(kind, id="pm_1", payment_method="pm_1", customer=customer)

    assert (await organization(db, org)).card_verified


async def test_a_setup_that_does_not_name_its_card_verifies_all_the_same(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("setup_intent.succeeded", id="seti_1", customer=customer)

    assert (await organization(db, org)).card_verified


async def test_the_metadata_name_the_organization_before_the_customer_does(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    other = await make_org(db, name="Pier", plan=Plan.FREE, card_verified=False)

    await deliver(
        "setup_intent.succeeded",
        payment_method="pm_1",
        customer=customer,
        metadata={"organization_id": str(other.id)},
    )

    assert (await organization(db, other)).card_verified
    assert not (await organization(db, org)).card_verified


async def test_a_detached_card_is_found_by_the_customer_it_was_taken_from(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("payment_method.attached", at=1, id="pm_1", customer=customer)

    await deliver("payment_method.detached", at=2, id="pm_1", customer=None, previous={"customer": customer})

    assert not (await organization(db, org)).card_verified
    assert await feed(db, org) == [("Stripe", "billing.card_verified"), ("Stripe", "billing.card_removed")]


async def test_a_card_that_only_a_checkout_told_of_can_be_detached(
    db: Database, org: Organization, deliver: Deliver
) -> None:
    await deliver("checkout.session.completed", at=1, mode="setup", client_reference_id=str(org.id), customer="cus_1")

    await deliver("payment_method.detached", at=2, id="pm_1", customer=None, previous={"customer": "cus_1"})

    assert not (await organization(db, org)).card_verified


async def test_removing_the_old_card_after_adding_a_new_one_keeps_the_organization_verified(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("payment_method.attached", at=1, id="pm_old", customer=customer)
    await deliver("payment_method.attached", at=2, id="pm_new", customer=customer)

    await deliver("payment_method.detached", at=3, id="pm_old", customer=None, previous={"customer": customer})

    assert (await organization(db, org)).card_verified


async def test_an_attachment_that_comes_after_its_detachment_does_not_bring_the_card_back(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("payment_method.detached", at=2, id="pm_1", customer=None, previous={"customer": customer})

    await deliver("payment_method.attached", at=1, id="pm_1", customer=customer)
    await deliver("setup_intent.succeeded", at=2, id="seti_1", payment_method="pm_1", customer=customer)

    assert not (await organization(db, org)).card_verified


@pytest.mark.parametrize("kind", ["customer.subscription.created", "customer.subscription.updated"])
async def test_the_state_of_the_subscription_decides_the_plan(db: Database, deliver: Deliver, kind: str) -> None:
    paid, ended = ("active", "trialing", "past_due"), ("canceled", "unpaid", "incomplete_expired", "paused")
    decided: dict[str | None, list[str]] = {status: [Plan.PRO, Plan.PRO] for status in paid}
    decided |= {status: [Plan.FREE, Plan.FREE] for status in ended}
    decided |= {status: [Plan.FREE, Plan.PRO] for status in ("incomplete", "something_new", None)}
    found: dict[str | None, list[str]] = {status: [] for status in decided}

    for status, before in itertools.product(decided, (Plan.FREE, Plan.PRO)):
        org = await make_org(db, plan=before)
        metadata = {"organization_id": str(org.id)}
        await deliver(kind, id=f"sub_{org.id}", customer=f"cus_{org.id}", status=status, metadata=metadata)
        found[status].append((await organization(db, org)).plan)

    assert found == decided


async def test_a_subscription_without_an_id_still_decides(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("customer.subscription.updated", at=2, customer=customer, status="active")
    await deliver("customer.subscription.deleted", at=1, customer=customer, status="canceled")

    assert (await organization(db, org)).plan == Plan.PRO


async def test_a_deleted_subscription_ends_the_plan_and_older_news_do_not_bring_it_back(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("customer.subscription.created", at=1, id="sub_1", customer=customer, status="active")
    await deliver("customer.subscription.deleted", at=3, id="sub_1", customer=customer, status="canceled")

    await deliver("customer.subscription.updated", at=2, id="sub_1", customer=customer, status="active")
    await deliver("customer.subscription.updated", at=3, id="sub_1", customer=customer, status="active")

    assert (await organization(db, org)).plan == Plan.FREE
    assert await feed(db, org) == [("Stripe", "billing.plan_changed")] * 2


async def test_an_old_cancellation_does_not_end_a_subscription_that_was_resumed(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("customer.subscription.updated", at=2, id="sub_1", customer=customer, status="active")

    await deliver("customer.subscription.updated", at=1, id="sub_1", customer=customer, status="unpaid")

    assert (await organization(db, org)).plan == Plan.PRO


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_changed_subscription_keeps_the_plan_in_any_order(
    db: Database, org: Organization, customer: str, deliver: Deliver, order: tuple[int, ...]
) -> None:
    events = [
        ("customer.subscription.created", {"at": 1, "id": "sub_old", "status": "active"}),
        ("customer.subscription.created", {"at": 2, "id": "sub_new", "status": "active"}),
        ("customer.subscription.deleted", {"at": 3, "id": "sub_old", "status": "canceled"}),
    ]

    for index in order:
        kind, fields = events[index]
        await deliver(kind, customer=customer, **fields)

    assert (await organization(db, org)).plan == Plan.PRO


async def test_a_renewal_changes_nothing_and_says_nothing(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("customer.subscription.created", at=1, id="sub_1", customer=customer, status="active")

    await deliver("customer.subscription.updated", at=2, id="sub_1", customer=customer, status="active")

    assert await feed(db, org) == [("Stripe", "billing.plan_changed")]


async def test_events_that_come_before_their_checkout_take_effect_with_it(
    db: Database, org: Organization, deliver: Deliver
) -> None:
    await deliver("payment_method.attached", at=1, id="pm_1", customer="cus_1")
    await deliver("customer.subscription.created", at=1, id="sub_1", customer="cus_1", status="active")
    before = await organization(db, org)

    await deliver(
        "checkout.session.completed", at=1, mode="subscription", client_reference_id=str(org.id), customer="cus_1"
    )

    after = await organization(db, org)
    assert (before.plan, before.card_verified) == (Plan.FREE, False)
    assert (after.plan, after.card_verified) == (Plan.PRO, True)
    assert await statuses(db) == [WebhookStatus.IGNORED, WebhookStatus.IGNORED, WebhookStatus.HANDLED]


async def test_what_an_operator_decided_later_than_the_event_stands(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    operator = Actor(None, "operator")
    await db.write(lambda tx: orgs.set_plan(tx, org.id, operator, Plan.FREE))

    await deliver("customer.subscription.updated", at=1, id="sub_1", customer=customer, status="active")

    assert (await organization(db, org)).plan == Plan.FREE


async def test_a_customer_keeps_its_organization_when_another_one_names_it(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    other = await make_org(db, name="Pier", plan=Plan.FREE, card_verified=False)

    reference = billing_reference.make(db.env, other.id)

    await deliver("checkout.session.completed", mode="setup", client_reference_id=reference, customer=customer)

    assert (await organization(db, org)).stripe_customer == customer
    now = await organization(db, other)
    assert (now.stripe_customer, now.card_verified) == (None, True)


async def test_a_new_checkout_replaces_the_customer_and_old_subscriptions_are_still_known(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("customer.subscription.created", at=1, id="sub_1", customer=customer, status="active")
    reference = billing_reference.make(db.env, org.id)
    await deliver("checkout.session.completed", at=2, mode="setup", client_reference_id=reference, customer="cus_2")

    await deliver("customer.subscription.deleted", at=3, id="sub_1", customer=customer, status="canceled")

    now = await organization(db, org)
    assert (now.stripe_customer, now.plan) == ("cus_2", Plan.FREE)


@FOREIGN
async def test_an_unsigned_id_does_not_replace_the_customer_of_an_organization(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("payment_method.attached", at=1, id="pm_1", customer=customer)
    forged = f"{org.id}-{billing_reference.make(db.env, org.id + 1).partition('-')[2]}"

    for reference in (str(org.id), org.id, forged):
        await deliver("checkout.session.completed", at=2, mode="setup", client_reference_id=reference, customer="cus_2")
    await deliver("payment_method.attached", at=3, id="pm_2", customer="cus_2")
    await deliver("payment_method.detached", at=4, id="pm_2", customer="cus_2")

    now = await organization(db, org)
    assert (now.stripe_customer, now.card_verified) == (customer, True)
    assert await statuses(db) == [WebhookStatus.HANDLED, *[WebhookStatus.IGNORED] * 5]


@FOREIGN
@pytest.mark.parametrize("decided", ["by an operator", "by an operator, to the same", "when it was created"])
async def test_an_unsigned_id_leaves_an_organization_alone_whose_plan_or_card_is_set(
    db: Database, deliver: Deliver, decided: str
) -> None:
    is_new = decided == "when it was created"
    org = await make_org(db, plan=Plan.PRO if is_new else Plan.FREE, card_verified=is_new)
    if not is_new:
        plan = Plan.FREE if decided.endswith("same") else Plan.PRO
        await db.write(lambda tx: orgs.set_plan(tx, org.id, Actor(None, "operator"), plan))
    before = await organization(db, org)

    await deliver(
        "checkout.session.completed", at=2000, mode="setup", client_reference_id=str(org.id), customer="cus_2"
    )
    await deliver("payment_method.attached", at=2001, id="pm_2", customer="cus_2")
    await deliver("payment_method.detached", at=2002, id="pm_2", customer="cus_2")

    assert await organization(db, org) == before


@FOREIGN
async def test_an_unsigned_id_counts_less_than_the_organization_of_the_customer(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    other = await make_org(db, name="Pier", plan=Plan.FREE, card_verified=False)

    await deliver("checkout.session.completed", mode="setup", client_reference_id=str(other.id), customer=customer)

    assert (await organization(db, org)).card_verified
    assert await organization(db, other) == other


async def test_an_event_of_an_unknown_organization_is_recorded_without_effect(
    db: Database, org: Organization, deliver: Deliver
) -> None:
    references: list[Any] = [None, "", "0", "-1", "999999", "9" * 40, f"{org.id}; --", 1.5, True, [], {"id": org.id}]

    for reference in references:
        await deliver("checkout.session.completed", mode="setup", client_reference_id=reference, customer="cus_9")
        await deliver("setup_intent.succeeded", payment_method="pm_9", metadata={"organization_id": reference})
        await deliver("customer.subscription.deleted", id="sub_9", customer="cus_9", metadata=reference)

    now = await organization(db, org)
    assert (now.card_verified, now.plan, now.stripe_customer) == (False, Plan.FREE, None)
    assert await statuses(db) == [WebhookStatus.IGNORED] * 3 * len(references)


async def test_an_event_of_another_kind_is_recorded_without_effect(
    db: Database, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("invoice.paid", id="in_1", customer=customer, status="active")

    assert (await organization(db, org)).plan == Plan.FREE
    assert await statuses(db) == [WebhookStatus.IGNORED]


async def test_an_event_without_a_sensible_time_counts_from_its_arrival(
    api: Client, db: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    times: list[Any] = [None, 0, -5, "1767225600", 1.5, True, 10**30]
    made = [await make_org(db, plan=Plan.FREE) for _ in times]

    for org, created in zip(made, times, strict=True):
        data = {"object": {"id": f"sub_{org.id}", "status": "active", "metadata": {"organization_id": org.id}}}
        event = {"id": f"evt_{org.id}", "type": "customer.subscription.created", "created": created, "data": data}
        await send_stripe(api, clock, event)
    await run_jobs()

    now = [await organization(db, org) for org in made]
    assert [(org.plan, org.plan_event_at) for org in now] == [(Plan.PRO, clock.now())] * len(times)


async def test_an_event_of_another_shape_is_recorded_without_effect(
    api: Client, db: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    shapes: list[Any] = [None, [], "x", {}, {"object": None}, {"object": [], "previous_attributes": 3}]
    shapes.append({"object": {"id": {}, "status": [], "customer": [], "metadata": 5, "client_reference_id": {}}})

    for number, (kind, data) in enumerate(itertools.product(EFFECTS, shapes)):
        await send_stripe(api, clock, {"id": f"evt_{number}", "type": kind, "data": data})
        await run_jobs()

    assert await statuses(db) == [WebhookStatus.IGNORED] * len(EFFECTS) * len(shapes)


async def test_a_deleted_organization_is_no_longer_anybody(
    db: Database, org: Organization, customer: str, deliver: Deliver, run_jobs: RunJobs
) -> None:
    await deliver("customer.subscription.created", at=1, id="sub_1", customer=customer, status="active")
    await db.write(lambda tx: orgs.delete(tx, org.id, Actor(None, "operator")))
    await run_jobs()

    await deliver(
        "customer.subscription.updated",
        at=2,
        id="sub_2",
        customer=customer,
        status="active",
        metadata={"organization_id": str(org.id)},
    )

    assert await statuses(db) == [WebhookStatus.HANDLED, WebhookStatus.IGNORED]
    assert await db.read(lambda tx: tx.all(_HELD)) == ["sub_2"]


async def test_what_ended_or_belongs_to_nobody_is_forgotten_after_thirty_days(
    db: Database, clock: ManualClock, org: Organization, customer: str, deliver: Deliver
) -> None:
    await deliver("payment_method.attached", id="pm_mine", customer=customer)
    await deliver("payment_method.detached", id="pm_gone", previous={"customer": customer})
    await deliver("payment_method.attached", id="pm_stray", customer="cus_of_another_shop")

    clock.advance(30 * DAY_MS + 1)
    await db.write(service.sweep)

    assert await db.read(lambda tx: tx.all(_HELD)) == ["pm_mine"]
