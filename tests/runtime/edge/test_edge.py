"""HTTP clients of the edge: a real process, or the protocol alone for short limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any

import pytest
from tests.ports import free_port
from tests.runtime.edge.edge_process import exchange, running_edge, split

from moorage.core.net import host_header
from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.listener import Listener
from moorage.runtime.edge.connections.protocol import Connection

MB = 2**20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def not_found(_connection: Connection, _request: Request) -> Answer:
    return answers.NOT_FOUND.answer(answers.fresh_id())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    with running_edge(port):
        yield port


def failure(body: bytes) -> dict[str, Any]:
    envelope = json.loads(body)
    assert envelope["success"] is False
    error: dict[str, Any] = envelope["error"]
    return error


def test_an_unknown_function_is_not_found_in_the_envelope(port: int) -> None:
    answer = exchange(port, b"GET /api/v1/web/org_1/default/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    status, headers, body = split(answer)
    assert status == 404
    assert headers["content-type"] == "application/json"
    assert headers["access-control-allow-origin"] == "*"
    assert failure(body)["code"] == "not_found"
    assert failure(body)["traceId"] == headers["x-request-id"]


@pytest.mark.parametrize(("sent", "is_kept"), [("harbor-1.a_b", True), ("x" * 65, False), ('a"b', False), ("", False)])
def test_a_safe_request_id_is_kept_and_any_other_replaced(port: int, sent: str, is_kept: bool) -> None:
    request = f"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: {sent}\r\nConnection: close\r\n\r\n"

    _, headers, _ = split(exchange(port, request.encode()))

    assert (headers["x-request-id"] == sent) is is_kept
    assert headers["x-request-id"]


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-%d\r\n\r\n" % (n, n) for n in range(2000))
    last = b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: last\r\nConnection: close\r\n\r\n"

    answer = exchange(port, requests + last)

    ids = [line.split(b": ")[1] for line in answer.split(b"\r\n") if line.startswith(b"x-request-id: ")]
    assert ids == [*(b"id-%d" % n for n in range(2000)), b"last"]


def test_head_has_the_length_of_a_body_that_is_left_out_and_the_connection_stays(port: int) -> None:
    client = HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("HEAD", "/x")
    head = client.getresponse()
    head_body = head.read()
    first_socket = client.sock
    client.request("GET", "/x")
    get = client.getresponse()

    assert head_body == b""
    assert int(head.headers["content-length"]) == len(get.read())
    assert client.sock is first_socket
    client.close()


def test_head_that_is_refused_has_no_body_either(port: int) -> None:
    status, _, body = split(exchange(port, b"HEAD / HTTP/1.1\r\n\r\n"))

    assert status == 400
    assert body == b""


def test_a_preflight_for_no_function_is_not_found_and_can_be_read_by_any_page(port: int) -> None:
    for path in ("/x", "/api/v1/web/org_1/default/x"):
        answer = exchange(port, f"OPTIONS {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

        status, headers, body = split(answer)
        assert (status, failure(body)["code"]) == (404, "not_found")
        assert headers["access-control-allow-origin"] == "*"
        assert "DELETE" in headers["access-control-allow-methods"]
        assert "Authorization" in headers["access-control-allow-headers"]


@pytest.mark.anyio
async def test_a_body_up_to_the_limit_is_read_and_the_connection_stays() -> None:
    sizes: list[int] = []

    def measure(_connection: Connection, request: Request) -> Answer:
        sizes.append(len(request.body))
        return Answer(200)

    async with serving(Listener(measure)) as (reader, writer):
        for length in (6 * MB, 0):
            writer.write(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length)
            await reader.readuntil(b"\r\n\r\n")

    assert sizes == [6 * MB, 0]


def test_a_small_body_to_no_function_leaves_the_connection_open(port: int) -> None:
    client = HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("POST", "/x", body=b"x" * 100)
    answer = client.getresponse()
    answer.read()
    first_socket = client.sock
    client.request("GET", "/x")
    client.getresponse().read()

    assert answer.status == 404
    assert client.sock is first_socket
    client.close()


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(port: int) -> None:
    request = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (6 * MB + 1)

    status, headers, body = split(exchange(port, request))

    assert status == 413
    assert headers["connection"] == "close"
    assert failure(body)["code"] == "bad_request"


def test_a_client_that_sends_a_too_large_body_all_the_same_gets_the_answer(port: int) -> None:
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (8 * MB)

    status, _, _ = split(exchange(port, request + b"x" * (8 * MB)))

    assert status == 413


@pytest.mark.anyio
async def test_a_chunked_body_is_refused_once_it_is_too_large() -> None:
    request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * MB + b"\r\n"

    async with serving(Listener(not_found, guard=Guard())) as (reader, writer):
        writer.write(request + chunk * 7)
        status, _, body = split(await reader.read())

    assert status == 413
    assert failure(body)["code"] == "bad_request"


@pytest.mark.anyio
@pytest.mark.parametrize("size", [2, 6 * MB])
async def test_a_client_that_waits_to_be_let_on_is_told_to_go_on(size: int) -> None:
    async with serving(Listener(not_found, guard=Guard())) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * size)
        final = await reader.readuntil(b"}}")

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert split(final)[0] == 404


HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"X-Long: " + b"a" * 70_000 + b"\r\n\r\n", id="one long header"),
        pytest.param(HEAD + b"".join(b"X-%d: abc\r\n" % n for n in range(8000)) + b"\r\n", id="many headers"),
        pytest.param(HEAD + b"X-Endless: " + b"a" * 400_000, id="a header without an end"),
        pytest.param(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="a long address"),
    ],
)
def test_headers_over_the_limit_are_refused(port: int, sent: bytes) -> None:
    status, headers, body = split(exchange(port, sent))

    assert status == 400
    assert headers["connection"] == "close"
    assert failure(body)["code"] == "bad_request"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO THERE\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_requests_are_refused(port: int, sent: bytes) -> None:
    status, headers, body = split(exchange(port, sent))

    assert status == 400
    assert headers["connection"] == "close"
    assert failure(body)["code"] == "bad_request"


@pytest.mark.boundary("stranger-to-platform", "A request that names no host, several or a malformed one is refused.")
@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GET / HTTP/1.1\r\n", host_header.ABSENT),
        (b"GET / HTTP/1.1\r\nHost: org-1.localhost\r\nHost: org-2.localhost\r\n", host_header.SEVERAL),
        (b"GET / HTTP/1.0\r\nHost: org-1.localhost\r\nhost: org-1.localhost\r\n", host_header.SEVERAL),
        (b"GET / HTTP/1.1\r\nHost: org-1.localhost, org-2.localhost\r\n", host_header.MALFORMED),
        (b"GET / HTTP/1.1\r\nHost:\r\n", host_header.MALFORMED),
    ],
)
def test_a_request_without_one_clear_host_is_refused_and_nothing_after_it_is_run(
    port: int, head: bytes, message: str
) -> None:
    status, headers, body = split(exchange(port, head + b"\r\n" + HEAD + b"\r\n"))

    assert (status, headers["connection"]) == (400, "close")
    assert failure(body) == {"code": "bad_request", "message": message, "traceId": headers["x-request-id"]}


def test_an_offer_to_upgrade_is_answered_as_a_plain_request(port: int) -> None:
    offer = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    status, headers, _ = split(exchange(port, offer))

    assert status == 404
    assert headers["connection"] == "close"


def test_http_1_0_is_told_whether_the_connection_stays(port: int) -> None:
    stays = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    closes = b"GET / HTTP/1.0\r\n\r\n"

    answer = exchange(port, stays + closes)

    told = [line for line in answer.split(b"\r\n") if line.startswith(b"connection: ")]
    assert told == [b"connection: keep-alive", b"connection: close"]


@asynccontextmanager
async def serving(connections: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve in this process and connect one client."""
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watch = asyncio.create_task(connections.watch_deadlines(every_s=0.01))
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        await connections.drain(within_s=1)
        watch.cancel()
        server.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHos", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"]
)
async def test_a_request_that_stops_half_way_is_answered_and_closed(sent: bytes) -> None:
    connections = Listener(not_found, Limits(header_s=0.1, body_s=0.1))

    async with serving(connections) as (reader, writer):
        writer.write(sent)
        status, headers, body = split(await reader.read())

    assert (status, headers["connection"]) == (408, "close")
    assert failure(body)["code"] == "bad_request"


