"""HTTP client for processes on this machine, over unix sockets.

A thousand schedules can be due in the same minute, each with a request of its own; the per-connection cost of a general
client would cause most of their delay. This client supports only a request body and a response body, on persistent
connections, one per request in flight.
"""

from __future__ import annotations

import asyncio
import select
from pathlib import Path
from typing import Any, NamedTuple

import httptools

CONNECT_TIMEOUT_S = 2.0


class NotConnected(Exception):
    """The connection failed; nothing was sent."""


class BrokenOff(Exception):
    """The request was sent, but no complete response was received."""


class Reply(NamedTuple):
    status: int
    body: bytes


class LocalHttp:
    """One client per process and socket; used within one event loop."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self._free: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send one request, without retry, and wait for its response without a timeout.

        Raises NotConnected if nothing was sent, and BrokenOff if the request may have been processed.
        """
        connection = self._take_free() or await self._connect()
        try:
            reply = await connection.exchange(method, path, body)
        except BaseException:
            connection.end()
            raise
        if connection.is_usable:
            self._free.append(connection)
        return reply

    async def close(self) -> None:
        for connection in list(self._open):
            connection.end()
        await asyncio.sleep(0)  # The transports close in the next iteration of the event loop.

    def _take_free(self) -> _Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_idle():
                return connection
            connection.end()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_unix_connection(
                    lambda: _Connection(self._forget), str(self.socket_path)
                )
        except (OSError, TimeoutError) as error:
            raise NotConnected(str(error)) from error
        self._open.add(connection)
        return connection

    def _forget(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._free:
            self._free.remove(connection)


class _Connection(asyncio.Protocol):
    """A persistent connection; it carries one request at a time."""

    def __init__(self, on_lost: Any) -> None:
        self._on_lost = on_lost
        self._transport: Any = None
        self._parser: Any = None
        self._body: list[bytes] = []
        self._answer: asyncio.Future[Reply] | None = None
        self.is_usable = False

    async def exchange(self, method: str, path: str, body: bytes) -> Reply:
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body = []
        head = f"{method} {path} HTTP/1.1\r\nhost: local\r\ncontent-type: application/json\r\n"
        self._transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head.encode("ascii"), len(body), body))
        return await self._answer

    def is_idle(self) -> bool:
        """Check that the server has neither closed nor sent data since its response.

        Polls the socket, because the event loop may not have processed such an event yet.
        """
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._transport.is_closing() and not poll.poll(0)

    def end(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            return self.end()  # There is no request that the data could answer.
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(BrokenOff(f"the server sent an invalid HTTP response: {error}"))
            self.end()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_usable = False
        self._on_lost(self)
        self._fail(BrokenOff("the connection was closed"))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # such as 100 Continue
            return
        self.is_usable = self.is_usable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Reply(status, b"".join(self._body)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
