"""A small load generator: keep-alive HTTP/1.1 on raw sockets.

It does as little as it can for each request, because a client that is busier than the server measures itself. It reads
only answers with a Content-Length, which is all that the measured servers send.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CONNECT_S = 10.0
# Extra time for a load: a server that hangs must not hang the benchmark.
GRACE_S = 30.0
MakeRequest = Callable[[int, int], bytes]  # (client, how many it has sent before)


def get(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def post(path: str, token: str, body: Any, *, key: str | None = None) -> bytes:
    raw = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(raw)}",
    ]
    if key is not None:
        lines.append(f"Idempotency-Key: {key}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


class BadAnswer(Exception):
    """The server did not answer 200, so the measurement is invalid."""


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes

    def data(self) -> Any:
        return json.loads(self.body)["data"]


def split_reply(buffer: bytes) -> tuple[Reply, int] | None:
    """Return the first whole answer in a buffer and where it ends, or None while some of it is missing."""
    head = buffer.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = buffer.find(b"content-length: ", 0, head)
    if at < 0:
        at = buffer.find(b"Content-Length: ", 0, head)
    if at < 0:
        raise BadAnswer(f"no content-length in {buffer[:head]!r}")
    end = head + 4 + int(buffer[at + 16 : buffer.find(b"\r", at)])
    if len(buffer) < end:
        return None
    return Reply(int(buffer[9:12]), buffer[head + 4 : end]), end


@dataclass
class Load:
    """Results of a load, filled while it runs."""

    make: MakeRequest
    ends_at: float
    most: int
    answered: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.answered / self.seconds

    def wants_more(self) -> bool:
        return self.answered < self.most and time.perf_counter() < self.ends_at


class _Client(asyncio.Protocol):
    """One connection that sends its next request as soon as the answer to the last one is whole."""

    def __init__(self, number: int, load: Load) -> None:
        self.number = number
        self.load = load
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = 0
        self._sent_at = 0.0
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def next(self) -> None:
        request = self.load.make(self.number, self._sent)
        self._sent += 1
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            found = split_reply(self._buffer)
        except BadAnswer as error:
            self._end(error)
            return
        if found is None:
            return
        reply, end = found
        self._buffer = self._buffer[end:]
        self.load.latencies.append(time.perf_counter() - self._sent_at)
        if reply.status != 200:
            self._end(BadAnswer(f"{reply.status}: {reply.body[:300]!r}"))
            return
        self.load.answered += 1
        if self.load.wants_more():
            self.next()
        else:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
        self._transport.close()


async def drive(port: int, make: MakeRequest, *, clients: int, seconds: float, most: int) -> Load:
    """Keep `clients` connections busy for `seconds`, or until `most` answers came; raises on any answer but 200."""
    load = Load(make, 0.0, most)
    loop = asyncio.get_running_loop()
    connections: list[_Client] = []
    async with asyncio.timeout(CONNECT_S):
        for number in range(clients):
            _, client = await loop.create_connection(lambda: _Client(number, load), "127.0.0.1", port)  # noqa: B023
            connections.append(client)
    started = time.perf_counter()
    load.ends_at = started + seconds
    for client in connections:
        client.next()
    async with asyncio.timeout(seconds + GRACE_S):
        await asyncio.gather(*(client.done for client in connections))
    load.seconds = time.perf_counter() - started
    return load


async def ask(port: int, request: bytes, *, timeout_s: float) -> Reply:
    """Send one request on a connection of its own; raises OSError or TimeoutError where no whole answer comes."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            buffer = b""
            while (found := split_reply(buffer)) is None:
                chunk = await reader.read(65536)
                if not chunk:
                    raise ConnectionResetError("the connection ended before the answer did")
                buffer += chunk
            return found[0]
        finally:
            writer.close()
