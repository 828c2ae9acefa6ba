"""Server-sent events: wire format, end of streams, and access."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client
from tests.core.http.lab import ADA, Guest, lab_app, one_store
from tests.core.http.live_server import HEALTH, live_server, request

from moorage.app import App
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, AuditTarget
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.dispatch import Dispatcher
from moorage.core.http.limits.streams import BURST_BYTES, BYTES_PER_S, MAX_WAIT_S, StreamSlots
from moorage.core.http.route import Router, Scope
from moorage.core.kit.events import Event

pytestmark = pytest.mark.anyio

LONG = 3600.0


@dataclass
class Source:
    """A source of events that records whether it was closed."""

    events: asyncio.Queue[Event | Exception | None] = field(default_factory=asyncio.Queue)
    opened: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    async def follow(self) -> AsyncIterator[Event]:
        self.opened.set()
        try:
            while (event := await self.events.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            # A source may await something while it is closed.
            await asyncio.sleep(0)
            self.closed.set()


def stream_app(db: Database, source: Source, *, beat_s: float = LONG, longest_s: float = LONG) -> Dispatcher:
    router = Router("Lab")

    @router.get("/ticks", events=True)
    async def ticks() -> Stream:
        return sse.stream(source.follow(), beat_s=beat_s, longest_s=longest_s)

    @router.get("/plain")
    def plain() -> str:
        return "plain"

    return lab_app(db, router)


def guest_of(asgi: Dispatcher) -> Guest:
    return Guest(asgi, f"/v1/ticks?access_token={ADA}")


@one_store
async def test_events_are_named_numbered_and_one_line_of_json(db: Database) -> None:
    source = Source()
    guest = guest_of(stream_app(db, source))
    for event in (Event("log", {"message": "a\nb\r\n\u2028é"}, id="7"), Event("done", {"status": "ok"}), None):
        source.events.put_nowait(event)

    await guest.come()
    text = await guest.ends()

    assert text == (
        ': open\n\nid: 7\nevent: log\ndata: {"message":"a\\nb\\r\\n\u2028é"}\n\nevent: done\ndata: {"status":"ok"}\n\n'
    )
    assert source.closed.is_set()


@one_store
async def test_a_stream_is_marked_as_one_and_kept_out_of_buffers_and_caches(db: Database) -> None:
    source = Source()
    source.events.put_nowait(None)
    guest = guest_of(stream_app(db, source))

    await guest.come()
    await guest.ends()

    headers = dict(guest.sent.messages[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"ratelimit-remaining" in headers
    assert b"x-request-id" in headers
    assert b"content-length" not in headers


@one_store
async def test_a_comment_keeps_a_silent_stream_open_and_no_event_is_lost_to_it(db: Database) -> None:
    source = Source()
    guest = guest_of(stream_app(db, source, beat_s=0.01))

    await guest.come()
    await guest.sees(": beat\n\n: beat\n\n")
    source.events.put_nowait(Event("log", 1))
    await guest.sees("event: log\ndata: 1\n\n")
    text = await guest.sees("data: 1\n\n: beat\n\n")
    await guest.leaves()

    assert text.count("data: 1") == 1


async def test_an_event_waits_for_its_turn_while_comments_keep_the_stream_open() -> None:
    source = Source()
    for number in range(2):
        source.events.put_nowait(Event("log", {"number": number}))
    source.events.put_nowait(None)
    stream = sse.stream(source.follow(), beat_s=0.02)
    waits = iter((0.0, 0.2))
    stream.pace.reserve = lambda _: next(waits)

    sent = [chunk async for chunk in stream.chunks]

    first, last = (sent.index(sse.wire(Event("log", {"number": number}))) for number in range(2))
    assert b": beat\n\n" in sent[first:last]
    assert last == len(sent) - 1


@pytest.mark.boundary("tenant-to-tenant", "Event streams of one organization send a bounded number of bytes a second.")
def test_the_streams_of_an_organization_share_its_bytes_and_take_none_of_others() -> None:
    slots = StreamSlots(per_token=1, per_organization=1)

    burst = slots.reserve(1, BURST_BYTES)
    waits = [slots.reserve(1, BYTES_PER_S) for _ in range(60)]
    other = slots.reserve(2, BURST_BYTES)

    assert (burst, other) == (0.0, 0.0)
    assert 8 < waits[10] <= 10
    assert waits[-1] <= MAX_WAIT_S


@one_store
async def test_a_stream_ends_after_its_longest_time_and_closes_its_source(db: Database) -> None:
    source = Source()
    guest = guest_of(stream_app(db, source, longest_s=0.05))

    await guest.come()
    await guest.ends()

    assert guest.sent.messages[-1] == {"type": "http.response.body", "body": b""}
    assert source.closed.is_set()


@one_store
async def test_a_source_that_never_rests_is_ended_all_the_same(db: Database) -> None:
    async def endless() -> AsyncIterator[Event]:
        while True:
            yield Event("log", 1)
            await asyncio.sleep(0)

    router = Router("Lab")

    @router.get("/ticks", events=True)
    async def ticks() -> Stream:
        return sse.stream(endless(), longest_s=0.05)

    guest = guest_of(lab_app(db, router))
    await guest.come()
    text = await guest.ends()

    assert text.endswith("event: log\ndata: 1\n\n")


@one_store
async def test_a_client_that_goes_away_closes_the_source_at_once(db: Database) -> None:
    source = Source()
    guest = guest_of(stream_app(db, source))
    await guest.come()
    await guest.sees(": open")

    await guest.leaves()

    assert source.closed.is_set()


@one_store
async def test_a_client_that_was_gone_before_the_stream_began_leaves_no_source_open(db: Database) -> None:
    source = Source()
    guest = guest_of(stream_app(db, source))

    await guest.come()
    await guest.leaves()

    assert source.closed.is_set() == source.opened.is_set()


@one_store
async def test_a_source_that_crashes_ends_the_stream_and_is_logged(db: Database) -> None:
    source = Source()
    source.events.put_nowait(Event("log", 1))
    source.events.put_nowait(RuntimeError("the password is hunter2"))
    guest = guest_of(stream_app(db, source))

    with capture_logs() as logged:
        await guest.come()
        text = await guest.ends()

    assert "hunter2" not in text
    assert source.closed.is_set()
    assert [line for line in logged if line.get("exc_info") is not None]
    # Without the last message the server aborts the connection, so that the client sees an irregular end.
    assert guest.sent.messages[-1].get("more_body") is True


async def test_a_stream_takes_its_token_and_organization_from_the_query(app: App, db: Database) -> None:
    user = await make_user(db)
    mine, other = await make_org(db, user), await make_org(db, user)
    session = session_for(db, user)

    for org in (mine, other):
        guest = Guest(app.asgi, f"/v1/activity/stream?access_token={session}&organization_id={org.id}")
        await guest.come()
        await guest.sees(": open")
        await guest.leaves()
        assert guest.sent.messages[0]["status"] == 200


async def test_a_client_that_was_cut_off_misses_nothing(app: App, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    path = f"/v1/activity/stream?access_token={session_for(db, user)}"
    await db.write(lambda tx: audit.record(tx, org.id, THE_PLATFORM, "while.away", AuditTarget("test", "x")))

    guest = Guest(app.asgi, path, last_event_id="1")
    await guest.come()
    seen = await guest.sees("while.away")
    await guest.leaves()

    assert "id: 2" in seen
    assert "organization.created" not in seen


@one_store
async def test_no_other_route_takes_a_token_from_the_query(api: Client, db: Database, app: App) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    others = [route for route in app.routes if route.method == "GET" and not route.events]
    guarded = [route.path for route in others if "{" not in route.path and route.scope is not Scope.PUBLIC]

    replies = {path: await api.get(f"{path}?access_token={token}") for path in guarded}

    assert len(replies) > 8
    assert {path: reply.status for path, reply in replies.items()} == dict.fromkeys(guarded, 401)


@one_store
@pytest.mark.parametrize("query", ["", "?access_token=", "?access_token=psk_live_nobody", "?token={token}"])
async def test_a_stream_without_a_good_token_is_refused_in_the_envelope(api: Client, db: Database, query: str) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)

    reply = await api.get(f"/v1/activity/stream{query.format(token=token)}")

    assert (reply.status, reply.error["code"]) == (401, "unauthorized")
    assert reply.headers["content-type"] == "application/json"


@one_store
async def test_the_header_wins_over_the_query(api: Client, db: Database) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)

    reply = await api.get(f"/v1/activity/stream?access_token={token}", headers={"Authorization": "Bearer nonsense"})

    assert reply.status == 401


@one_store
async def test_a_stream_of_an_organization_one_is_not_in_is_not_found(api: Client, db: Database) -> None:
    session, other = session_for(db, await make_user(db)), await make_org(db)

    reply = await api.get(f"/v1/activity/stream?access_token={session}&organization_id={other.id}")

    assert reply.status == 404


async def test_the_activity_stream_tells_what_happens_while_it_is_open(app: App, db: Database) -> None:
    user = await make_user(db)
    org, other = await make_org(db, user), await make_org(db)
    token = await make_token(db, user, org.id)

    with live_server(app.asgi) as server, server.dial() as wire:
        wire.send(request("GET", f"/v1/activity/stream?access_token={token}"))
        head = await asyncio.to_thread(wire.head)
        assert await asyncio.to_thread(wire.chunk) == b": open\n\n"
        # A stream shows only later events, so events are added until one arrives.
        arrival = asyncio.create_task(asyncio.to_thread(wire.chunk))
        while not arrival.done():
            for org_id, name in ((other.id, "theirs"), (org.id, "ours")):
                target = AuditTarget("ship", name)
                await db.write(lambda tx, o=org_id, t=target: audit.record(tx, o, THE_PLATFORM, "sailed", t))  # type: ignore[misc]
            await asyncio.sleep(0.05)
        event = arrival.result()

    assert b"text/event-stream" in head
    assert b"event: activity\n" in event
    assert b'"name":"ours"' in event
    assert b"theirs" not in event


@one_store
@pytest.mark.parametrize("behind", [b"", HEALTH], ids=["alone", "with a request waiting behind it"])
async def test_a_dropped_connection_closes_the_source(db: Database, behind: bytes) -> None:
    source = Source()

    with live_server(stream_app(db, source)) as server:
        with server.dial() as wire:
            wire.send(request("GET", f"/v1/ticks?access_token={ADA}") + behind)
            await asyncio.to_thread(wire.head)
            await asyncio.to_thread(wire.chunk)
            assert await asyncio.to_thread(source.opened.wait, 10)
        closed = await asyncio.to_thread(source.closed.wait, 10)

        assert closed
        assert await asyncio.to_thread(server.is_serving)
        assert server.crashes == []


@one_store
async def test_noise_from_the_client_of_a_stream_ends_it_and_is_not_answered_into_it(db: Database) -> None:
    source = Source()

    with live_server(stream_app(db, source)) as server, server.dial() as wire:
        wire.send(request("GET", f"/v1/ticks?access_token={ADA}"))
        await asyncio.to_thread(wire.head)
        await asyncio.to_thread(wire.chunk)
        wire.send(b"\x00 this is not HTTP\r\n\r\n")

        assert await asyncio.to_thread(wire.is_closed)
        assert await asyncio.to_thread(source.closed.wait, 10)
