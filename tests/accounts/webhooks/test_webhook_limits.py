"""Limits of the bodies that webhook receivers accept before a signature is verified."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.accounts.webhooks.deliveries import (
    GITHUB_PATH,
    SECRETS,
    count_events,
    github_signature,
    send_github,
    send_stripe,
    stored_events,
)
from tests.client import Client

from moorage.accounts.webhooks import routes
from moorage.accounts.webhooks.unverified import BYTES, EXTRA_BYTES, EXTRA_REQUESTS, REQUESTS, UnverifiedBodies
from moorage.app import App
from moorage.core import disk
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock
from moorage.errors import DiskFull, RateLimited

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.settings(**SECRETS),
    pytest.mark.boundary(
        "stranger-to-platform", "Bodies without a verified signature use bounded memory and disk, also of one address."
    ),
]
MB = 2**20
BODY = b'{"ref": "refs/heads/main"}'


class OpenDelivery:
    """A delivery of GitHub whose body is still being sent, in chunks of unknown total length."""

    def __init__(self, app: App, address: str, signature: str) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sent: list[dict[str, Any]] = []
        headers = {
            "transfer-encoding": "chunked",
            "x-github-event": "push",
            "x-github-delivery": f"delivery-from-{address}",
            "x-hub-signature-256": signature,
        }
        scope = {
            "type": "http",
            "method": "POST",
            "path": GITHUB_PATH,
            "raw_path": GITHUB_PATH.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (address, 50000),
        }
        self.task = asyncio.ensure_future(app.asgi(scope, self._messages.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        self._sent.append(message)

    async def send(self, chunk: bytes, *, more: bool = True) -> None:
        """Send a chunk, and return once it is read or the request has ended."""
        self._messages.put_nowait({"type": "http.request", "body": chunk, "more_body": more})
        while not self._messages.empty() and not self.task.done():
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def status(self) -> int:
        self._messages.put_nowait({"type": "http.disconnect"})
        await self.task
        return int(self._sent[0]["status"])

    @property
    def is_refused(self) -> bool:
        return bool(self._sent)


@contextlib.asynccontextmanager
async def deliveries(app: App, addresses: list[str], signature: str = "sha256=00") -> AsyncIterator[list[OpenDelivery]]:
    started = [OpenDelivery(app, address, signature) for address in addresses]
    for each in started:
        await each.send(b"{")
    yield started
    for each in started:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in started), return_exceptions=True)


def test_one_address_leaves_half_of_the_requests_to_others() -> None:
    bodies = UnverifiedBodies()
    with contextlib.ExitStack() as stack:
        for _ in range(REQUESTS // 2):
            stack.enter_context(bodies.hold("a"))
        with pytest.raises(RateLimited), bodies.hold("a"):
            pass
        for number in range(REQUESTS // 2 + EXTRA_REQUESTS):
            stack.enter_context(bodies.hold(f"b{number}"))
        with pytest.raises(RateLimited), bodies.hold("c"):
            pass

    assert (bodies.requests.total, bodies.bytes.total) == (0, 0)


def test_all_addresses_share_one_budget_of_bytes() -> None:
    bodies = UnverifiedBodies()
    with contextlib.ExitStack() as stack:
        for number in range(REQUESTS):
            count = stack.enter_context(bodies.hold(f"a{number}"))
            with contextlib.suppress(RateLimited):
                for _ in range(25):
                    count(MB)
        used = bodies.bytes.total

    assert 25 * MB < used <= BYTES + EXTRA_BYTES == 64 * MB
    assert bodies.bytes.total == 0


async def test_a_stranger_with_many_unfinished_bodies_is_refused_and_others_are_not(app: App, api: Client) -> None:
    async with deliveries(app, ["192.0.2.1"] * (REQUESTS // 2)):
        async with deliveries(app, ["192.0.2.1", "2001:db8::1"]) as (refused, other):
            assert await refused.status() == 429
            assert not other.is_refused
        theirs = await send_github(api, BODY)

    assert theirs.status == 200


async def test_the_addresses_of_one_ipv6_network_count_as_one(app: App) -> None:
    async with deliveries(app, [f"2001:db8::{number:x}" for number in range(1, REQUESTS // 2 + 2)]) as sent:
        assert [each.is_refused for each in sent] == [False] * (REQUESTS // 2) + [True]


async def test_an_unverified_body_over_the_budget_of_bytes_is_refused(app: App, db: Database) -> None:
    chunk = bytes(5 * MB)
    async with deliveries(app, ["192.0.2.1"] * 2) as (first, second):
        for _ in range(4):
            await first.send(chunk)
        await second.send(chunk)

        assert not first.is_refused
        assert await second.status() == 429
    assert list(db.env.settings.folder("uploads").iterdir()) == []


@pytest.mark.settings(**SECRETS, rate_limit=3)
async def test_a_failed_signature_counts_against_the_address_and_a_valid_one_does_not(
    api: Client, clock: ManualClock
) -> None:
    valid = [await send_github(api, BODY, delivery=f"d-{number}") for number in range(5)]
    failed = [await send_github(api, BODY, signature="sha256=00") for _ in range(4)]
    still_valid = await send_stripe(api, clock, {"id": "evt_1", "type": "invoice.paid"})
    other_route = await api.get("/v1/me")

    assert [reply.status for reply in valid] == [200] * 5
    assert not any(name.startswith("ratelimit") for name in valid[0].headers)
    assert [reply.status for reply in failed] == [401, 401, 401, 429]
    assert (failed[3].json, "retry-after" in failed[3].headers) == ({"error": "Too many requests"}, True)
    assert (still_valid.status, other_route.status) == (200, 429)


async def test_a_body_that_never_ends_is_given_up(app: App, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "RECEIVE_TIMEOUT_S", 0.01)

    async with deliveries(app, ["192.0.2.1"]) as (slow,):
        while not slow.is_refused:
            await asyncio.sleep(0.001)

        assert await slow.status() == 400
    assert await count_events(db) == 0


async def test_a_body_without_a_length_is_given_up_when_the_disk_fills_meanwhile(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = iter([True, False])

    def check_room(_folder: Any, more_bytes: int, reserve_mb: int) -> None:
        if not next(room):
            raise DiskFull

    monkeypatch.setattr(disk, "check_room", check_room)
    async with deliveries(app, ["192.0.2.1"]) as (sent,):
        await sent.send(bytes(disk.CHECK_INTERVAL_BYTES))

        assert await sent.status() == 402


async def test_a_body_in_chunks_is_verified_and_recorded(app: App, db: Database) -> None:
    body = b"{" + BODY[1:]
    async with deliveries(app, ["192.0.2.1"], github_signature(body)) as (sent,):
        for at in range(1, len(body) - 1):
            await sent.send(body[at : at + 1])
        await sent.send(body[-1:], more=False)

        assert await sent.status() == 200
    assert [event.payload for event in await stored_events(db)] == [body.decode()]
