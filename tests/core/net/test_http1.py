"""The codec of HTTP clients: a response in pieces of any size, its end, its limits, and the encoded request."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import closing

import pytest
from tests.core.net.outbound_servers import Request, always, answer, serve

from moorage.core.net.http1 import MAX_HEAD_BYTES, BadResponse, CutOff, Response, connect, encode_request

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + b"2\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
UNFRAMED = b"HTTP/1.1 200 OK\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"


@pytest.mark.parametrize(
    "data", [LENGTH, CHUNKED, UNFRAMED, INTERIM + LENGTH, b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED]
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_response_in_pieces_of_any_size_is_the_same(data: bytes, size: int) -> None:
    response = Response()

    for start in range(0, len(data), size):
        response.feed(data[start : start + size])
    response.end()

    assert (response.status, bytes(response.body.data), response.is_complete) == (200, b"hello", True)
    assert not {"Link", "Trailer"} & set(response.headers)


@pytest.mark.parametrize(
    ("data", "can_keep_alive"),
    [
        (LENGTH, True),
        (CHUNKED, True),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", True),
        (LENGTH.replace(b"1.1", b"1.0"), False),
        (LENGTH.replace(b"Content", b"Connection: close\r\nContent"), False),
        (LENGTH + LENGTH, False),
        (UNFRAMED, False),
    ],
)
def test_a_connection_is_kept_only_after_one_response_with_a_length(data: bytes, can_keep_alive: bool) -> None:
    response = Response()

    response.feed(data)
    response.end()

    assert response.can_keep_alive == can_keep_alive


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nA: b", INTERIM, LENGTH[:-1], CHUNKED[:-20]])
def test_a_connection_that_ends_early_cuts_the_response_off(data: bytes) -> None:
    response = Response()
    response.feed(data)

    with pytest.raises(CutOff):
        response.end()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 099 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nplain",
    ],
)
def test_an_invalid_response_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse):
        Response().feed(data)


def test_a_compressed_body_that_is_incomplete_is_refused() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello")[:-4])

    with pytest.raises(BadResponse):
        response.end()


@pytest.mark.boundary("tenant-to-network", "A response without an end takes a bounded amount of memory and CPU time.")
@pytest.mark.parametrize(
    ("head", "piece", "is_cut"),
    [
        (gzip.compress(b"hello"), b"x" * 1000, False),
        (gzip.compress(b"hello") + b"x", b"x", False),
        (gzip.compress(b"")[:10], bytes((0, 0, 0, 0xFF, 0xFF)) * 200, True),
    ],
    ids=["after the content", "in one piece", "blocks without content"],
)
def test_a_compressed_body_ends_with_its_content(head: bytes, piece: bytes, is_cut: bool) -> None:
    response = Response(max_body_bytes=1000)
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + head)

    fed = feed_until_complete(response, piece)

    assert fed <= MAX_HEAD_BYTES + 3000
    assert (bytes(response.body.data), response.body.is_cut) == (b"" if is_cut else b"hello", is_cut)
    assert not response.can_keep_alive


@pytest.mark.boundary("tenant-to-network", "A response without an end takes a bounded amount of memory and CPU time.")
@pytest.mark.parametrize(
    "start", [b"0\r\nX: ", b"0\r\n", b"1;x=", b"1\r\nx\r\n1;x="], ids=["trailer", "name", "extension", "second chunk"]
)
@pytest.mark.parametrize("stores_body", [True, False])
def test_a_body_without_an_end_is_refused_after_as_many_bytes_as_a_head(start: bytes, stores_body: bool) -> None:
    response = Response(stores_body=stores_body)
    response.feed(CHUNKED_HEAD + start)

    with pytest.raises(BadResponse):
        feed_until_complete(response, b"x" * 1000, most_bytes=MAX_HEAD_BYTES + 1000)


def test_many_small_chunks_are_no_head() -> None:
    response = Response()
    response.feed(CHUNKED_HEAD)

    for _ in range(200):
        response.feed(b"1\r\nx\r\n" * 100)
    response.feed(b"0\r\n\r\n")

    assert (response.is_complete, len(response.body.data)) == (True, 20_000)


def feed_until_complete(response: Response, piece: bytes, most_bytes: int = 1_000_000) -> int:
    """Return the number of bytes that were fed."""
    fed = 0
    while not response.is_complete and fed < most_bytes:
        response.feed(piece)
        fed += len(piece)
    return fed


@pytest.mark.parametrize("stores_body", [True, False])
def test_a_response_is_complete_where_its_body_exceeds_the_limit(stores_body: bool) -> None:
    response = Response(max_body_bytes=4, stores_body=stores_body)

    response.feed(LENGTH[:-1])
    before = response.is_complete
    response.feed(LENGTH[-1:])

    assert (before, response.is_complete, response.can_keep_alive) == (False, True, False)
    assert bytes(response.body.data) == (b"hell" if stores_body else b"")


def test_a_response_to_head_or_to_an_upgrade_ends_with_its_head() -> None:
    head, upgraded = Response(is_head=True), Response()

    head.feed(LENGTH[:-5])
    upgraded.feed(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nraw")

    assert [(each.status, each.is_complete) for each in (head, upgraded)] == [(200, True), (101, True)]


def test_a_request_has_a_length_where_its_method_or_body_needs_one() -> None:
    assert encode_request("GET", "/", [("A", "b")]) == b"GET / HTTP/1.1\r\nA: b\r\n\r\n"
    assert encode_request("POST", "/", []) == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert encode_request("GET", "/", [], b"x") == b"GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"


@pytest.mark.anyio
async def test_the_head_can_be_read_before_the_body_and_a_closed_connection_takes_no_request() -> None:
    sends_body = asyncio.Event()

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(LENGTH[:-5])
        await sends_body.wait()
        writer.write(LENGTH[-5:])

    async with serve(reply) as server:
        with closing(await connect(server.host, server.port)) as connection:
            response = Response()
            connection.send(encode_request("GET", "/", []), response)
            await connection.read(only_head=True)
            status, was_complete = response.status, response.is_complete
            sends_body.set()
            await connection.read()

        assert (status, was_complete, bytes(response.body.data)) == (200, False, b"hello")
        with pytest.raises(CutOff):
            connection.send(encode_request("GET", "/", []), Response())


@pytest.mark.anyio
async def test_a_connection_is_idle_until_the_server_closes_it() -> None:
    async with serve(always(answer())) as server:
        with closing(await connect(server.host, server.port)) as connection:
            before = connection.is_idle()
            connection.send(encode_request("GET", "/", []), Response())
            while_waiting = connection.is_idle()
            await connection.read()
            while connection.is_idle():  # The server closes after its response.
                await asyncio.sleep(0.001)

    assert (before, while_waiting) == (True, False)
