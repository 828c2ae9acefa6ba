"""The order of checks, pair by pair: a request that breaks two rules gets the error of the earlier one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from tests.accounts.identity.support import guarded, in_organization, path_of
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client, Reply

from moorage.accounts.identity import users
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.settings(rate_limit=2, billing="manual")]

# Status and a word of the message for each broken rule, in the order of the checks.
RULES: dict[str, tuple[int, str, str]] = {
    "rate limit": (429, "rate_limited", "Too many requests"),
    "credential": (401, "unauthorized", "expired"),
    "suspension": (403, "forbidden", "suspended"),
    "organization": (404, "not_found", "organization"),
    "card wall": (402, "quota_exceeded", "payment method"),
    "minimum role": (403, "forbidden", "admin role"),
    "validation": (400, "bad_request", "not valid"),
}
_addresses = itertools.count(1)


@dataclass
class Breach:
    """Sends a request for an API token that breaks exactly the named rules."""

    api: Client
    db: Database
    clock: ManualClock
    rules: tuple[str, ...]

    async def send(self) -> Reply:
        # A separate client address: rejected requests count against it.
        api = Client(self.api.asgi, client=f"10.0.0.{next(_addresses)}")
        strange = await make_org(self.db)
        org = await make_org(self.db, card_verified="card wall" not in self.rules)
        user = await make_member(self.db, org, Role.VIEWER if "minimum role" in self.rules else Role.ADMIN)
        token = session_for(self.db, user)
        if "suspension" in self.rules:
            await self.db.write(lambda tx: users.suspend(tx, user, suspended=True))
        if "credential" in self.rules:
            self.clock.advance(2 * DAY_MS)
        if "rate limit" in self.rules:
            for _ in range(2):
                await api.get("/v1/me", token=token)
        named = strange.id if "organization" in self.rules else org.id
        body: dict[str, Any] = {"name": 5} if "validation" in self.rules else {"name": "ci"}
        return await api.post("/v1/api-tokens", token=token, org=named, json=body)


async def test_a_request_that_breaks_no_rule_passes(api: Client, db: Database, clock: ManualClock) -> None:
    reply = await Breach(api, db, clock, ()).send()

    assert reply.status == 200


async def test_a_broken_rule_answers_its_own_error(api: Client, db: Database, clock: ManualClock) -> None:
    for rule, (status, code, word) in RULES.items():
        reply = await Breach(api, db, clock, (rule,)).send()

        assert (reply.status, reply.error["code"]) == (status, code), rule
        assert word in reply.error["message"]


async def test_of_two_broken_rules_the_earlier_one_answers(api: Client, db: Database, clock: ManualClock) -> None:
    for earlier, later in itertools.combinations(RULES, 2):
        reply = await Breach(api, db, clock, (earlier, later)).send()

        status, code, word = RULES[earlier]
        assert (reply.status, reply.error["code"]) == (status, code), f"{earlier} before {later}"
        assert word in reply.error["message"]


@pytest.mark.settings(rate_limit=1_000_000)
async def test_an_unknown_path_is_not_found_before_any_credential_is_asked_for(api: Client) -> None:
    for method, path in (("GET", "/v1/nothing"), ("PUT", "/v1/me"), ("DELETE", "/v1/whoami"), ("GET", "/v1/me/")):
        reply = await api.request(method, path)

        assert (reply.status, reply.error["code"]) == (404, "not_found"), (method, path)


@pytest.mark.settings(rate_limit=1_000_000)
async def test_a_malformed_id_in_a_path_is_looked_at_after_the_role(api: Client, db: Database) -> None:
    org = await make_org(db)
    viewer, admin = await make_member(db, org, Role.VIEWER), await make_member(db, org, Role.ADMIN)

    refused = await api.delete("/v1/api-tokens/no-id", token=session_for(db, viewer))
    missing = await api.delete("/v1/api-tokens/no-id", token=session_for(db, admin))

    assert (refused.status, missing.status) == (403, 404)


@pytest.mark.settings(rate_limit=1_000_000)
async def test_a_suspended_user_is_refused_on_every_route(app: App, api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    credentials = (session_for(db, user), await make_token(db, user, org.id))
    await db.write(lambda tx: users.suspend(tx, user, suspended=True))

    for route, token in itertools.product(guarded(app.routes), credentials):
        reply = await api.request(route.method, path_of(route, {"org_id": org.id}), token=token)

        assert (reply.status, reply.error["message"]) == (403, "This user is suspended"), route.path


@pytest.mark.settings(rate_limit=1_000_000)
async def test_a_user_who_is_let_back_in_passes_with_the_same_token(api: Client, db: Database) -> None:
    user = await make_user(db)
    token = session_for(db, user)
    await db.write(lambda tx: users.suspend(tx, user, suspended=True))
    assert (await api.get("/v1/me", token=token)).status == 403

    await db.write(lambda tx: users.suspend(tx, user, suspended=False))

    assert (await api.get("/v1/me", token=token)).status == 200


@pytest.mark.parametrize("status", [Approval.PENDING, Approval.REJECTED])
@pytest.mark.settings(rate_limit=1_000_000)
async def test_a_user_without_approval_sees_only_their_own_account(
    status: Approval, app: App, api: Client, db: Database
) -> None:
    user = await make_user(db, status=status)
    org = await make_org(db, user)
    credentials = (session_for(db, user), await make_token(db, user, org.id))

    for route, token in itertools.product(in_organization(app.routes), credentials):
        reply = await api.request(route.method, path_of(route, {"org_id": org.id}), token=token)
        assert (reply.status, reply.error["code"]) == (403, "forbidden"), route.path

    for token in credentials:
        assert (await api.get("/v1/me", token=token)).data["id"] == user.id
        assert (await api.get("/v1/whoami", token=token)).data["orgId"] == str(org.id)
        assert (await api.get("/v1/account", token=token)).data["approvalStatus"] == status
