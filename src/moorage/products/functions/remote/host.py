"""Connections to the listener beside one edge on another machine."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from moorage.core.net.http1 import Connection
from moorage.core.net.local_http import KeptHttp, NotConnected
from moorage.products.functions.remote import wire

CONNECT_TIMEOUT_S = 6.0  # a handshake and the answer of the edge, also over a slow network
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0  # between two attempts to reach a host that does not answer
MAX_KEPT = 4
MAX_LOG_BYTES = 64 * 2**20
# A connection that breaks; handshakes that fail are OSErrors.
BROKEN = (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError)

T = TypeVar("T")
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Host(KeptHttp):
    """An edge elsewhere: HTTP to the edge itself, and requests to the process beside it."""

    def __init__(self, address: str, context: Callable[[], ssl.SSLContext], server_name: str) -> None:
        super().__init__()
        self.address = address
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._context = context
        self._server_name = server_name
        self._kept: list[Stream] = []
        self._pause_s = 0.0
        self._retry_at = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the last attempt failed a moment ago."""
        return time.monotonic() < self._retry_at

    async def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Return the line that answers a request; raises NotConnected."""
        return await self._converse(line, timeout_s, _read_line)

    async def read_log(self, org_id: int, function_id: int, reference: str, timeout_s: float) -> bytes | None:
        """Return packed log text; None if this host does not have it. Raises NotConnected."""
        line = b"%b %d %d %b\n" % (wire.LOG, org_id, function_id, reference.encode())
        return await self._converse(line, timeout_s, _read_text)

    async def _converse(self, line: bytes, timeout_s: float, read: Callable[[asyncio.StreamReader], Awaitable[T]]) -> T:
        """Send a request and read its answer. All requests may be repeated, so a kept connection that broke is."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    kept = self._take_kept()
                    reader, writer = kept or await self._connect_streams()
                    try:
                        writer.write(line)
                        answer = await read(reader)
                    except BaseException as error:
                        writer.close()
                        if kept is not None and isinstance(error, BROKEN):
                            continue
                        raise
                    self._keep(reader, writer)
                    return answer
        except BROKEN as error:
            raise NotConnected(str(error)) from error

    def _take_kept(self) -> Stream | None:
        while self._kept:
            reader, writer = self._kept.pop()
            if not reader.at_eof() and not writer.transport.is_closing():
                return reader, writer
            writer.close()
        return None

    async def close(self) -> None:
        while self._kept:
            self._kept.pop()[1].close()
        await super().close()

    def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept.append((reader, writer))
        else:
            writer.close()

    async def _connect_streams(self) -> Stream:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            with self._counted():
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._context(), server_hostname=self._server_name
                )
        wire.detect_loss(writer.transport)
        return reader, writer

    async def _open_connection(self, make: Callable[[], Connection]) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            with self._counted():
                _, opening = await loop.create_connection(
                    lambda: _Opening(make(), loop.create_future()),
                    self._host,
                    self._port,
                    ssl=self._context(),
                    server_hostname=self._server_name,
                )
            # Without an edge the process beside it answers still, so this is no failure of the host.
            return await opening.opened

    def _counted(self) -> _Attempt:
        return _Attempt(self)

    def answered(self) -> None:
        self._pause_s = self._retry_at = 0.0

    def failed(self) -> None:
        self._pause_s = min(max(self._pause_s * 2, FIRST_PAUSE_S), MAX_PAUSE_S)
        self._retry_at = time.monotonic() + self._pause_s


class _Attempt:
    """Notes whether a host was reached."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._host.answered()
        elif issubclass(kind, OSError | asyncio.CancelledError):  # A timeout cancels the attempt.
            self._host.failed()


class _Opening(asyncio.Protocol):
    """Requests the edge, and hands the connection over to the protocol of HTTP once the edge has accepted it."""

    def __init__(self, connection: Connection, opened: asyncio.Future[Connection]) -> None:
        self.opened = opened
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wire.detect_loss(transport)
        self._transport.write(wire.EDGE)
        self.opened.add_done_callback(self._end_cancelled)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received == wire.OK and self._transport is not None and not self.opened.done():
            self._connection.connection_made(self._transport)
            self._transport.set_protocol(self._connection)
            self.opened.set_result(self._connection)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error if isinstance(error, OSError) else ConnectionError("the edge is away"))

    def _end_cancelled(self, opened: asyncio.Future[Connection]) -> None:
        if opened.cancelled() and self._transport is not None:
            self._transport.abort()


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\n")


async def _read_text(reader: asyncio.StreamReader) -> bytes | None:
    size = int(await reader.readuntil(b"\n"))
    if size > MAX_LOG_BYTES:
        raise ValueError("the text is too large")
    return await reader.readexactly(size) if size >= 0 else None
