"""Requests to sleeping apps wait, start the app once, and are then forwarded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.ports import free_port

from moorage.core.net import error_pages
from moorage.gateway.caddy import find_caddy
from moorage.products.apps.waker import MAX_EMPTY_LINES, MAX_INTERIM_RESPONSES, Waker
from moorage.runtime.engines.ports import Address

pytestmark = pytest.mark.anyio

GET = b"GET /page?x=1 HTTP/1.1\r\nHost: Harbor.example.com:8443\r\nX-Own: 1\r\nConnection: keep-alive\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
PATIENCE_S = 20.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Sleeper:
    """An app that can be woken: how it is done is the test's."""

    port: int
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    woken: list[str] = field(default_factory=list)
    connections: int = 0

    async def wake(self, host: str) -> Address | None:
        self.woken.append(host)
        await self.awake.wait()
        return Address(self.port)


@contextlib.asynccontextmanager
async def app_of(serve: Serve, *, is_awake: bool = True) -> AsyncIterator[Sleeper]:
    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        app.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(counted, "127.0.0.1", 0, limit=2**20)
    app = Sleeper(server.sockets[0].getsockname()[1])
    if is_awake:
        app.awake.set()
    try:
        yield app
    finally:
        server.close()


@contextlib.asynccontextmanager
async def waker_of(
    path: Path,
    wake: Callable[[str], Awaitable[Address | None]],
    within_s: float = PATIENCE_S,
    most_waiting: int = 1000,
) -> AsyncIterator[Waker]:
    waker = Waker(path, wake, within_s=within_s, most_waiting=most_waiting)
    await waker.start()
    try:
        yield waker
    finally:
        await waker.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "waker.sock"


@dataclass
class Peer:
    """The gateway's side of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(mark)

    async def rest(self) -> bytes:
        """Return everything until the connection is closed."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def dialled(path: Path, data: bytes = b"") -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_unix_connection(path))
    peer.send(data)
    try:
        yield peer
    finally:
        await peer.leave()


async def ask(path: Path, data: bytes = GET) -> bytes:
    async with dialled(path, data) as peer:
        return await peer.rest()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.002)


async def test_a_request_waits_until_its_app_is_awake_and_is_passed_on_to_be_the_last_of_its_connection(
    path: Path,
) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        await reader.read()  # It keeps the connection, whatever it was asked.

    async with app_of(serve, is_awake=False) as app, waker_of(path, app.wake), dialled(path, GET) as peer:
        await until(lambda: app.woken != [])
        connected_before = app.connections
        app.awake.set()
        answer = await peer.rest()

    assert app.woken == ["harbor.example.com"]
    assert connected_before == 0
    assert heads[0].startswith(b"GET /page?x=1 HTTP/1.1\r\nHost: Harbor.example.com:8443\r\nX-Own: 1\r\n")
    assert heads[0].endswith(b"\r\nConnection: close\r\n\r\n")
    assert b"keep-alive" not in heads[0] + answer
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\nConnection: close\r\n\r\nhello")


async def test_bodies_of_known_and_of_unknown_length_pass_in_both_directions(path: Path) -> None:
    chunks = b"".join(b"1000\r\n%b\r\n" % (b"c" * 4096) for _ in range(500)) + b"0\r\n\r\n"
    whole = b"w" * 5_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = len(chunks) if b"chunked" in head else len(whole)
        body = await reader.readexactly(length)
        framing = b"Transfer-Encoding: chunked" if b"chunked" in head else b"Content-Length: %d" % length
        writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (framing, body))
        await writer.drain()
        await reader.read()

    async with app_of(serve) as app, waker_of(path, app.wake):
        known = await ask(path, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(whole), whole))
        unknown = await ask(path, b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)

    assert known.partition(b"\r\n\r\n")[2] == whole
    assert unknown.partition(b"\r\n\r\n")[2] == chunks


