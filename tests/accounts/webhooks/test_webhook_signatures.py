"""Verification of webhook signatures over the raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.accounts.webhooks.deliveries import (
    GITHUB_PATH,
    GITHUB_SECRET,
    SECRETS,
    STRIPE_PATH,
    STRIPE_SECRET,
    count_events,
    github_signature,
    mac,
    post_stripe,
    send_github,
    stripe_signature,
)
from tests.client import Client, Reply

from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.settings(**SECRETS),
    pytest.mark.boundary(
        "stranger-to-platform", "Webhook receivers accept only bytes that were signed with the configured secret."
    ),
]

BODY = json.dumps({"id": "evt_1", "type": "invoice.paid"}).encode()
REFUSED = (401, {"error": "invalid signature"})


@pytest.fixture
def now_s(clock: ManualClock) -> int:
    return clock.now() // 1000


def outcomes(replies: dict[Any, Reply]) -> dict[Any, tuple[int, Any]]:
    return {case: (reply.status, reply.json) for case, reply in replies.items()}


async def test_a_signed_stripe_event_is_received_outside_the_envelope(api: Client, db: Database, now_s: int) -> None:
    reply = await post_stripe(api, BODY, stripe_signature(BODY, now_s))

    assert (reply.status, reply.json) == (200, {"received": True})
    assert await count_events(db) == 1


async def test_a_signed_github_event_is_received_outside_the_envelope(api: Client, db: Database) -> None:
    reply = await send_github(api, BODY)

    assert (reply.status, reply.json) == (200, {"received": True})
    assert await count_events(db) == 1


async def test_a_stripe_signature_that_is_missing_or_malformed_is_refused(
    api: Client, db: Database, now_s: int
) -> None:
    t, v1 = now_s, mac(STRIPE_SECRET, f"{now_s}.".encode() + BODY)
    headers = [
        None,
        "",
        "nonsense",
        f"t={t}",
        f"v1={v1}",
        f"t={t},v0={v1}",
        f"t={t},v1=",
        f"t={t},v1={v1}0",
        f"t={t},v1=é{v1}",
        f"t=,v1={v1}",
        f"t={t}.0,v1={v1}",
        f"t=-{t},v1={v1}",
        f"t=²,v1={v1}",
        f"t={'9' * 5000},v1={v1}",
        f"t={t},t={t},v1={v1}",
    ]

    replies = {header: await post_stripe(api, BODY, header) for header in headers}

    assert outcomes(replies) == dict.fromkeys(headers, REFUSED)
    assert await count_events(db) == 0


async def test_a_github_signature_that_is_missing_or_malformed_is_refused(api: Client, db: Database) -> None:
    good = mac(GITHUB_SECRET, BODY)
    headers = ["", "nonsense", "sha256=", f"sha1={good}", f"sha256={good}0", "sha256=é", good]

    replies = {header: await send_github(api, BODY, signature=header) for header in headers}
    unsigned = await api.post(GITHUB_PATH, content=BODY, headers={"x-github-delivery": "1"})

    assert outcomes(replies) == dict.fromkeys(headers, REFUSED)
    assert (unsigned.status, unsigned.json) == REFUSED
    assert await count_events(db) == 0


async def test_a_signature_under_another_secret_is_refused(api: Client, db: Database, now_s: int) -> None:
    stripe = await post_stripe(api, BODY, stripe_signature(BODY, now_s, "whsec_of_somebody_else"))
    github = await send_github(api, BODY, signature=github_signature(BODY, "somebody else's"))

    assert (stripe.status, stripe.json) == (github.status, github.json) == REFUSED
    assert await count_events(db) == 0


async def test_a_body_altered_by_one_bit_is_refused(api: Client, db: Database, now_s: int) -> None:
    bodies = [BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :] for at in range(len(BODY))]

    stripe = {body: await post_stripe(api, body, stripe_signature(BODY, now_s)) for body in bodies}
    github = {body: await send_github(api, body, signature=github_signature(BODY)) for body in bodies}

    assert outcomes(stripe) == outcomes(github) == dict.fromkeys(bodies, REFUSED)
    assert await count_events(db) == 0


async def test_a_stripe_signature_holds_for_five_minutes_either_way(api: Client, now_s: int) -> None:
    ages_s = (300, 301, 86_400, -300, -301, -86_400)

    replies = [await post_stripe(api, BODY, stripe_signature(BODY, now_s - age_s)) for age_s in ages_s]

    assert [reply.status for reply in replies] == [200, 401, 401, 200, 401, 401]


async def test_the_time_of_a_stripe_signature_is_signed_too(api: Client, now_s: int) -> None:
    old = stripe_signature(BODY, now_s - 3600)

    reply = await post_stripe(api, BODY, old.replace(str(now_s - 3600), str(now_s)))

    assert (reply.status, reply.json) == REFUSED


async def test_any_of_several_stripe_signatures_may_be_ours(api: Client, now_s: int) -> None:
    ours = stripe_signature(BODY, now_s)
    theirs = stripe_signature(BODY, now_s, "whsec_of_before_the_rotation").partition(",")[2]

    before = await post_stripe(api, BODY, f"{ours},{theirs},v0=legacy")
    after = await post_stripe(api, BODY, f"t={now_s},{theirs},{ours.partition(',')[2]}")
    neither = await post_stripe(api, BODY, f"t={now_s},{theirs},{theirs}")

    assert (before.status, after.status, neither.status) == (200, 200, 401)


@pytest.mark.settings
async def test_without_a_secret_everything_is_refused(api: Client, db: Database, now_s: int) -> None:
    stripe = await post_stripe(api, BODY, stripe_signature(BODY, now_s, ""))
    github = await send_github(api, BODY, signature=github_signature(BODY, ""))

    assert (stripe.status, stripe.json) == (github.status, github.json) == REFUSED
    assert await count_events(db) == 0


@pytest.mark.settings(billing="manual", github_webhook_secret=GITHUB_SECRET)
async def test_each_receiver_has_a_secret_of_its_own(api: Client, now_s: int) -> None:
    stripe = await post_stripe(api, BODY, stripe_signature(BODY, now_s, GITHUB_SECRET))
    github = await send_github(api, BODY)

    assert (stripe.status, stripe.json) == REFUSED
    assert github.status == 200


async def test_the_signature_comes_before_anything_in_the_body(api: Client, now_s: int) -> None:
    stripe = await post_stripe(api, b"not json", stripe_signature(b"something else", now_s))
    github = await send_github(api, b"not json", signature="sha256=00", delivery=None)

    assert (stripe.status, stripe.json) == (github.status, github.json) == REFUSED


async def test_a_token_does_not_stand_in_for_a_signature(api: Client) -> None:
    stripe = await api.post(STRIPE_PATH, content=BODY, token="whatever")
    github = await api.post(GITHUB_PATH, content=BODY, token="whatever")

    assert (stripe.status, stripe.json) == (github.status, github.json) == REFUSED
