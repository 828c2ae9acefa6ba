"""The visitors of the benchmark of apps see what goes wrong: a bar of no failures is worth as much as they are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from bench.apps_load import Traffic
from bench.processes import free_ports

pytestmark = pytest.mark.bench

RATE = 200
Answer = Callable[[int], bytes]  # what is sent for the request of this number, before the connection is closed or kept


def well(body: str = "ok r1") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextmanager
def serving(answer: Answer, *, keeps: bool = True) -> Iterator[tuple[int, list[int]]]:
    """Serve on a thread; yields the port, and a list with one entry for every connection."""
    loop, ready, connections, numbers = asyncio.new_event_loop(), threading.Event(), list[int](), iter(range(10**6))
    (port,) = free_ports(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer(next(numbers)))
                if not keeps or b"Connection: close" in request:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            loop.call_soon(ready.set)
            await over.wait()

    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    ready.wait()
    try:
        yield port, connections
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def visit(port: int, seconds: float = 0.5) -> Traffic:
    with Traffic(port, ["a.localhost", "b.localhost"], RATE) as traffic:
        time.sleep(seconds)
    return traffic


def test_half_of_the_requests_share_a_few_connections() -> None:
    with serving(lambda _: well()) as (port, connections):
        seen = visit(port).seen

    assert seen.failed == 0
    assert seen.answered == seen.requests > 40
    assert seen.requests // 2 < len(connections) < seen.requests


def test_every_answer_that_is_not_the_apps_has_failed() -> None:
    pages = [well(), well("<h1>Starting</h1>"), b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"]

    with serving(lambda number: pages[number % 3]) as (port, _):
        seen = visit(port).seen

    assert seen.requests == seen.answered + seen.failed
    assert abs(seen.failed - 2 * seen.requests / 3) <= 1
    assert {why[:3] for why in seen.failures} == {"200", "502"}


def test_an_answer_that_breaks_off_has_failed() -> None:
    with serving(lambda _: well()[:-1], keeps=False) as (port, _):
        seen = visit(port).seen

    assert seen.failed == seen.requests > 0
    assert [*seen.failures] == ["the connection ended before the answer did"]


def test_a_request_that_finds_nobody_has_failed() -> None:
    seen = visit(free_ports(1)[0], seconds=0.1).seen

    assert seen.failed == seen.requests > 0
    assert all(why.startswith("cannot connect") for why in seen.failures)
