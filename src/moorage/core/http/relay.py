"""Relays requests to the API of the machine that has the requested data.

Logs, volumes and repositories are on one machine. A request that arrives at another one is passed on as it is, with
the credential of its client, and its answer is returned as it arrives. The other machine authorizes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from httptools import HttpParserError, HttpResponseParser

from moorage.core.http.answer import Stream
from moorage.core.http.request import Request
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict

RELAYED = b"x-moorage-relayed"  # A relayed request is never relayed again.
READ_BYTES = 2**16
CONNECT_TIMEOUT_S = 10.0
HEAD_TIMEOUT_S = 300.0
_PASSED_ON = (
    *(b"authorization", b"content-type", b"content-encoding", b"accept", b"user-agent", b"last-event-id"),
    *(b"x-organization-id", b"x-request-id", b"git-protocol", b"x-moorage-deploy"),
)
_RETURNED = (b"content-type", b"www-authenticate", b"cache-control")

# Returns `host:port` on this machine at which the API of another machine is reached.
ReachMachine = Callable[[int], Awaitable[str]]


class NotReached(Conflict):
    """The machine that has the data does not answer."""

    is_lasting = False

    def __init__(self) -> None:
        super().__init__("The machine that has this does not answer; try again in a moment")


@dataclass(frozen=True)
class Relay:
    """Passes requests on to other machines."""

    reach: ReachMachine

    async def send(
        self, request: Request, machine_id: int, *, body: bytes | None = None, most_bytes: int = 0
    ) -> Stream:
        """Return the answer of another machine; raises NotReached.

        The body is `body` if it was read already, else it is passed on as it arrives, up to `most_bytes`.
        """
        if request.header(RELAYED) is not None:
            raise NotReached
        host, _, port = (await self.reach(machine_id)).rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError):
            raise NotReached from None
        response = _Response()
        try:
            await _send(request, writer, body, most_bytes)
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                while not response.has_head:
                    response.feed(await reader.read(READ_BYTES))
        except (OSError, TimeoutError, HttpParserError, EOFError):
            writer.close()
            raise NotReached from None
        except BaseException:
            writer.close()
            raise
        return Stream(_body(response, reader, writer), response.headers, response.status)


async def _send(request: Request, writer: asyncio.StreamWriter, body: bytes | None, most_bytes: int) -> None:
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    lines = [f"{request.method} {request.path}{query} HTTP/1.1", "Host: machine", "Connection: close"]
    lines.append(f"{RELAYED.decode()}: 1")
    lines += [f"{name.decode()}: {value}" for name in _PASSED_ON if (value := request.header(name)) is not None]
    has_body = request.method not in ("GET", "HEAD")
    if has_body:
        lines.append(f"Content-Length: {len(body)}" if body is not None else "Transfer-Encoding: chunked")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if body is not None:
        writer.write(body)
    elif has_body:
        async for chunk in request.chunks(most_bytes):
            if chunk:
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _body(
    response: _Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    try:
        while True:
            for chunk in response.take():
                yield chunk
            if response.is_complete:
                return
            response.feed(await reader.read(READ_BYTES))
    finally:
        writer.close()


class _Response:
    """Parses a response while it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.is_complete = False
        self._chunks: list[bytes] = []
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes; raises HttpParserError, and EOFError where the connection ended early."""
        if not data:
            raise EOFError("the machine closed the connection")
        self._parser.feed_data(data)

    def take(self) -> list[bytes]:
        chunks, self._chunks = self._chunks, []
        return chunks

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in _RETURNED:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.has_head = True

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self.is_complete = True
