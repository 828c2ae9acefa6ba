"""Recording of signed deliveries, and rejection of invalid ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.accounts.webhooks.deliveries import (
    SECRETS,
    count_events,
    job_traces,
    post_stripe,
    send_github,
    send_stripe,
    stored_events,
    stripe_signature,
)
from tests.client import Client
from tests.conftest import RunJobs

from moorage.accounts.webhooks import service
from moorage.accounts.webhooks.routes import GITHUB_LIMIT, STRIPE_LIMIT
from moorage.accounts.webhooks.states import WebhookStatus
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.settings(**SECRETS)]

EVENT = {"id": "evt_1", "type": "invoice.paid"}


async def test_an_event_is_recorded_with_its_job_and_the_trace_of_its_request(
    api: Client, db: Database, clock: ManualClock
) -> None:
    body = json.dumps(EVENT).encode()

    await post_stripe(api, body, stripe_signature(body, clock.now() // 1000), **{"x-request-id": "trace-of-stripe"})

    (stored,) = await stored_events(db)
    assert (stored.provider, stored.event_id, stored.kind) == ("stripe", "evt_1", "invoice.paid")
    assert (stored.payload, stored.received_at, stored.status) == (body.decode(), clock.now(), WebhookStatus.RECEIVED)
    assert await job_traces(db) == ["trace-of-stripe"]


async def test_a_replayed_event_is_acknowledged_and_nothing_more(
    api: Client, db: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    await send_stripe(api, clock, EVENT)
    await send_github(api, {}, delivery="1")
    await run_jobs()
    clock.advance(DAY_MS)

    stripe = await send_stripe(api, clock, EVENT)
    github = await send_github(api, {"changed": True}, delivery="1")

    assert (stripe.status, stripe.json) == (github.status, github.json) == (200, {"received": True})
    assert (await count_events(db), len(await job_traces(db))) == (2, 2)


async def test_the_same_delivery_ten_times_at_once_is_one_event_and_one_job(
    api: Client, db: Database, clock: ManualClock
) -> None:
    replies = await asyncio.gather(*(send_stripe(api, clock, EVENT) for _ in range(10)))

    assert [(reply.status, reply.json) for reply in replies] == [(200, {"received": True})] * 10
    assert (await count_events(db), len(await job_traces(db))) == (1, 1)


async def test_the_same_id_from_both_providers_is_two_events(api: Client, db: Database, clock: ManualClock) -> None:
    await send_stripe(api, clock, {"id": "1", "type": "invoice.paid"})
    await send_github(api, {}, delivery="1", event="push")

    assert [(event.provider, event.event_id) for event in await stored_events(db)] == [("stripe", "1"), ("github", "1")]


async def test_a_signed_body_that_is_no_json_object_is_refused_with_a_reason(
    api: Client, db: Database, clock: ManualClock
) -> None:
    bodies = [
        b"",
        b"not json",
        b"[]",
        b'"text"',
        b"null",
        b'{"id": "evt_1"',
        b'{"id": "evt_1", "amount": NaN}',
        b'{"id": "evt_1", "amount": ' + b"9" * 5000 + b"}",
        b'{"id": "evt_\xff"}',
        b'{"id": "evt_\x00"}',
        b'{"id": "evt_1"}\x00',
        b'\xef\xbb\xbf{"id": "evt_1"}',
        '{"id": "evt_1"}'.encode("utf-16"),
        b'{"id": "evt_1", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id":' * 100_000,
        b"payload=%7B%7D",
    ]

    replies = [await send_stripe(api, clock, body) for body in bodies]
    replies += [await send_github(api, body) for body in bodies]

    allowed = ("the body is not valid JSON", "the body is not a JSON object")
    assert [reply.status for reply in replies] == [400] * len(replies)
    assert [reply.json for reply in replies if reply.json["error"] not in allowed or len(reply.json) != 1] == []
    assert await count_events(db) == 0


async def test_a_stripe_event_without_a_usable_id_is_refused(api: Client, db: Database, clock: ManualClock) -> None:
    ids: list[Any] = [None, "", 7, {}, "evt\x00", "evt 1", "\ud800", "é", "e" * 256]

    replies = [await send_stripe(api, clock, {"id": event_id, "type": "invoice.paid"}) for event_id in ids]

    assert {(reply.status, reply.json["error"]) for reply in replies} == {(400, "the event has no usable id")}
    assert await count_events(db) == 0


async def test_a_github_delivery_without_a_usable_id_is_refused(api: Client, db: Database) -> None:
    replies = [await send_github(api, {}, delivery=delivery) for delivery in (None, "", "a b", "é", "d" * 256)]

    assert {(reply.status, reply.json["error"]) for reply in replies} == {
        (400, "X-GitHub-Delivery is missing or not usable")
    }
    assert await count_events(db) == 0


async def test_an_event_without_a_usable_name_is_recorded_without_one(
    api: Client, db: Database, clock: ManualClock
) -> None:
    kinds: list[Any] = [None, 7, "odd\x00kind", "\ud800"]

    for number, kind in enumerate(kinds):
        await send_stripe(api, clock, {"id": f"evt_{number}", "type": kind})
    await send_github(api, {}, event=None)

    assert [event.kind for event in await stored_events(db)] == [""] * 5


async def test_characters_that_no_store_takes_are_kept_as_they_were_written(
    api: Client, db: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    odd = rb'{"id": "evt_1", "type": "setup_intent.succeeded", "data": {"object": {"\u0000": "\ud800 \u0000", '
    odd += rb'"customer": "cus_\u0000", "payment_method": "\udfff", "metadata": {"organization_id": "\u0000"}}}}'

    stripe = await send_stripe(api, clock, odd)
    github = await send_github(api, odd)
    await run_jobs()

    assert (stripe.status, github.status) == (200, 200)
    stored = await stored_events(db)
    assert [event.payload for event in stored] == [odd.decode()] * 2
    assert [event.status for event in stored] == [WebhookStatus.IGNORED, WebhookStatus.HANDLED]


async def test_a_body_over_the_limit_is_refused(api: Client, db: Database, clock: ManualClock) -> None:
    stripe = await send_stripe(api, clock, b" " * (STRIPE_LIMIT + 1))
    github = await send_github(api, b" " * (GITHUB_LIMIT + 1))

    assert (stripe.status, stripe.json) == (400, {"error": "The body is larger than 1 MB"})
    assert (github.status, github.json) == (400, {"error": "The body is larger than 25 MB"})
    assert await count_events(db) == 0


async def test_a_github_event_of_megabytes_is_kept_whole_and_leaves_no_file(api: Client, db: Database) -> None:
    body = json.dumps({"commits": ["x" * 1000] * 3000}).encode()

    reply = await send_github(api, body)

    (stored,) = await stored_events(db)
    assert reply.status == 200
    assert stored.payload == body.decode()
    assert list(db.env.settings.folder("uploads").iterdir()) == []


async def test_events_are_forgotten_after_thirty_days(api: Client, db: Database, clock: ManualClock) -> None:
    await send_stripe(api, clock, {"id": "evt_old"})
    clock.advance(1)
    await send_stripe(api, clock, {"id": "evt_new"})

    clock.advance(30 * DAY_MS)
    await db.write(service.sweep)

    assert [event.event_id for event in await stored_events(db)] == ["evt_new"]


async def test_the_document_shows_what_the_receivers_answer(app: App) -> None:
    for path in ("/webhook", "/api/v1/webhook/github-events"):
        operation = app.describe()["paths"][path]["post"]

        assert operation["security"] == []
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Received"}
