"""Plan, card, limits, usage and the tier catalog."""

from __future__ import annotations

import pytest
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.organizations import billing_reference
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import ALLOWANCES, Plan, Standing
from moorage.accounts.plans.tiers import CATALOG, CRONJOB_TIERS, find_tier
from moorage.core.db.store import Database
from moorage.errors import QuotaExceeded

pytestmark = pytest.mark.anyio


async def test_without_billing_everything_counts_as_paid_and_nothing_is_limited(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user, plan=Plan.FREE, card_verified=False)
    session = session_for(db, user)

    assert (await api.get("/v1/billing", token=session)).data == {
        "organizationId": str(org.id),
        "provider": "none",
        "plan": "free",
        "paid": True,
        "cardVerified": True,
        "portalUrl": None,
        "checkoutReference": None,
    }
    assert set((await api.get("/v1/limits", token=session)).data["limits"].values()) == {None}
    assert (await api.get("/v1/usage", token=session)).data["usage"]["members"] == {"used": 1, "limit": None}


@pytest.mark.settings(billing="manual")
async def test_where_an_operator_decides_plan_and_card_are_what_the_operator_says(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user, plan=Plan.FREE, card_verified=False)
    session = session_for(db, user)
    before = (await api.get("/v1/billing", token=session)).data

    await db.write(lambda tx: operator.set_plan(tx, org.id, "pro"))
    await db.write(lambda tx: operator.set_card(tx, org.id, verified=True))

    after = (await api.get("/v1/billing", token=session)).data
    assert (before["provider"], before["plan"], before["paid"], before["cardVerified"]) == (
        "manual",
        "free",
        False,
        False,
    )
    assert (after["plan"], after["paid"], after["cardVerified"]) == ("pro", True, True)


@pytest.mark.settings(
    billing="stripe", stripe_webhook_secret="whsec_test", stripe_portal_url="https://billing.example/portal"
)
async def test_the_payment_portal_is_linked_where_there_is_one(api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user)

    billing = (await api.get("/v1/billing", token=session_for(db, user))).data

    assert (billing["provider"], billing["portalUrl"]) == ("stripe", "https://billing.example/portal")


@pytest.mark.settings(billing="stripe", stripe_webhook_secret="whsec_test")
async def test_admins_see_the_reference_of_the_organization_s_checkouts(api: Client, db: Database) -> None:
    org = await make_org(db)
    members = {role: session_for(db, await make_member(db, org, role)) for role in Role}

    references = {
        role: (await api.get("/v1/billing", token=session, org=org.id)).data["checkoutReference"]
        for role, session in members.items()
    }

    shown = references[Role.ADMIN]
    assert references == {Role.VIEWER: None, Role.MEMBER: None, Role.ADMIN: shown, Role.OWNER: shown}
    assert billing_reference.read(db.env, shown) == org.id


async def test_a_reference_is_only_read_with_its_own_signature(db: Database) -> None:
    one, other = (billing_reference.make(db.env, org_id) for org_id in (7, 8))
    signature = other.partition("-")[2]

    bad = [
        "",
        "7",
        "7-",
        "-",
        f"7-{signature}",
        f"{one}x",
        one[:-1],
        f"07-{signature}",
        f" {one}",
        f"7-{'é' * 22}",
        "é-x",
    ]

    assert (billing_reference.read(db.env, one), billing_reference.read(db.env, other)) == (7, 8)
    assert [each for each in bad if billing_reference.read(db.env, each) is not None] == []


@pytest.mark.settings(billing="manual", rate_limit=300)
@pytest.mark.parametrize("plan", [Plan.FREE, Plan.PRO])
async def test_limits_are_those_of_the_plan(plan: Plan, api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user, plan=plan)

    limits = (await api.get("/v1/limits", token=session_for(db, user))).data

    assert limits == {"plan": plan, "requestsPerMinute": 300, "limits": ALLOWANCES[plan]}


@pytest.mark.settings(billing="manual")
async def test_usage_counts_what_the_organization_has_and_nobody_elses(api: Client, db: Database) -> None:
    user = await make_user(db)
    org, other = await make_org(db, user, plan=Plan.FREE), await make_org(db)
    await make_member(db, org, Role.VIEWER)
    for _ in range(3):
        await make_member(db, other)

    usage = (await api.get("/v1/usage", token=session_for(db, user))).data

    assert usage["plan"] == "free"
    assert usage["usage"]["members"] == {"used": 2, "limit": 3}
    assert set(usage["usage"]) == set(db.env.hooks.of(plans.COUNT))


@pytest.mark.usefixtures("app")
@pytest.mark.settings(billing="manual")
async def test_a_resource_is_refused_at_the_allowance_and_not_before(db: Database) -> None:
    org = await make_org(db, plan=Plan.FREE)
    standing = Standing(Plan.FREE, True)
    await make_member(db, org)
    await db.read(lambda tx: plans.check_room(tx, org.id, standing, "members"))
    await make_member(db, org)

    with pytest.raises(QuotaExceeded, match="3 members"):
        await db.read(lambda tx: plans.check_room(tx, org.id, standing, "members"))


async def test_the_tier_catalog_is_the_promised_one_for_any_credential(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    tiers = (await api.get("/v1/tiers", token=session)).data

    shown = [(tier["key"], tier["cpu"], tier["memory"], tier["disk"], tier["paid"]) for tier in tiers]
    assert shown == [
        ("free", 0.25, 0.25, 1, False),
        ("micro", 0.5, 0.5, 5, True),
        ("mini", 1, 1, 10, True),
        ("small", 1, 2, 20, True),
        ("medium", 2, 4, 40, True),
        ("large", 2, 8, 80, True),
        ("xlarge", 4, 16, 160, True),
    ]
    assert all(set(tier) == {"key", "name", "cpu", "memory", "disk", "paid"} for tier in tiers)


def test_a_tier_is_found_by_its_key_and_cronjobs_take_some_of_them() -> None:
    assert [find_tier(tier.key) for tier in CATALOG] == list(CATALOG)
    assert find_tier("huge") is None
    assert CRONJOB_TIERS == ("micro", "mini", "large", "xlarge")
