"""API tokens: shown once, stored as a hash."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.accounts.identity.support import IN_PRODUCTION, make_house, whole_store
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client, Reply

from moorage.accounts.identity import gate, tokens
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, ManualClock, to_wire
from moorage.core.kit.ids import token_hash

pytestmark = pytest.mark.anyio


async def test_a_created_token_is_shown_once_with_exactly_these_fields(
    api: Client, db: Database, clock: ManualClock
) -> None:
    house = await make_house(db)

    made = (await api.post("/v1/api-tokens", token=house.sessions[Role.ADMIN], json={"name": "ci"})).data

    assert made == {
        "id": made["id"],
        "name": "ci",
        "token": made["token"],
        "preview": f"psk_...{made['token'][-4:]}",
        "role": "admin",
        "createdAt": to_wire(clock.now()),
        "expiresAt": None,
    }
    assert (await api.get("/v1/whoami", token=made["token"])).data["role"] == "admin"


async def test_a_token_is_40_base62_characters(api: Client, db: Database) -> None:
    house = await make_house(db)

    made = (await api.post("/v1/api-tokens", token=house.tokens[Role.OWNER], json={"name": "ci"})).data["token"]

    assert re.fullmatch(r"psk_test_[0-9A-Za-z]{40}", made)


@IN_PRODUCTION
async def test_a_token_of_production_says_so(api: Client, db: Database) -> None:
    house = await make_house(db)

    made = (await api.post("/v1/api-tokens", token=house.sessions[Role.OWNER], json={"name": "ci"})).data

    assert re.fullmatch(r"psk_live_[0-9A-Za-z]{40}", made["token"])
    assert made["preview"] == f"psk_...{made['token'][-4:]}"
    assert (await api.get("/v1/whoami", token=made["token"])).status == 200


async def test_tokens_are_listed_newest_first_and_masked(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db)
    await make_org(db, user)
    session = session_for(db, user)
    raw = {}
    for name in ("first", "second"):
        body = {"name": name, "role": "member", "expiresInDays": 30}
        raw[name] = (await api.post("/v1/api-tokens", token=session, json=body)).data["token"]

    listed = await api.get("/v1/api-tokens", token=session)

    assert [item["name"] for item in listed.data] == ["second", "first"]
    assert listed.data[1] == {
        "id": listed.data[1]["id"],
        "name": "first",
        "preview": f"psk_...{raw['first'][-4:]}",
        "role": "member",
        "createdAt": to_wire(clock.now()),
        "expiresAt": to_wire(clock.now() + 30 * DAY_MS),
        "lastUsedAt": None,
    }
    assert not any(value in listed.body.decode() for value in raw.values())


async def test_the_raw_token_is_nowhere_in_the_store(api: Client, db: Database) -> None:
    house = await make_house(db)
    headers = {"Idempotency-Key": "k"}

    made = await api.post("/v1/api-tokens", token=house.sessions[Role.OWNER], json={"name": "ci"}, headers=headers)

    raw = made.data["token"]
    stored = repr(await whole_store(db))
    assert token_hash(raw) in stored
    for secret in (raw, raw.removeprefix("psk_test_"), raw[9:30]):
        assert secret not in stored


async def test_a_repeat_under_the_same_key_does_not_show_the_token_again(api: Client, db: Database) -> None:
    house = await make_house(db)
    headers = {"Idempotency-Key": "k"}

    replies = [
        await api.post("/v1/api-tokens", token=house.sessions[Role.OWNER], json={"name": "ci"}, headers=headers)
        for _ in range(2)
    ]

    assert [reply.status for reply in replies] == [200, 409]


async def test_a_role_above_ones_own_is_refused(api: Client, db: Database) -> None:
    house = await make_house(db)
    admin = house.tokens[Role.ADMIN]

    above = await api.post("/v1/api-tokens", token=admin, json={"name": "ci", "role": "owner"})
    made = [
        await api.post("/v1/api-tokens", token=admin, json={"name": "ci", "role": role})
        for role in Role
        if role != "owner"
    ]

    assert (above.status, above.error["code"]) == (403, "forbidden")
    assert [reply.data["role"] for reply in made] == ["viewer", "member", "admin"]


async def test_a_token_cannot_make_one_above_itself_however_high_its_creator_is(api: Client, db: Database) -> None:
    house = await make_house(db)
    held = await make_token(db, house.people[Role.OWNER], house.org.id, role=Role.ADMIN)

    above = await api.post("/v1/api-tokens", token=held, json={"name": "ci", "role": "owner"})
    default = await api.post("/v1/api-tokens", token=held, json={"name": "ci"})

    assert above.status == 403
    assert default.data["role"] == "admin"


async def test_malformed_bodies_name_their_fields(api: Client, db: Database) -> None:
    house = await make_house(db)
    malformed: list[tuple[Any, set[str]]] = [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "   "}, {"name"}),
        ({"name": "x" * 121}, {"name"}),
        ({"name": 5}, {"name"}),
        ({"name": None}, {"name"}),
        ({"name": "a\x00b"}, {"name"}),
        ({"name": "ci", "expiresInDays": 0}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": -1}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": 3651}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": "60"}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": 1.5}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": True}, {"expiresInDays"}),
        ({"name": "ci", "expiresInDays": None}, {"expiresInDays"}),
        ({"name": "ci", "role": "root"}, {"role"}),
        ({"name": "ci", "role": "Owner"}, {"role"}),
        ({"name": "ci", "role": None}, {"role"}),
        ({"name": 5, "expiresInDays": "x", "role": 1}, {"name", "expiresInDays", "role"}),
        ([], {"body"}),
        ("ci", {"body"}),
    ]
    for body, fields in malformed:
        reply = await api.post("/v1/api-tokens", token=house.tokens[Role.OWNER], json=body)

        assert (reply.status, reply.error["code"]) == (400, "bad_request"), body
        assert set(reply.error["fields"]) == fields, body


async def test_the_bounds_of_the_lifetime_are_both_allowed_and_unknown_fields_ignored(
    api: Client, db: Database, clock: ManualClock
) -> None:
    house = await make_house(db)

    for days in (1, 3650):
        body = {"name": "ci", "expiresInDays": days, "colour": "blue"}
        made = await api.post("/v1/api-tokens", token=house.tokens[Role.OWNER], json=body)
        assert made.data["expiresAt"] == to_wire(clock.now() + days * DAY_MS)


async def test_a_revoked_token_ends_at_once_and_leaves_the_list(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner = house.sessions[Role.OWNER]
    made = (await api.post("/v1/api-tokens", token=owner, json={"name": "ci"})).data
    assert (await api.get("/v1/me", token=made["token"])).status == 200

    revoked = await api.delete(f"/v1/api-tokens/{made['id']}", token=owner)

    assert (revoked.status, revoked.json) == (200, {"success": True})
    assert (await api.get("/v1/me", token=made["token"])).status == 401
    assert made["id"] not in [item["id"] for item in (await api.get("/v1/api-tokens", token=owner)).data]
    assert (await api.delete(f"/v1/api-tokens/{made['id']}", token=owner)).status == 404


async def test_a_token_can_revoke_itself(api: Client, db: Database) -> None:
    house = await make_house(db)
    made = (await api.post("/v1/api-tokens", token=house.sessions[Role.OWNER], json={"name": "ci"})).data

    assert (await api.delete(f"/v1/api-tokens/{made['id']}", token=made["token"])).status == 200
    assert (await api.get("/v1/me", token=made["token"])).status == 401


async def test_what_is_no_token_of_the_organization_is_not_found(api: Client, db: Database) -> None:
    house, other = await make_house(db), await make_house(db, name="Other")
    strange = (await api.get("/v1/api-tokens", token=other.tokens[Role.OWNER])).data[0]["id"]

    for named in (strange, 999_999, 0, -1, "x", "1x", "9" * 30, "%20"):
        reply = await api.delete(f"/v1/api-tokens/{named}", token=house.tokens[Role.OWNER])
        assert (reply.status, reply.error["code"]) == (404, "not_found"), named
    assert len((await api.get("/v1/api-tokens", token=other.tokens[Role.OWNER])).data) == 4


async def test_when_a_token_was_last_used_is_noted_once_a_minute(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    session, begun = session_for(db, user), clock.now()

    await api.get("/v1/me", token=token)
    await last_used(api, session, to_wire(begun))
    clock.advance(MINUTE_MS)
    await api.get("/v1/me", token=token)
    within = (await api.get("/v1/api-tokens", token=session)).data[0]["lastUsedAt"]
    clock.advance(1)
    await api.post("/v1/notifications/read", token=token)

    assert within == to_wire(begun)
    await last_used(api, session, to_wire(clock.now()))


async def test_a_list_right_after_the_first_use_of_a_token_shows_it(
    api: Client, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LAST_USED_DELAY_S", 0.5)
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)

    unused = (await api.get("/v1/api-tokens", token=session_for(db, user))).data[0]["lastUsedAt"]
    await api.get("/v1/me", token=token)
    used = (await api.get("/v1/api-tokens", token=session_for(db, user))).data[0]["lastUsedAt"]

    assert (unused, used) == (None, to_wire(clock.now()))


async def last_used(api: Client, session: str, expected: str) -> None:
    """Wait until the list shows the last use, which is written after the response."""
    async with asyncio.timeout(10):
        while (await api.get("/v1/api-tokens", token=session)).data[0]["lastUsedAt"] != expected:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "constant",
    [
        pytest.param("MAX_IN_DEVELOPMENT", id="development"),
        pytest.param("MAX_OF_ORGANIZATION", marks=IN_PRODUCTION, id="production"),
    ],
)
async def test_an_organization_has_a_bounded_number_of_active_tokens(
    api: Client, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    monkeypatch.setattr(tokens, constant, 2)
    user = await make_user(db)
    org = await make_org(db, user)
    session = session_for(db, user)

    async def create(**body: Any) -> Reply:
        return await api.post("/v1/api-tokens", token=session, org=org.id, json={"name": "ci", **body})

    brief, first, refused = await create(expiresInDays=1), await create(), await create()
    await api.delete(f"/v1/api-tokens/{first.data['id']}", token=session, org=org.id)
    after_revoking = await create()
    clock.advance(DAY_MS)
    session = session_for(db, user)
    after_expiry = await create()

    assert [each.status for each in (brief, first, refused, after_revoking, after_expiry)] == [200, 200, 409, 200, 200]
    assert "at most 2 API tokens" in refused.error["message"]
