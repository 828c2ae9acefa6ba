"""Memory of the edge with clients that never finish their requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from bench.strangers import Flood, post, rss_mb
from tests.runtime.workers.invoker_support import MODES, Host, running, until

from moorage.core.net import error_pages
from moorage.core.net.proxies import networks
from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.bodies import BodyBudget, Bounds
from moorage.runtime.edge.connections.clients import Clients, key_of
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.listener import Listener
from moorage.runtime.edge.connections.protocol import Connection

pytestmark = pytest.mark.group("edge-strangers")

KB, MB = 2**10, 2**20
MOST_GROWTH_MB = 130
ECHO = "def main(args):\n    return {'statusCode': 200, 'body': 'ok'}\n"


# The process.


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with running(MODES[0]) as running_host:
        yield running_host


@pytest.fixture(scope="module")
def path(host: Host) -> str:
    path = f"/api/v1/web/org_1/default/f-{host.put(ECHO)}"
    until(lambda: post(host.port, path, b"{}") == "200")
    return path


@pytest.mark.boundary(
    "stranger-to-platform", "Unfinished requests take a bounded part of the edge's memory, and return it."
)
@pytest.mark.parametrize("addresses", [pytest.param(1, marks=pytest.mark.twin), 30])
def test_unfinished_bodies_take_bounded_memory_and_others_are_served(host: Host, path: str, addresses: int) -> None:
    before_mb = rss_mb(host.edge.pid)

    with Flood(host.port, path) as flood:
        flood.open(150, addresses)
        flood.send(3)
        held_mb = rss_mb(host.edge.pid)
        small = post(host.port, path, b'{"a": 1}')
        large = post(host.port, path, bytes(5 * MB), "127.0.0.240")

    assert held_mb - before_mb < MOST_GROWTH_MB
    assert (small, large) == ("200", "200")
    until(lambda: rss_mb(host.edge.pid) - before_mb < 20, "the memory's return")


def test_a_browser_gets_failures_as_a_page_and_a_program_in_the_envelope(host: Host) -> None:
    broken = host.put("def main(args):\n    raise ValueError('<script>')\n")
    replies = {}
    for name in ("none", f"f-{broken}"):
        for accept in ("text/html,*/*", "*/*"):
            replies[name, accept] = get(host.port, f"/api/v1/web/org_1/default/{name}", accept)

    page, envelope = replies["none", "text/html,*/*"], replies["none", "*/*"]
    assert page.startswith(b"HTTP/1.1 404 ")
    assert b"<p>There is no such function.</p>" in page
    assert f"\r\ncontent-security-policy: {error_pages.POLICY}\r\n".encode() in page
    assert json.loads(envelope.partition(b"\r\n\r\n")[2])["error"]["message"] == "There is no such function"
    failed, told = replies[f"f-{broken}", "text/html,*/*"], replies[f"f-{broken}", "*/*"]
    assert failed.startswith(b"HTTP/1.1 502 ")
    assert b"\r\nx-openwhisk-activation-id: " in failed
    assert b"<script>" not in failed
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["code"] == "internal"


def get(port: int, path: str, accept: str) -> bytes:
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
        while piece := client.recv(65536):
            received += piece
    return received


@pytest.mark.boundary(
    "stranger-to-platform", "A request to a function that does not exist is answered before its body is read."
)
def test_a_body_to_no_function_is_answered_when_the_headers_are_complete(host: Host) -> None:
    with socket.create_connection(("127.0.0.1", host.port), timeout=10) as client:
        client.sendall(b"POST /api/v1/web/org_1/default/none HTTP/1.1\r\nHost: a\r\nContent-Length: 6000000\r\n\r\n")
        told = client.recv(65536)
        client.sendall(bytes(2 * MB))
        rest = client.recv(65536)

    assert told.startswith(b"HTTP/1.1 404 ")
    assert b"\r\nconnection: close\r\n" in told
    assert rest == b""


def test_a_preflight_with_a_body_is_answered_when_the_headers_are_complete(host: Host, path: str) -> None:
    with socket.create_connection(("127.0.0.1", host.port), timeout=10) as client:
        client.sendall(f"OPTIONS {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode())
        told = client.recv(65536)

    assert told.startswith(b"HTTP/1.1 200 ")


# The protocol.


def accept(_connection: Connection, request: Request) -> Answer:
    return Answer(200, str(len(request.body)).encode())


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, sent: bytes = b"", source: str = "127.0.0.1") -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))
        self._writers.append(writer)
        writer.write(sent)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def serving(connections: Listener) -> AsyncIterator[Server]:
    listener = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watch = asyncio.create_task(connections.watch_deadlines(every_s=0.01))
    server = Server(listener.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        server.close()
        await connections.drain(within_s=1)
        watch.cancel()
        listener.close()


def guard_of(**bounds: float) -> Guard:
    return Guard(budget=BodyBudget(asyncio.get_running_loop().time, Bounds(**bounds)))  # type: ignore[arg-type]


def post_of(length: int, sent: int, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{lines}\r\n".encode() + bytes(sent)


async def status_of(streams: Streams) -> int:
    async with asyncio.timeout(20):
        head = await streams[0].readuntil(b"\r\n\r\n")
    return int(head.split()[1])


@pytest.mark.anyio
async def test_a_large_body_waits_for_room_and_is_read_when_there_is() -> None:
    guard = guard_of(reserved=1 * MB, reserved_guaranteed=0)

    async with serving(Listener(accept, guard=guard)) as server:
        first = await server.connect(post_of(500 * KB, 300 * KB))
        await asyncio.sleep(0.1)
        second = await server.connect(post_of(500 * KB, 500 * KB))
        await asyncio.sleep(0.2)
        held = guard.budget.total
        first[1].write(bytes(200 * KB))
        statuses = [await status_of(first), await status_of(second)]

    assert statuses == [200, 200]
    assert held < 900 * KB
    assert guard.budget.total == 0


@pytest.mark.anyio
async def test_a_body_that_stalls_while_others_wait_is_refused_and_its_address_comes_last() -> None:
    guard = guard_of(reserved=1 * MB, reserved_guaranteed=0, grace_s=0.1)

    async with serving(Listener(accept, guard=guard)) as server:
        stalled = await server.connect(post_of(500 * KB, 300 * KB))
        await asyncio.sleep(0.1)
        other = await server.connect(post_of(500 * KB, 500 * KB), "127.0.0.9")
        statuses = [await status_of(stalled), await status_of(other)]

    assert statuses == [429, 200]


@pytest.mark.anyio
async def test_a_body_that_waits_in_vain_is_told_so() -> None:
    guard = guard_of(reserved=1 * MB, reserved_guaranteed=0)

    async with serving(Listener(accept, Limits(body_s=0.3), guard=guard)) as server:
        reader, writer = await server.connect(post_of(600 * KB, 300 * KB))
        async with asyncio.timeout(20):
            told = await reader.read()

    assert told.startswith(b"HTTP/1.1 429 ")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["code"] == "rate_limited"
    assert guard.budget.total == 0
    writer.close()


@pytest.mark.anyio
async def test_an_address_past_its_share_is_refused_and_another_one_finds_room() -> None:
    guard = guard_of(loose=200 * KB, loose_guaranteed=10 * KB, loose_extra=40 * KB)

    async with serving(Listener(accept, guard=guard)) as server:
        greedy = [await server.connect(post_of(60 * KB, 50 * KB)) for _ in range(3)]
        refused = await status_of(greedy[2])
        modest = await server.connect(post_of(9 * KB, 8 * KB), "127.0.0.9")
        await asyncio.sleep(0.1)
        modest[1].write(bytes(1 * KB))
        statuses = (refused, await status_of(modest))

    assert statuses == (429, 200)


@pytest.mark.anyio
async def test_past_the_total_the_address_with_most_loses_a_request() -> None:
    guard = guard_of(loose=64 * KB, loose_guaranteed=20 * KB, loose_extra=0)

    async with serving(Listener(accept, guard=guard)) as server:
        greedy = await server.connect(post_of(60 * KB, 30 * KB))
        await asyncio.sleep(0.1)
        for number in range(2, 4):
            await server.connect(post_of(60 * KB, 15 * KB), f"127.0.0.{number}")
        await asyncio.sleep(0.1)
        modest = await server.connect(post_of(12 * KB, 11 * KB), "127.0.0.9")
        refused = await status_of(greedy)
        modest[1].write(bytes(1 * KB))
        answered = await status_of(modest)

    assert (refused, answered) == (429, 200)


@pytest.mark.anyio
async def test_requests_that_are_sent_ahead_count() -> None:
    guard = guard_of(loose=100 * KB, loose_guaranteed=10 * KB, loose_extra=0)

    def never(_connection: Connection, _request: Request) -> None:
        return None

    async with serving(Listener(never, guard=guard)) as server:
        streams = await server.connect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2000)
        refused = await status_of(streams)

    assert refused == 429


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"", b"1\r\nx\r\n"], ids=["no body", "body"])
async def test_an_incomplete_trailer_counts(body: bytes) -> None:
    guard = guard_of(loose=15 * KB, loose_guaranteed=1 * KB, loose_extra=0)
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    async with serving(Listener(accept, guard=guard)) as server:
        streams = await server.connect(head + body + b"0\r\nX: " + b"x" * 20 * KB)
        refused = await status_of(streams)

    assert refused == 429
    assert guard.budget.total == 0


@pytest.mark.anyio
async def test_a_large_body_that_is_sent_ahead_is_not_read_before_its_turn() -> None:
    guard, held = guard_of(), asyncio.Event()

    def slow(connection: Connection, request: Request) -> Answer | None:
        if request.body:
            return accept(connection, request)
        asyncio.get_running_loop().create_task(finish(connection))
        return None

    async def finish(connection: Connection) -> None:
        await held.wait()
        connection.answer(Answer(200, b"first"))

    async with serving(Listener(slow, guard=guard)) as server:
        streams = await server.connect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + post_of(4 * MB, 4 * MB))
        await asyncio.sleep(0.2)
        before = guard.budget.total
        held.set()
        statuses = [await status_of(streams)]
        await streams[0].readexactly(5)
        statuses.append(await status_of(streams))

    assert before < 1 * MB
    assert statuses == [200, 200]
    assert guard.budget.total == 0


@pytest.mark.anyio
async def test_bytes_that_look_like_a_request_stay_a_body_that_was_sent_ahead() -> None:
    targets: list[bytes] = []

    def slow(connection: Connection, request: Request) -> None:
        targets.append(request.target)
        asyncio.get_running_loop().call_later(0.1, connection.answer, Answer(200))

    plain = b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n"
    async with serving(Listener(slow, guard=guard_of())) as server:
        streams = await server.connect(plain)
        await status_of(streams)
        streams[1].write(plain + post_of(len(plain), 0))
        await status_of(streams)
        streams[1].write(plain)
        await status_of(streams)

    assert targets == [b"/plain", b"/plain", b"/x"]


@pytest.mark.anyio
async def test_a_request_has_a_bounded_number_of_headers() -> None:
    async with serving(Listener(accept, guard=guard_of())) as server:
        streams = await server.connect(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * 300 + b"\r\n")
        status = await status_of(streams)

    assert status == 400


@pytest.mark.anyio
async def test_an_address_has_a_bounded_number_of_connections_and_others_have_theirs() -> None:
    guard = Guard(clients=Clients(per_address=3, total=100))

    async with serving(Listener(accept, guard=guard)) as server:
        for _ in range(3):
            await server.connect()
        await asyncio.sleep(0.1)
        refused = await status_of(await server.connect())
        answered = await status_of(await server.connect(post_of(1, 1), "127.0.0.9"))

    assert (refused, answered) == (429, 200)


@pytest.mark.anyio
async def test_past_the_total_the_address_with_most_connections_loses_one() -> None:
    guard = Guard(clients=Clients(per_address=10, total=5))

    async with serving(Listener(accept, guard=guard)) as server:
        oldest = await server.connect()
        for _ in range(4):
            await server.connect()
        await asyncio.sleep(0.1)
        answered = await status_of(await server.connect(post_of(1, 1), "127.0.0.9"))
        async with asyncio.timeout(20):
            ended = await asyncio.gather(oldest[0].read(), return_exceptions=True)

    assert answered == 200
    assert ended[0] == b"" or isinstance(ended[0], ConnectionError)


@pytest.mark.anyio
async def test_an_answer_that_is_not_taken_ends_its_connection() -> None:
    def large(_connection: Connection, _request: Request) -> Answer:
        return Answer(200, bytes(40 * MB))

    connections = Listener(large, Limits(body_s=0.3), guard=guard_of())
    async with serving(connections) as server:
        _, writer = await server.connect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(20):
            while connections.open:
                await asyncio.sleep(0.02)

    assert connections.guard is not None
    assert connections.guard.unread.total == 0


# Addresses.


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002::/64"),
        ("2001:db8:1:2:ffff::1", "2001:0db8:0001:0002::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80:0000:0000:0000::/64"),
        ("a:b:nonsense", "unknown"),
        ("", "unknown"),
    ],
)
def test_an_address_of_ipv6_counts_by_its_network(address: str, key: str) -> None:
    assert key_of(address) == key


@pytest.mark.anyio
@pytest.mark.boundary("stranger-to-platform", "A client cannot choose the address that its requests count for.")
@pytest.mark.parametrize(
    ("trusted", "is_behind_gateway", "keys"),
    [
        ((), False, {"127.0.0.1"}),
        (("127.0.0.0/8",), False, {"192.0.2.2"}),
        ((), True, {"192.0.2.3"}),
    ],
)
async def test_only_proxies_that_are_trusted_name_the_address_of_a_client(
    trusted: tuple[str, ...], is_behind_gateway: bool, keys: set[str]
) -> None:
    guard = Guard(trusted=networks(trusted))
    connections = Listener(accept, guard=guard, is_behind_gateway=is_behind_gateway)
    headers = ("X-Forwarded-For: 192.0.2.1, 192.0.2.2", "X-Moorage-Client: 192.0.2.3")

    async with serving(connections) as server:
        await server.connect(post_of(9, 2, *headers))
        await asyncio.sleep(0.1)
        counted = guard.budget.keys()

    assert counted == keys


@pytest.mark.anyio
async def test_functions_do_not_see_the_header_of_the_gateway() -> None:
    seen: list[Request] = []

    def remember(_connection: Connection, request: Request) -> Answer:
        seen.append(request)
        return answers.NOT_FOUND.answer(answers.fresh_id())

    async with serving(Listener(remember, guard=guard_of(), is_behind_gateway=True)) as server:
        await status_of(await server.connect(post_of(1, 1, "X-Moorage-Client: 192.0.2.3")))

    assert seen[0].client == b"192.0.2.3"
    assert seen[0].find_header(b"x-moorage-client") is None
