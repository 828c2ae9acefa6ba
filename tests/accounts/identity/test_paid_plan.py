"""Plan checks: a route that needs a paid plan, and a resource with an allowance."""

from __future__ import annotations

import pytest
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Plan
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Dispatcher
from moorage.core.http.route import Router
from moorage.core.telemetry import Telemetry
from moorage.errors import QuotaExceeded

pytestmark = pytest.mark.anyio


def paid_api(db: Database) -> Client:
    """The real gate in front of a route that needs a paid plan and the member role."""
    router = Router("Test")

    @router.get("/paid", paid=True, min_role=Role.MEMBER)
    def paid(caller: Caller) -> list[str]:
        return [caller.role]

    return Client(Dispatcher(router.routes, db, IdentityGate(Sessions(db.env)), Telemetry(quiet=True)))


@pytest.mark.settings(billing="manual")
@pytest.mark.parametrize(("plan", "status"), [(Plan.FREE, 402), (Plan.PRO, 200)])
async def test_a_paid_route_is_open_to_a_paid_plan_only(db: Database, plan: Plan, status: int) -> None:
    owner = await make_user(db)
    await make_org(db, owner, plan=plan)

    reply = await paid_api(db).get("/v1/paid", token=session_for(db, owner))

    assert reply.status == status
    if status == 402:
        assert reply.error["code"] == "quota_exceeded"


async def test_without_billing_every_organization_counts_as_paid(db: Database) -> None:
    owner = await make_user(db)
    await make_org(db, owner, plan=Plan.FREE, card_verified=False)

    assert (await paid_api(db).get("/v1/paid", token=session_for(db, owner))).status == 200


@pytest.mark.settings(billing="manual")
async def test_a_role_below_the_floor_is_told_so_before_the_plan_is_looked_at(db: Database) -> None:
    org = await make_org(db, plan=Plan.FREE)
    viewer = await make_member(db, org, Role.VIEWER)

    assert (await paid_api(db).get("/v1/paid", token=session_for(db, viewer))).status == 403


@pytest.mark.usefixtures("app")
@pytest.mark.settings(billing="manual")
async def test_one_more_than_the_plan_allows_is_refused(db: Database) -> None:
    org = await make_org(db, plan=Plan.FREE)
    most = plans.ALLOWANCES[Plan.FREE]["members"]
    for _ in range(most - 1):
        await db.read(lambda tx: plans.check_room(tx, org.id, org.standing, "members"))
        await make_member(db, org)

    with pytest.raises(QuotaExceeded, match=f"allows {most} members"):
        await db.read(lambda tx: plans.check_room(tx, org.id, org.standing, "members"))
