"""HTTP over a unix socket, with correct and faulty servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moorage.core.net.http1 import ResponseError
from moorage.core.net.local_http import LocalHttp, NotConnected, Reply

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next bytes, and closes where they are empty."""

    def __init__(self, answers: list[bytes], *, closes: bool = False) -> None:
        self.answers = answers
        self.closes = closes
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(size))
            writer.write(self.answers.pop(0))
            if self.closes:
                break
        writer.close()


@asynccontextmanager
async def serving(path: Path, server: Server) -> AsyncIterator[LocalHttp]:
    listener = await asyncio.start_unix_server(server.serve, str(path))
    client = LocalHttp(path)
    try:
        yield client
    finally:
        await client.close()
        listener.close()


async def test_a_request_and_its_answer_go_over_whole(tmp_path: Path) -> None:
    server = Server([OK])

    async with serving(tmp_path / "s", server) as client:
        reply = await client.send("POST", "/here?a=1", b"body")

    assert reply == Reply(200, b"ok")
    assert server.requests[0].startswith(b"POST /here?a=1 HTTP/1.1\r\n")
    assert server.requests[0].endswith(b"Content-Length: 4\r\n\r\nbody")


async def test_one_connection_serves_requests_that_follow_each_other(tmp_path: Path) -> None:
    server = Server([OK, OK, OK, OK])

    async with serving(tmp_path / "s", server) as client:
        for _ in range(3):
            await client.send("GET", "/")

    assert server.connections == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(tmp_path: Path) -> None:
    server = Server([OK] * 20)

    async with serving(tmp_path / "s", server) as client:
        replies = await asyncio.gather(*(client.send("GET", "/") for _ in range(5)))

    assert [reply.status for reply in replies] == [200] * 5
    assert server.connections == 5


async def test_a_connection_that_the_server_closed_is_not_used_again(tmp_path: Path) -> None:
    server = Server([OK, OK], closes=True)

    async with serving(tmp_path / "s", server) as client:
        await client.send("GET", "/")
        again = await client.send("GET", "/")

    assert again.status == 200
    assert server.connections == 2


async def test_without_a_server_nothing_was_sent(tmp_path: Path) -> None:
    with pytest.raises(NotConnected):
        await LocalHttp(tmp_path / "nobody").send("GET", "/")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"no such thing\r\n\r\n"])
async def test_an_answer_that_does_not_come_whole_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    async with serving(tmp_path / "s", Server([answer], closes=True)) as client:
        with pytest.raises(ResponseError):
            await client.send("GET", "/")


async def test_an_interim_answer_is_passed_over(tmp_path: Path) -> None:
    server = Server([b"HTTP/1.1 100 Continue\r\n\r\n" + OK])

    async with serving(tmp_path / "s", server) as client:
        assert await client.send("GET", "/") == Reply(200, b"ok")


async def test_a_caller_who_gives_up_leaves_no_connection_behind_for_others(tmp_path: Path) -> None:
    server = Server([b"", OK])

    async with serving(tmp_path / "s", server) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.send("GET", "/slow"), 0.05)
        reply = await client.send("GET", "/")

    assert reply.status == 200
    assert server.connections == 2


async def test_an_answer_without_a_length_ends_with_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Server([b"HTTP/1.1 200 OK\r\n\r\nok"], closes=True)) as client:
        assert await client.send("GET", "/") == Reply(200, b"ok")


async def test_a_connection_with_a_second_answer_is_not_used_again(tmp_path: Path) -> None:
    server = Server([OK + OK, b"HTTP/1.1 204 No Content\r\n\r\n"])

    async with serving(tmp_path / "s", server) as client:
        replies = [await client.send("GET", "/") for _ in range(2)]

    assert [reply.status for reply in replies] == [200, 204]
    assert server.connections == 2