@pytest.mark.anyio
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_a_connection_without_requests_is_closed_in_silence(sent: bytes) -> None:
    connections = Listener(not_found, Limits(header_s=0.1, idle_s=0.1))

    async with serving(connections) as (reader, writer):
        writer.write(sent)
        received = await reader.read()

    assert received.count(b"HTTP/1.1 ") == (1 if sent else 0)


@pytest.mark.anyio
async def test_a_refused_client_that_never_closes_is_cut_off() -> None:
    connections = Listener(not_found, Limits(linger_s=0.1))

    async with serving(connections) as (reader, writer):
        writer.write(b"nonsense\r\n\r\n")
        await reader.read()
        while connections.open:
            await asyncio.sleep(0.01)

    assert connections.open == set()


@pytest.mark.anyio
async def test_draining_cuts_off_a_request_that_does_not_finish() -> None:
    connections = Listener(not_found)

    async with serving(connections) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await connections.drain(within_s=0.05)
        rest = await reader.read()

    assert rest == b""


@pytest.mark.anyio
async def test_a_trailer_never_passes_for_a_header() -> None:
    seen: list[Request] = []

    def remember(_connection: Connection, request: Request) -> Answer:
        seen.append(request)
        return Answer(200)

    async with serving(Listener(remember)) as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        writer.write(b"2\r\nhi\r\n0\r\nAuthorization: me\r\n\r\n")
        await reader.read()

    assert [(request.method, request.target) for request in seen] == [(b"POST", b"/x")]
    assert seen[0].find_header(b"host") == b"a"
    assert seen[0].find_header(b"authorization") is None


