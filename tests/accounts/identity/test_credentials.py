"""Invalid credentials: the response is always the same 401."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from tests.accounts.identity.support import IN_PRODUCTION, HangsUp, guarded, path_of
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http.route import Scope
from moorage.core.kit.clock import DAY_MS, HOUR_MS, SECOND_MS, ManualClock
from moorage.core.kit.ids import new_token

pytestmark = pytest.mark.anyio


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(header: Any, claims: Any, key: bytes, digest: str = "sha256") -> str:
    head = f"{part(header)}.{part(claims)}"
    return f"{head}.{part(hmac.digest(key, head.encode(), digest))}"


def forgeries(db: Database, user_id: int, session: str) -> dict[str, str]:
    """Return tokens with a wrong signature or with invalid claims."""
    key, now = db.env.session_key, db.env.clock.now() // 1000
    good = {"sub": str(user_id), "iat": now, "exp": now + 3600, "jti": "x"}
    hs256 = {"alg": "HS256", "typ": "JWT"}
    head, claims, signature = session.split(".")
    return {
        "wrong secret": signed(hs256, good, b"s" * 32),
        "empty secret": signed(hs256, good, b""),
        "unsigned": f"{part({'alg': 'none'})}.{part(good)}.",
        "unsigned, in capitals": f"{part({'alg': 'NONE'})}.{part(good)}.",
        "unsigned, with a signature": f"{part({'alg': 'none'})}.{claims}.{signature}",
        "no algorithm": signed({"typ": "JWT"}, good, key),
        "HS512": signed({"alg": "HS512"}, good, key, "sha512"),
        "HS384": signed({"alg": "HS384"}, good, key, "sha384"),
        "unknown critical header": signed({**hs256, "crit": ["x"], "x": 1}, good, key),
        "tampered claims": f"{head}.{part({**good, 'sub': '1'})}.{signature}",
        "tampered header": f"{part({**hs256, 'kid': 'x'})}.{claims}.{signature}",
        "tampered signature": session[:-4] + ("AAAA" if session[-4:] != "AAAA" else "BBBB"),
        "no signature": f"{head}.{claims}.",
        "two parts": f"{head}.{claims}",
        "five parts": f"{session}.x.y",
        "twice": f"{session}{session}",
        "no end": signed(hs256, {"sub": str(user_id)}, key),
        "an end that is text": signed(hs256, {**good, "exp": str(now + 3600)}, key),
        "an end that is a truth": signed(hs256, {**good, "exp": True}, key),
        "an end that is now": signed(hs256, {**good, "exp": now}, key),
        "no subject": signed(hs256, {"exp": now + 3600}, key),
        "a subject that is a number": signed(hs256, {**good, "sub": user_id}, key),
        "a subject that is no id": signed(hs256, {**good, "sub": "root"}, key),
        "a subject with a zero before it": signed(hs256, {**good, "sub": f"0{user_id}"}, key),
        "nobody": signed(hs256, {**good, "sub": "999999"}, key),
        "claims that are a list": signed(hs256, [good], key),
        "claims that are no JSON": signed(hs256, b"{", key),
        "huge": f"{head}.{'A' * 10_000}.{signature}",
        "very huge": "x" * 1_000_000,
        "not ASCII": f"{head}é.{claims}.{signature}",
        "an API token nobody made": new_token("psk_test_"),
        "a production token nobody made": new_token("psk_live_"),
        "an API token that is too short": "psk_test_abc",
        "only a prefix": "psk_test_",
        "a function token": new_token("fnk_"),
        "a dot": ".",
    }


async def test_forged_tokens_are_refused_for_reads_and_writes(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    session = session_for(db, user)
    assert (await api.get("/v1/me", token=session)).status == 200

    for forgery, token in forgeries(db, user.id, session).items():
        read = await api.get("/v1/me", token=token)
        write = await api.patch(f"/v1/orgs/{org.id}", token=token, json={"name": "Mine"})

        assert (read.status, read.error["code"]) == (401, "unauthorized"), forgery
        assert write.status == 401, forgery


async def test_an_api_token_with_one_character_changed_is_refused(api: Client, db: Database) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    assert (await api.get("/v1/me", token=token)).status == 200

    for at in (3, 5, 9, 20, len(token) - 1):
        changed = token[:at] + ("a" if token[at] != "a" else "b") + token[at + 1 :]
        assert (await api.get("/v1/me", token=changed)).status == 401, at


async def test_malformed_authorization_headers_are_refused(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))
    malformed = ("", "Bearer", "Bearer ", "Bearer    ", session, f"Basic {session}", f"Token {session}")
    mangled = (f"Bearer:{session}", f"Bearer {session} x", f"Bearer x {session}", f'Bearer "{session}"')

    for header in (*malformed, *mangled):
        reply = await api.get("/v1/me", headers={"Authorization": header})
        assert (reply.status, reply.error["code"]) == (401, "unauthorized"), header[:20]


async def test_the_scheme_is_read_whatever_its_case(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    for scheme in ("Bearer", "bearer", "BEARER"):
        assert (await api.get("/v1/me", headers={"Authorization": f"{scheme} {session}"})).status == 200


async def test_every_route_but_the_public_ones_asks_for_a_credential(app: App, api: Client) -> None:
    for route in guarded(app.routes):
        reply = await api.request(route.method, path_of(route, {}))

        assert (reply.status, reply.error["code"]) == (401, "unauthorized"), (route.method, route.path)


async def test_the_public_routes_are_these_and_no_others(app: App) -> None:
    public = {(route.method, route.path) for route in app.routes if route.scope is Scope.PUBLIC}

    assert public == {
        ("GET", "/health"),
        ("GET", "/v1/openapi.json"),
        ("POST", "/v1/auth/social"),
        ("GET", "/v1/auth/methods"),
        ("POST", "/v1/auth/oidc/begin"),
        ("POST", "/v1/auth/oidc/token"),
        ("POST", "/v1/auth/demo"),
        ("POST", "/v1/auth/setup"),
        ("GET", "/v1/github/callback"),
        ("POST", "/webhook"),
        ("POST", "/api/v1/webhook/github-events"),
    }


async def test_a_token_in_the_query_holds_for_event_streams_only(app: App, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    session, client = session_for(db, user), Client(HangsUp(app.asgi))

    for route in guarded(app.routes):
        query = f"?access_token={session}&organization_id={org.id}"
        reply = await client.request(route.method, path_of(route, {"org_id": org.id}) + query)

        assert (reply.status == 401) is not route.events, (route.method, route.path, reply.status)


async def test_a_session_holds_for_a_day(api: Client, db: Database, clock: ManualClock) -> None:
    session = session_for(db, await make_user(db))

    clock.advance(DAY_MS - SECOND_MS)
    before = await api.get("/v1/me", token=session)
    clock.advance(SECOND_MS)
    after = await api.get("/v1/me", token=session)

    assert (before.status, after.status) == (200, 401)


@pytest.mark.settings(session_hours=1)
async def test_the_operator_decides_how_long_a_session_holds(api: Client, db: Database, clock: ManualClock) -> None:
    session = session_for(db, await make_user(db))

    clock.advance(HOUR_MS)

    assert (await api.get("/v1/me", token=session)).status == 401


async def test_an_expired_api_token_is_refused(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id, expires_in_days=1)

    clock.advance(DAY_MS - 1)
    before = await api.get("/v1/me", token=token)
    clock.advance(1)
    after = await api.get("/v1/me", token=token)

    assert (before.status, after.status) == (200, 401)


async def test_the_session_of_a_deleted_account_is_refused(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))
    assert (await api.delete("/v1/account", token=session)).status == 200

    assert (await api.get("/v1/me", token=session)).status == 401


@IN_PRODUCTION
async def test_a_message_of_a_refusal_never_repeats_the_credential(api: Client) -> None:
    token = new_token("psk_live_")

    reply = await api.get("/v1/me", token=token)

    assert reply.status == 401
    assert token[-16:] not in reply.body.decode()
