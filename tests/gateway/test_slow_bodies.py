"""Request bodies that stall, or come slowly, at the real gateway: before sites, apps and functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.gateway.app_backend import Backend
from tests.gateway.app_support import HOST, session_of, wanted
from tests.gateway.support import make_settings, running_caddy, running_edge

from moorage.gateway.config.bodies import LONG_BODY
from moorage.gateway.routes import Routes
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

TIMEOUT_S = 1.0
PATIENCE_S = 30
STILL_OPEN = b"still open"
FRAMINGS = {
    "short": b"Content-Length: 100\r\n\r\nabc",
    "nothing sent": b"Content-Length: 100\r\n\r\n",
    "expected": b"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
    "long": b"Content-Length: 100000000\r\n\r\nabc",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
}
TARGETS = {
    "app": f"POST /take HTTP/1.1\r\nHost: {HOST}\r\n",
    "app that does not read": f"POST /status/404 HTTP/1.1\r\nHost: {HOST}\r\n",
    "nothing": "POST / HTTP/1.1\r\nHost: nothing.localhost\r\n",
    "function": "POST /api/v1/web/org_1/default/x HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "status page": "GET /status/x HTTP/1.1\r\nHost: 127.0.0.1\r\n",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = make_settings(tmp_path_factory.mktemp("slow") / "data", body_timeout_s=TIMEOUT_S)
    (settings.data / "run").mkdir(parents=True)
    with running_edge(settings), running_caddy(settings):
        yield settings


async def stall(settings: Settings, request: bytes) -> bytes:
    """Send a request that never ends, and return what comes until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except TimeoutError:
        return STILL_OPEN
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.boundary("stranger-to-platform", "The public gateway closes a connection on which a request body stalls.")
async def test_a_connection_on_which_a_body_stalls_is_closed(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))
    names = [(target, framing) for target in TARGETS for framing in FRAMINGS]

    answers = await asyncio.gather(*(stall(settings, TARGETS[name[0]].encode() + FRAMINGS[name[1]]) for name in names))

    finals = [answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n") for answer in answers]
    assert [name for name, answer in zip(names, finals, strict=True) if answer == STILL_OPEN] == []
    assert [name for name, answer in zip(names, finals, strict=True) if answer.count(b"HTTP/1.1 ") != 1] == []
    of_app = {answer[:12] for name, answer in zip(names, finals, strict=True) if name[0] == "app"}
    assert of_app <= {b"HTTP/1.1 408", b"HTTP/1.1 499"}


async def test_what_comes_after_the_timeout_is_no_request(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
    writer.write(TARGETS["app"].encode() + FRAMINGS["long"])
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.readuntil(b"\r\n\r\n")
        before = app.asked
        with contextlib.suppress(ConnectionError):
            writer.write(f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            answer += await reader.read()
    writer.close()

    assert b"Connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert app.asked == before


@pytest.mark.parametrize("size", [0, 3, LONG_BODY - 1, LONG_BODY])
async def test_a_body_that_waits_for_100_continue_arrives_whole(
    settings: Settings, gateway: Routes, app: Backend, size: int
) -> None:
    await gateway.apply(wanted(app.address))

    async with session_of(settings) as session, session.post("/take", data=b"x" * size, expect100=True) as answer:
        assert (await answer.json())["size"] == size


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_long_body_that_goes_on_may_take_longer_than_the_timeout(
    settings: Settings, gateway: Routes, app: Backend, is_chunked: bool
) -> None:
    await gateway.apply(wanted(app.address))
    piece = b"x" * (LONG_BODY // 5)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield piece
            await asyncio.sleep(TIMEOUT_S / 2)

    headers = {} if is_chunked else {"Content-Length": str(5 * len(piece))}
    async with session_of(settings) as session, session.post("/take", data=pieces(), headers=headers) as answer:
        assert (await answer.json())["size"] == 5 * len(piece)


async def test_streams_and_websockets_may_be_silent_for_longer_than_the_timeout(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    await gateway.apply(wanted(app.address))

    async with (
        session_of(settings) as session,
        session.get("/stream") as stream,
        session.post("/stream", data=b"abc") as answer,
        session.ws_connect("/echo") as socket,
    ):
        first = [await each.content.readline() for each in (stream, answer)]
        await asyncio.sleep(2 * TIMEOUT_S)
        app.go_on.set()
        await socket.send_str("hi")
        echoed = await socket.receive_str()
        rest = [await each.content.read() for each in (stream, answer)]

    assert (first, rest) == ([b"data: one\n"] * 2, [b"\ndata: two\n\n"] * 2)
    assert echoed == "one: hi"