CHUNKED = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.boundary(
    "stranger-to-platform", "Malformed, endless and slow HTTP requests get a bounded answer or a close."
)
@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"", b"1\r\nx\r\n"], ids=["no body", "body"])
@pytest.mark.parametrize(
    ("start", "piece"), [(b"0\r\nX: ", b"a"), (b"0\r\n", b"a"), (b"1;x=", b"a"), (b"", b"0")], ids=str
)
async def test_a_trailer_or_a_chunk_size_without_an_end_is_refused_at_the_limit_of_headers(
    body: bytes, start: bytes, piece: bytes
) -> None:
    async with serving(Listener(not_found, Limits(header_bytes=8000))) as (reader, writer):
        writer.write(CHUNKED + body + start)
        await asyncio.sleep(0.01)
        for _ in range(20):
            writer.write(piece * 1000)
            await asyncio.sleep(0.001)
        received = await reader.read()

    status, headers, envelope = split(received)
    assert (status, headers["connection"]) == (400, "close")
    assert "headers" in failure(envelope)["message"]


@pytest.mark.anyio
async def test_many_small_chunks_and_a_trailer_are_read() -> None:
    bodies: list[bytes] = []

    def remember(_connection: Connection, request: Request) -> Answer:
        bodies.append(request.body)
        return Answer(200)

    async with serving(Listener(remember, guard=Guard())) as (reader, writer):
        writer.write(CHUNKED)
        for _ in range(30):
            writer.write(b"1\r\nx\r\n" * 1000)
            await asyncio.sleep(0)
        writer.write(b"0\r\nX: " + b"a" * 50_000 + b"\r\n\r\n" + HEAD + b"Connection: close\r\n\r\n")
        await reader.read()

    assert bodies == [b"x" * 30_000, b""]


@pytest.mark.anyio
async def test_a_bug_in_a_handler_is_an_internal_failure_without_its_text() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

    def broken(_connection: Connection, _request: Request) -> Answer:
        raise KeyError("a secret detail")

    async with serving(Listener(broken)) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        status, _, body = split(await reader.read())

    assert status == 500
    assert failure(body)["code"] == "internal"
    assert b"secret" not in body
    assert isinstance(reported[0]["exception"], KeyError)


@pytest.mark.anyio
async def test_a_connection_after_an_idle_time_has_its_whole_time_for_the_headers() -> None:
    connections = Listener(not_found, Limits(header_s=0.5))
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watch = asyncio.create_task(connections.watch_deadlines(every_s=0.01))
    await asyncio.sleep(0.7)  # longer than the time for the headers

    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await asyncio.sleep(0.1)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    status, _, _ = split(await reader.read())
    writer.close()
    watch.cancel()
    server.close()

    assert status == 404
