"""Logins without a provider: the demo user, and the setup link of the first owner."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from tests.accounts.identity.support import IN_PRODUCTION, whole_store
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client

from moorage.accounts.identity import logins, users
from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.kit.ids import token_hash

pytestmark = pytest.mark.anyio


async def set_up(api: Client, token: str, email: str = "ada@example.com", name: str = "Ada Moor") -> Any:
    return await api.post("/v1/auth/setup", json={"setup_token": token, "email": email, "name": name})


async def test_the_demo_user_owns_a_paid_and_verified_organization(api: Client) -> None:
    demo = (await api.post("/v1/auth/demo")).data

    assert set(demo) == {"token", "email", "organizationId"}
    me = (await api.get("/v1/me", token=demo["token"])).data
    assert me["email"] == demo["email"]
    assert [(org["organizationId"], org["role"], org["cardVerified"]) for org in me["organizations"]] == [
        (demo["organizationId"], "owner", True)
    ]
    assert (await api.get("/v1/orgs", token=demo["token"])).data[0]["plan"] == "pro"


@pytest.mark.settings(billing="manual")
async def test_the_demo_organization_passes_the_wall_where_cards_count(api: Client) -> None:
    demo = (await api.post("/v1/auth/demo")).data

    billing = (await api.get("/v1/billing", token=demo["token"])).data
    assert (billing["paid"], billing["cardVerified"]) == (True, True)
    assert (await api.get("/v1/activity", token=demo["token"])).status == 200


async def test_a_demo_login_finds_the_same_user_and_organization_again(api: Client, db: Database) -> None:
    first = (await api.post("/v1/auth/demo")).data

    again = await asyncio.gather(*(api.post("/v1/auth/demo") for _ in range(6)))

    assert {(reply.data["email"], reply.data["organizationId"]) for reply in again} == {
        (first["email"], first["organizationId"])
    }
    store = await whole_store(db)
    assert (len(store["account"]), len(store["organization"])) == (1, 1)


async def test_first_demo_logins_at_the_same_moment_make_one_user(api: Client, db: Database) -> None:
    replies = await asyncio.gather(*(api.post("/v1/auth/demo") for _ in range(6)))

    assert [reply.status for reply in replies] == [200] * 6
    store = await whole_store(db)
    assert (len(store["account"]), len(store["organization"])) == (1, 1)


async def test_a_demo_user_who_was_invited_elsewhere_still_acts_on_its_own_organization(
    api: Client, db: Database, clock: ManualClock
) -> None:
    older = await make_org(db)
    clock.advance(DAY_MS)
    first = (await api.post("/v1/auth/demo")).data
    demo = await db.read(lambda tx: users.find_by_email(tx, first["email"]))
    assert demo is not None
    await make_member(db, older, Role.VIEWER, demo)

    again = (await api.post("/v1/auth/demo")).data
    token = await db.write(lambda tx: operator.make_token(tx, None, None, None, "demo"))

    assert again["organizationId"] == first["organizationId"]
    who = (await api.get("/v1/whoami", token=token)).data
    assert (who["orgId"], who["role"]) == (first["organizationId"], "owner")


async def test_a_session_token_is_hs256_and_says_who_and_until_when_and_nothing_else(
    api: Client, clock: ManualClock
) -> None:
    token = (await api.post("/v1/auth/demo")).data["token"]

    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in token.split(".")[:2]
    )
    user = (await api.get("/v1/me", token=token)).data["id"]
    assert header["alg"] == "HS256"
    assert set(claims) == {"sub", "iat", "exp", "jti"}
    assert (claims["sub"], claims["iat"]) == (str(user), clock.now() // 1000)
    assert claims["exp"] - claims["iat"] == 24 * 3600
    assert token != (await api.post("/v1/auth/demo")).data["token"]


async def test_a_demo_login_takes_any_body_or_none(api: Client) -> None:
    assert (await api.post("/v1/auth/demo", json={"email": "root@example.com"})).data["email"] != "root@example.com"


@pytest.mark.boundary(
    "stranger-to-platform", "A web page whose name resolves to a development platform cannot log in as the demo user."
)
@pytest.mark.settings(base_url="http://moorage.example:8080")
async def test_the_demo_login_needs_a_host_of_the_platform(api: Client, db: Database) -> None:
    async def log_in(host: str) -> tuple[int, str | None]:
        reply = await api.post("/v1/auth/demo", headers={"Host": host})
        return reply.status, reply.error["code"] if reply.status >= 400 else None

    refused = [await log_in(host) for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example")]
    store = await whole_store(db)
    own = ("localhost:8080", "console.localhost", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "moorage.example:8080")
    admitted = [await log_in(host) for host in own]

    assert refused == [(403, "forbidden")] * 3
    assert store["account"] == []
    assert admitted == [(200, None)] * len(own)


@IN_PRODUCTION
async def test_there_is_no_demo_in_production(api: Client, db: Database) -> None:
    reply = await api.post("/v1/auth/demo", headers={"Host": "evil.example"})

    assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert (await whole_store(db))["account"] == []


@IN_PRODUCTION
async def test_the_setup_token_makes_the_first_owner_once(api: Client, db: Database) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    first = await set_up(api, token)
    second = await set_up(api, token, email="eve@example.com")

    assert first.data == {
        "access_token": first.data["access_token"],
        "user": {"approval_status": "approved", "profile_completed": True, "mfaEnabled": False},
    }
    me = (await api.get("/v1/me", token=first.data["access_token"])).data
    assert (me["email"], me["firstName"], me["lastName"]) == ("ada@example.com", "Ada", "Moor")
    assert [org["role"] for org in me["organizations"]] == ["owner"]
    assert (second.status, second.error["code"]) == (403, "forbidden")


@IN_PRODUCTION
async def test_of_many_who_use_the_setup_token_at_the_same_moment_one_becomes_owner(api: Client, db: Database) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    replies = await asyncio.gather(*(set_up(api, token, email=f"user{number}@example.com") for number in range(6)))

    assert sorted(reply.status for reply in replies) == [200, *[403] * 5]
    assert len((await whole_store(db))["account"]) == 1


@IN_PRODUCTION
async def test_a_wrong_or_older_setup_token_is_refused(api: Client, db: Database) -> None:
    older = await db.write(logins.offer_setup)
    newer = await db.write(logins.offer_setup)
    assert older is not None
    assert newer is not None

    for token in (older, "x", newer[:-1], f"{newer}x", token_hash(newer)):
        assert (await set_up(api, token)).status == 403
    assert (await set_up(api, newer)).status == 200


@IN_PRODUCTION
async def test_a_platform_with_a_user_offers_no_setup_and_forgets_the_token_it_offered(
    api: Client, db: Database
) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None
    await make_user(db)

    assert await db.write(logins.offer_setup) is None
    assert (await set_up(api, token)).status == 403


@IN_PRODUCTION
async def test_without_an_offer_there_is_no_setup_and_the_token_is_kept_as_a_hash(api: Client, db: Database) -> None:
    assert (await set_up(api, "x")).status == 403

    token = await db.write(logins.offer_setup)

    assert token is not None
    stored = repr(await whole_store(db))
    assert token not in stored
    assert token_hash(token) in stored


@IN_PRODUCTION
async def test_a_malformed_setup_names_its_fields_and_leaves_the_token(api: Client, db: Database) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    malformed = await set_up(api, token, email="nobody", name=" ")

    assert (malformed.status, set(malformed.error["fields"])) == (400, {"email", "name"})
    assert (await set_up(api, token)).status == 200


async def test_sessions_of_one_user_are_independent(api: Client, db: Database) -> None:
    user = await make_user(db)

    tokens = {session_for(db, user) for _ in range(3)}

    assert len(tokens) == 3
    for token in tokens:
        assert (await api.get("/v1/me", token=token)).data["id"] == user.id


@IN_PRODUCTION
async def test_the_setup_token_ends_as_soon_as_there_is_a_user(api: Client, db: Database) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    await make_user(db)

    assert (await set_up(api, token)).status == 403


async def test_the_ways_to_log_in_are_public(api: Client) -> None:
    reply = await api.get("/v1/auth/methods")

    assert (reply.status, reply.data) == (200, {"demo": True, "providers": []})


@pytest.mark.settings(oidc_issuers=("https://login.example.com",), oidc_audience=("console",))
async def test_the_ways_to_log_in_name_the_providers(api: Client) -> None:
    providers = (await api.get("/v1/auth/methods")).data["providers"]

    assert providers == [{"issuer": "https://login.example.com", "clientId": "console"}]
