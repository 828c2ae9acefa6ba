"""Invalid ID tokens: forged, for another audience, expired, or with malformed claims."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import pytest
from tests.accounts.identity.openid.provider import AUDIENCE, Provider, claims, log_in
from tests.accounts.identity.support import whole_store
from tests.client import Client

from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, SECOND_MS, ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.group("openid")]


def part(value: dict[str, Any] | bytes) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def claims_of(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


async def test_a_token_for_another_audience_is_refused(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada", client_id="somebody-else")

    assert (await log_in(api, token, terms_accepted=True)).status == 401


async def test_an_expired_token_is_refused(api: Client, clock: ManualClock, provider: Provider) -> None:
    token = await provider.log_in("ada")
    clock.advance(DAY_MS)

    assert (await log_in(api, token, terms_accepted=True)).status == 401


async def test_a_token_that_nobody_signed_is_refused(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada")

    for algorithm in ("none", "None", "NONE", ""):
        unsigned = f"{part({'alg': algorithm})}.{token.split('.')[1]}."
        assert (await log_in(api, unsigned, terms_accepted=True)).status == 401


async def test_a_token_signed_with_the_public_key_as_a_password_is_refused(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada")
    public = (await provider.keys())[0]

    for password in (json.dumps(public).encode(), public["n"].encode(), base64.urlsafe_b64decode(public["n"] + "==")):
        head = f"{part({'alg': 'HS256', 'kid': public['kid']})}.{token.split('.')[1]}"
        forged = f"{head}.{part(hmac.digest(password, head.encode(), 'sha256'))}"
        assert (await log_in(api, forged, terms_accepted=True)).status == 401


async def test_a_token_whose_claims_were_changed_is_refused(api: Client, provider: Provider) -> None:
    head, middle, signature = (await provider.log_in("ada")).split(".")
    changed = part({**claims_of(f"{head}.{middle}.{signature}"), "email": "root@example.com"})

    assert (await log_in(api, f"{head}.{changed}.{signature}", terms_accepted=True)).status == 401


@pytest.mark.settings(oidc_issuers=("http://127.0.0.1:9",))
async def test_a_token_of_an_issuer_that_is_not_configured_is_refused(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada")

    assert (await log_in(api, token, terms_accepted=True)).status == 401


@pytest.mark.settings(oidc_issuers=(), oidc_audience=())
async def test_without_a_configured_issuer_nobody_logs_in(api: Client, provider: Provider) -> None:
    token = await provider.log_in("ada")

    assert (await log_in(api, token, terms_accepted=True)).status == 401


async def test_an_address_that_the_provider_has_not_verified_is_refused(
    api: Client, db: Database, provider: Provider
) -> None:
    for verified in (False, None, "true", 1):
        await provider.tell("account", sub="ada", email_verified=verified)

        assert (await log_in(api, await provider.log_in("ada"), terms_accepted=True)).status == 401
    assert (await whole_store(db))["account"] == []


SOON = int(time.time()) + 100 * 86_400
ODD: dict[str, dict[str, Any]] = {
    "not valid yet": {"nbf": SOON},
    "issued in the future": {"iat": SOON},
    "without an end": {"exp": None},
    "an end that is text": {"exp": str(SOON)},
    "an end that is a truth": {"exp": True},
    "a start that is text": {"nbf": "now"},
    "an end beyond every float": {"exp": 10**400},
    "an end that is infinite": {"exp": float("inf")},
    "an end that is no number": {"exp": float("nan")},
    "a start beyond every float": {"nbf": -(10**400)},
    "an issue time beyond every float": {"iat": -(10**400)},
    "without an audience": {"aud": None},
    "an empty list of audiences": {"aud": []},
    "a list of odd audiences": {"aud": [{}, 5]},
    "several audiences and no party": {"aud": [AUDIENCE, "x"]},
    "several audiences and another party": {"aud": [AUDIENCE, "x"], "azp": "x"},
    "several audiences and an odd party": {"aud": [AUDIENCE, "x"], "azp": ["x"]},
    "without a subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is a number": {"sub": 7},
    "a subject longer than any": {"sub": "s" * 256},
    "a subject that cannot be stored": {"sub": "a\x00b"},
    "without an address": {"email": None},
    "an address that is a number": {"email": 7},
    "an address that cannot be stored": {"email": "a\x00@example.com"},
    "without a word about the address": {"email_verified": None},
    "another issuer": {"iss": "https://issuer.example"},
    "an issuer that is a list": {"iss": ["x"]},
}


async def test_odd_claims_under_a_good_signature_are_refused(api: Client, db: Database, provider: Provider) -> None:
    for odd, change in ODD.items():
        token = await provider.sign(claims(provider, "ada", **change))

        reply = await log_in(api, token, terms_accepted=True)

        assert (reply.status, reply.error["code"]) == (401, "unauthorized"), odd
    assert (await whole_store(db))["account"] == []


async def test_times_have_ten_seconds_of_leeway(api: Client, clock: ManualClock, provider: Provider) -> None:
    now = clock.now() // SECOND_MS
    statuses = {}
    for name, shift in (("exp", -9), ("exp", -11), ("nbf", 9), ("nbf", 11), ("iat", 9), ("iat", 11)):
        token = await provider.sign(claims(provider, "ada", **{name: now + shift}))
        statuses[name, shift] = (await log_in(api, token, terms_accepted=True)).status

    assert [at for at, status in statuses.items() if status == 200] == [("exp", -9), ("nbf", 9), ("iat", 9)]
    assert set(statuses.values()) == {200, 401}


async def test_several_audiences_hold_when_the_authorized_party_is_ours(api: Client, provider: Provider) -> None:
    token = await provider.sign(claims(provider, "ada", aud=["x", AUDIENCE], azp=AUDIENCE))

    assert (await log_in(api, token, terms_accepted=True)).status == 200


async def test_an_address_that_is_none_is_named_and_makes_no_user(
    api: Client, db: Database, provider: Provider
) -> None:
    token = await provider.sign(claims(provider, "ada", email="not an address"))

    reply = await log_in(api, token, terms_accepted=True)

    assert (reply.status, list(reply.error["fields"])) == (400, ["auth_secret"])
    assert (await whole_store(db))["account"] == []


async def test_what_is_no_token_at_all_is_refused(api: Client, provider: Provider) -> None:
    for token in ("x", "a.b.c", "....", "é.é.é", "e30.e30.", "eyJhbGciOiJSUzI1NiJ9.W10.eA", "9" * 17_000):
        assert (await log_in(api, token, terms_accepted=True)).status == 401, token[:40]


async def test_a_malformed_login_names_its_field(api: Client) -> None:
    malformed: list[tuple[dict[str, Any], str]] = [
        ({}, "auth_secret"),
        ({"auth_secret": 5}, "auth_secret"),
        ({"auth_secret": ""}, "auth_secret"),
        ({"auth_secret": None}, "auth_secret"),
        ({"auth_secret": "x", "terms_accepted": "yes"}, "terms_accepted"),
        ({"auth_secret": "x", "terms_accepted": None}, "terms_accepted"),
    ]
    for body, field in malformed:
        reply = await api.post("/v1/auth/social", json=body)

        assert (reply.status, list(reply.error["fields"])) == (400, [field])
