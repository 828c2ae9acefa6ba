"""HTTP probes: the request, the handling of responses, and measurements of a switch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from tests.ports import free_port

from moorage.products.apps import probing
from moorage.products.apps.probing import SwapProber, check, check_through, target_of
from moorage.runtime.engines.ports import Address

pytestmark = pytest.mark.anyio

HOST = "harbor.example.com"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SILENCE = b""


@dataclass
class Speaker:
    """A server with a fixed response to every request on every connection."""

    says: Callable[[int], bytes | None]  # number of the request -> what to say; None hangs up
    port: int = 0
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    most_at_once: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("ascii"))
                self.most_at_once = max(self.most_at_once, len(self._open))
                said = self.says(len(self.heads))
                if said is None:
                    break
                writer.write(said)
                if "Connection: close" in self.heads[-1] and said:
                    break
        self._open.discard(writer)
        writer.close()


@contextlib.asynccontextmanager
async def speaking(says: bytes | Callable[[int], bytes | None]) -> AsyncIterator[Speaker]:
    speaker = Speaker(says if callable(says) else lambda _: says)
    server = await asyncio.start_server(speaker.serve, "127.0.0.1", 0)
    speaker.port = server.sockets[0].getsockname()[1]
    try:
        yield speaker
    finally:
        server.close()


def answer(status: int, body: bytes = b"ok") -> bytes:
    return b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize("status", [200, 204, 302, 399])
async def test_an_app_that_answers_two_or_three_hundred_is_well(status: int) -> None:
    async with speaking(answer(status, b"" if status == 204 else b"ok")) as app:
        problem = await check(Address(app.port), "/health", HOST)

    assert problem is None
    assert app.heads[0].startswith("GET /health HTTP/1.1\r\n")
    assert f"\r\nHost: {HOST}\r\n" in app.heads[0]
    assert "\r\nUser-Agent: moorage-health/1\r\n" in app.heads[0]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (answer(500), "GET /health answered 500"),
        (answer(404), "GET /health answered 404"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(503), "GET /health answered 503"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "GET /health answered 101"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "GET /health got an answer that is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "GET /health got an answer that is not valid HTTP"),
        (b"HTTP/1.1 200", "GET /health got no answer: the connection was closed"),
    ],
)
async def test_what_an_app_says_instead_is_told_in_a_sentence(said: bytes, problem: str) -> None:
    async with speaking(said) as app:
        assert await check(Address(app.port), "/health", HOST) == problem


async def test_an_app_that_hangs_up_does_not_listen_or_stays_silent_is_told_apart() -> None:
    async with speaking(lambda _: None) as rude, speaking(SILENCE) as silent:
        hung_up = await check(Address(rude.port), "/", HOST)
        nothing = await check(Address(silent.port), "/", HOST, timeout_s=0.1)
    refused = await check(Address(free_port()), "/", HOST)

    assert hung_up == "GET / got no answer: the connection was closed"
    assert nothing == "no answer within 0.1 s"
    assert refused is not None
    assert refused.startswith("nothing listens on PORT")


async def test_an_answer_that_never_ends_is_an_answer() -> None:
    async with speaking(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n") as app:
        assert await check(Address(app.port), "/events", HOST) is None


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/"),
        ("health", "/health"),
        ("/a b\r\nX-Evil: 1", "/a%20b%0D%0AX-Evil:%201"),
        ("/søk?q=å&x=%20", "/s%C3%B8k?q=%C3%A5&x=%20"),
        ("/\x00\x7f\t#part", "/%00%7F%09%23part"),
        ("/\ud800", "/%ED%A0%80"),
        ("http://elsewhere/", "/http://elsewhere/"),
    ],
)
async def test_a_path_cannot_leave_its_place_in_the_request_line(path: str, target: str) -> None:
    async with speaking(OK) as app:
        problem = await check(Address(app.port), path, HOST)

    assert problem is None
    assert target_of(path) == target
    assert app.heads[0].split("\r\n")[0] == f"GET {target} HTTP/1.1"


async def test_the_gateway_is_asked_for_the_host() -> None:
    async with speaking(lambda number: answer(200 if number == 1 else 502)) as gateway:
        first = await check_through("127.0.0.1", gateway.port, HOST, "/up")
        second = await check_through("127.0.0.1", gateway.port, HOST, "/up")
    third = await check_through("127.0.0.1", free_port(), HOST, "/up")

    assert [first, second, third] == [None, "GET /up answered 502", "the gateway refuses connections"]
    assert f"\r\nHost: {HOST}\r\n" in gateway.heads[0]


async def until(count: Callable[[], int], least: int) -> None:
    async with asyncio.timeout(20):
        while count() < least:
            await asyncio.sleep(0.005)


async def test_a_swap_without_a_failure_is_measured_on_fresh_connections_and_on_a_kept_one() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with speaking(chunked) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: len(gateway.heads), 20)

    kept = [head for head in gateway.heads if "Connection: keep-alive" in head]
    measured = prober.measured()
    assert measured.requests == len(gateway.heads)
    assert measured.failed == 0
    assert measured.longest_gap_ms >= 0
    assert len(kept) >= 5
    assert gateway.connections == len(gateway.heads) - len(kept) + 1
    assert gateway.most_at_once <= 2


async def test_what_fails_in_a_swap_is_counted_and_the_gap_is_as_long_as_it_took() -> None:
    pause = asyncio.Event()

    def says(number: int) -> bytes | None:
        if pause.is_set():
            return (answer(502), answer(503), answer(504), None, answer(404))[number % 5]
        return OK

    async with speaking(says) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: prober.measured().requests, 4)
            pause.set()
            failed_from = len(gateway.heads)
            for _ in range(20):  # Pauses of the machine are left out.
                await asyncio.sleep(0.01)
            await until(lambda: prober.measured().failed, 10)
            failed_until = len(gateway.heads)
            pause.clear()
            await until(lambda: len(gateway.heads), failed_until + 6)

    measured = prober.measured()
    # A keep-alive connection that is closed without a response is retried once, on another one.
    assert measured.requests <= len(gateway.heads)
    assert 10 <= measured.failed <= failed_until - failed_from + 2
    assert measured.longest_gap_ms >= 90


async def test_a_kept_connection_that_is_closed_before_an_answer_is_no_failure() -> None:
    def says(number: int) -> bytes | None:
        kept = sum("keep-alive" in head for head in gateway.heads)
        return None if "keep-alive" in gateway.heads[-1] and kept % 6 == 0 else OK

    async with speaking(says) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: prober.measured().requests, 40)

    assert len(gateway.heads) > prober.measured().requests  # Some were asked again.
    assert prober.measured().failed == 0


async def test_an_error_that_the_app_gave_before_is_its_own() -> None:
    async with speaking(answer(404)) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: len(gateway.heads), 6)

    assert prober.measured().failed == 0
    assert prober.measured().requests >= 6


async def test_an_outage_that_does_not_end_counts_until_the_end() -> None:
    async with speaking(lambda number: OK if number <= 4 else None) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: len(gateway.heads), 5)
            for _ in range(20):  # Pauses of the machine are left out.
                await asyncio.sleep(0.01)

    assert prober.measured().failed > 0
    assert prober.measured().longest_gap_ms >= 90


async def test_an_answer_that_breaks_off_is_a_failure() -> None:
    cut = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nok"
    async with speaking(cut) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=30.0) as prober:
            await until(lambda: prober.measured().requests, 1)

    assert prober.measured() == (1, 1, 0)


async def test_a_kept_connection_that_the_server_closed_in_between_is_no_failure() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with speaking(closing) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            await until(lambda: len(gateway.heads), 10)

    assert prober.measured().failed == 0
    assert gateway.connections == len(gateway.heads)


async def test_a_pause_of_the_prober_itself_is_neither_a_failure_nor_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "RESPONSE_TIMEOUT_S", 0.4)

    async with speaking(OK) as gateway:
        async with SwapProber("127.0.0.1", gateway.port, HOST, "/", every_s=0.002) as prober:
            for _ in range(3):
                await asyncio.sleep(0.02)
                time.sleep(0.6)
            await asyncio.sleep(0.05)

    measured = prober.measured()
    assert measured.failed == 0
    assert measured.longest_gap_ms < 600
