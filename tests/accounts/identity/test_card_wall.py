"""The verified card: without one, only routes for adding one are open."""

from __future__ import annotations

import pytest
from tests.accounts.identity.support import HangsUp, guarded, path_of
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.settings(billing="manual")]

# The specification's prefixes, and the routes that have no organization scope.
OPEN = (
    "/health",
    "/v1/me",
    "/v1/orgs",
    "/v1/account",
    "/v1/billing",
    "/v1/limits",
    "/v1/usage",
    "/v1/notifications",
    "/v1/whoami",
    "/v1/invitations",
    "/v1/sessions",
    "/v1/tiers",
    "/v1/cron",
    "/v1/operator",  # 404 for everyone else
    "/v1/openapi.json",
)


def is_open(path: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in OPEN)


async def test_without_a_verified_card_exactly_the_listed_routes_are_reachable(app: App, db: Database) -> None:
    client = Client(HangsUp(app.asgi))

    for route in guarded(app.routes):
        user = await make_user(db)
        org = await make_org(db, user, card_verified=False)

        reply = await client.request(route.method, path_of(route, {"org_id": org.id}), token=session_for(db, user))

        assert (reply.status == 402) is not is_open(route.path), (route.method, route.path, reply.status)
        if reply.status == 402:
            assert reply.error["code"] == "quota_exceeded"


async def test_the_wall_stands_before_api_tokens_too_and_clears_with_the_card(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user, card_verified=False)
    token = await make_token(db, user, org.id)
    assert (await api.get("/v1/activity", token=token)).status == 402

    await db.write(lambda tx: operator.set_card(tx, org.id, verified=True))
    open_again = await api.get("/v1/activity", token=token)
    await db.write(lambda tx: operator.set_card(tx, org.id, verified=False))
    walled_again = await api.get("/v1/activity", token=token)

    assert (open_again.status, walled_again.status) == (200, 402)


async def test_the_wall_is_the_organizations_and_not_the_users(api: Client, db: Database) -> None:
    user = await make_user(db)
    verified, unverified = await make_org(db, user), await make_org(db, user, card_verified=False)
    session = session_for(db, user)

    assert (await api.get("/v1/activity", token=session, org=verified.id)).status == 200
    assert (await api.get("/v1/activity", token=session, org=unverified.id)).status == 402


async def test_a_card_is_enough_whatever_the_plan(api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user, plan=Plan.FREE)

    assert (await api.get("/v1/activity", token=session_for(db, user))).status == 200


async def test_me_and_the_organization_show_whether_the_card_is_verified(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user, card_verified=False)
    session = session_for(db, user)

    assert (await api.get("/v1/me", token=session)).data["organizations"][0]["cardVerified"] is False
    assert (await api.get(f"/v1/orgs/{org.id}", token=session)).data["cardVerified"] is False
    assert (await api.get("/v1/billing", token=session)).data["cardVerified"] is False


@pytest.mark.settings(billing="none")
async def test_without_billing_every_organization_counts_as_verified(api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user, card_verified=False, plan=Plan.FREE)
    session = session_for(db, user)

    assert (await api.get("/v1/activity", token=session)).status == 200
    assert (await api.get("/v1/me", token=session)).data["organizations"][0]["cardVerified"] is True