async def test_a_client_that_asks_whether_to_go_on_hears_it_from_the_app(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"Expect: 100-continue\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readuntil(b"the body")
        writer.write(OK)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n"
    async with app_of(serve) as app, waker_of(path, app.wake), dialled(path, head) as peer:
        interim = await peer.until(b"\r\n\r\n")
        peer.send(b"the body")
        answer = await peer.rest()

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_an_upgraded_connection_is_a_pipe_until_one_side_leaves(path: Path) -> None:
    left = asyncio.Event()
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" in head
        writer.write(switch + b"hello ")
        while data := await reader.read(65536):
            writer.write(data.upper())
        left.set()

    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly "
    async with app_of(serve) as app, waker_of(path, app.wake), dialled(path, head) as peer:
        begin = await peer.until(b"EARLY ")
        peer.send(b"\x81\x00late")
        end = await peer.until(b"LATE")
        await peer.leave()
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()

    assert begin == switch + b"hello EARLY "
    assert end == b"\x81\x00LATE"


async def test_many_requests_of_one_host_wake_it_once_and_other_hosts_for_themselves(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with app_of(serve, is_awake=False) as app, waker_of(path, app.wake):
        asked = [asyncio.create_task(ask(path)) for _ in range(100)]
        asked.append(asyncio.create_task(ask(path, b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")))
        await until(lambda: len(app.woken) == 2)
        app.awake.set()
        answers = await asyncio.gather(*asked)
        once_more = await ask(path)

    assert sorted(app.woken[:2]) == ["harbor.example.com", "other"]
    assert app.woken[2:] == ["harbor.example.com"]
    assert all(answer.endswith(b"hello") for answer in [*answers, once_more])


async def test_an_app_that_does_not_come_up_gets_a_page_that_says_so(path: Path) -> None:
    async def wake(host: str) -> Address | None:
        if host == "late":
            raise TimeoutError
        if host == "stuck":
            await asyncio.Event().wait()
        return Address(free_port()) if host == "crashed" else None

    async with waker_of(path, wake, within_s=0.2):
        answers = {
            host: await ask(path, b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: 3\r\n\r\nabc" % host.encode())
            for host in ("refused", "crashed", "late", "stuck")
        }

    statuses = {host: int(answer.split()[1]) for host, answer in answers.items()}
    assert statuses == {"refused": 503, "crashed": 503, "late": 504, "stuck": 504}
    assert b"\r\nRetry-After: 2\r\n" in answers["refused"]
    assert b"The app does not answer yet" in answers["refused"]
    assert b"\r\nConnection: close\r\n" in answers["late"]


async def test_a_browser_gets_a_page_that_loads_again_and_a_program_the_envelope(path: Path) -> None:
    async def wake(host: str) -> Address | None:
        return None

    async with waker_of(path, wake):
        request = b"%b / HTTP/1.1\r\nHost: asleep\r\nX-Request-Id: mine\r\nAccept: %b\r\n\r\n"
        page = await ask(path, request % (b"GET", b"text/html,*/*"))
        program = await ask(path, request % (b"GET", b"*/*"))
        bare = await ask(path, request % (b"HEAD", b"text/html"))

    assert b"<h1>The app is starting</h1>" in page
    assert b'<meta http-equiv="refresh" content="2">' in page
    assert f"\r\nContent-Security-Policy: {error_pages.POLICY}\r\n".encode() in page
    assert json.loads(program.partition(b"\r\n\r\n")[2])["error"]["traceId"] == "mine"
    assert bare.endswith(b"\r\n\r\n")


async def test_an_error_in_waking_is_told_to_whoever_watches_the_loop_and_not_to_the_client(path: Path) -> None:
    told: list[str] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(repr(context["exception"])))

    async def wake(host: str) -> Address | None:
        raise LookupError("a secret thing")

    try:
        async with waker_of(path, wake):
            answer = await ask(path)
    finally:
        loop.set_exception_handler(before)

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"secret" not in answer
    assert told == ["LookupError('a secret thing')"]


async def test_a_client_that_leaves_while_it_waits_never_reaches_the_app(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nsome of it"
    async with app_of(serve, is_awake=False) as app, waker_of(path, app.wake):
        async with dialled(path, body):
            await until(lambda: app.woken == ["a"])
        async with dialled(path, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n") as second:
            await until(lambda: app.woken == ["a", "b"])
            app.awake.set()
            answer = await second.rest()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert app.connections == 1


async def test_only_so_many_wait_for_one_host(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with app_of(serve, is_awake=False) as app, waker_of(path, app.wake, most_waiting=3):
        asked = [asyncio.create_task(ask(path)) for _ in range(8)]
        await until(lambda: sum(task.done() for task in asked) == 5)
        app.awake.set()
        answers = await asyncio.gather(*asked)
        afterwards = await ask(path)

    assert sorted(int(answer.split()[1]) for answer in answers) == [200] * 3 + [503] * 5
    assert afterwards.startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_leaves_in_the_middle_is_noticed_by_the_app(path: Path) -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()
        left.set()

    async with app_of(serve) as app, waker_of(path, app.wake), dialled(path, GET) as peer:
        await peer.until(b"data: 1\n\n")
        await peer.leave()
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()

    assert app.connections == 1


async def test_an_answer_before_the_end_of_the_body_arrives(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000000\r\n\r\n"
    async with app_of(serve) as app, waker_of(path, app.wake), dialled(path, head + b"x" * 300_000) as peer:
        answer = await peer.rest()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"\r\n\r\nbig")


@pytest.mark.parametrize(
    ("said", "status", "end"),
    [
        (b"HTTP/1.0 200 OK\nContent-Type: text/plain\n\nuntil I hang up", 200, b"\r\n\r\nuntil I hang up"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"close\r\n\r\n"),
        (EARLY_HINTS + OK, 103, b"hello"),
        (EARLY_HINTS * MAX_INTERIM_RESPONSES + OK, 103, b"hello"),
        (EARLY_HINTS * (MAX_INTERIM_RESPONSES + 1) + OK, 103, b"}}"),
        (b"\r\n" * MAX_EMPTY_LINES + OK, 200, b"hello"),
        (b"\n" * 60_000 + OK, 502, b"}}"),
        (b"HTTP/1.1 200 OK\n" + b"X:\n" * 20_000 + b"\nhello", 200, b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut", 200, b"\r\n\r\ncut"),
        (b"", 502, b"}}"),
        (b"not http\r\n", 502, b"}}"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, 502, b"}}"),
    ],
)
async def test_whatever_an_app_says_is_passed_on_or_replaced(path: Path, said: bytes, status: int, end: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    async with app_of(serve) as app, waker_of(path, app.wake):
        answer = await ask(path)

    assert int(answer.split()[1]) == status
    assert answer.endswith(end)


async def test_an_answer_to_head_has_no_body_whatever_its_length_says(path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        await reader.read()

    async with app_of(serve) as app, waker_of(path, app.wake):
        answer = await ask(path, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")

    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 431),
        (b"\n" * (MAX_EMPTY_LINES + 1) + GET, 400),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ],
)
async def test_a_request_that_cannot_be_read_wakes_nobody(path: Path, sent: bytes, status: int) -> None:
    woken: list[str] = []

    async def wake(host: str) -> Address | None:
        woken.append(host)
        return None

    async with waker_of(path, wake):
        answer = await ask(path, sent)

    assert int(answer.split()[1]) == status
    assert woken == []


async def test_it_takes_the_place_of_a_stale_socket_and_leaves_none_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    async def wake(host: str) -> Address | None:
        return None

    async with waker_of(path, wake):
        mode = path.stat().st_mode & 0o777
        answer = await ask(path)

    assert mode == 0o600
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert not path.exists()


async def test_closing_lets_a_request_finish_and_takes_no_other(path: Path) -> None:
    goes_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        await goes_on.wait()
        writer.write(b"llo")

    async with app_of(serve) as app, waker_of(path, app.wake) as waker, dialled(path, GET) as peer:
        await peer.until(b"he")
        closing = asyncio.create_task(waker.close())
        await until(lambda: not path.exists())
        goes_on.set()
        rest = await peer.rest()
        await peer.leave()
        await closing

    assert rest == b"llo"


async def test_caddy_gets_requests_through_and_comes_back_by_its_own_way(path: Path, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"Upgrade: websocket" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            writer.write((await reader.readexactly(4)).upper())
            return
        body = await reader.readuntil(b"end") if head.startswith(b"POST") else b"none"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with app_of(serve) as app, waker_of(path, app.wake), caddy_before(path, tmp_path) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        peer = Peer(reader, writer)
        peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        first = await peer.until(b"none")
        peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100003\r\n\r\n")
        peer.send(b"x" * 100_000 + b"end")
        second = await peer.until(b"xend")
        peer.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping")
        third = await peer.until(b"PING")
        writer.close()

    assert b"200 OK" in first
    assert b"200 OK" in second
    assert b"101 Switching" in third
    assert app.connections == 3
    assert len(app.woken) == 3


@contextlib.asynccontextmanager
async def caddy_before(path: Path, folder: Path) -> AsyncIterator[int]:
    port = free_port()
    proxy = {"handler": "reverse_proxy", "upstreams": [{"dial": f"unix/{path}"}], "flush_interval": -1}
    server = {"listen": [f"127.0.0.1:{port}"], "routes": [{"handle": [proxy]}], "automatic_https": {"disable": True}}
    config = folder / "caddy.json"
    config.write_text(json.dumps({"admin": {"disabled": True}, "apps": {"http": {"servers": {"one": server}}}}))
    command = [str(find_caddy()), "run", "--config", str(config)]
    with subprocess.Popen(command, env={"HOME": str(folder)}, stderr=subprocess.DEVNULL) as caddy:
        try:
            with socket.socket() as probe:
                await until(lambda: probe.connect_ex(("127.0.0.1", port)) == 0)
            yield port
        finally:
            caddy.kill()
