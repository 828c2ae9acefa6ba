"""HTTP/1.1 client codec: requests, responses, and a connection that carries one request at a time.

The client for users' URLs, calls on unix sockets and health probes share this codec. A general client spends three
quarters of a monitor's check on sessions, pools, cookies and streams, which none of them uses.
"""

from __future__ import annotations

import asyncio
import select
import sys
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

MAX_HEAD_BYTES = 64 * 1024
UNLIMITED = sys.maxsize - 1  # zlib accepts at most one more.
NOT_HTTP, NOT_DECODABLE = "did not answer in valid HTTP", "sent a body that cannot be decoded"
_SWITCHING = 101
_FRAMING = (b"content-length", b"transfer-encoding")
_ENCODING = b"content-encoding"
_LENGTHS = frozenset(map(len, (*_FRAMING, _ENCODING)))
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # zlib detects the format by its header.


class ResponseError(Exception):
    """The request was sent, but no complete and valid response was received."""


class BadResponse(ResponseError):
    """The response is not valid HTTP, or its body cannot be decoded."""


class CutOff(ResponseError):
    """The connection was closed before the response was complete."""


def encode_request(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None) -> bytes:
    """Encode a request. The caller has checked that no header contains a line break."""
    head = f"{method} {target} HTTP/1.1\r\n"
    for name, value in headers:
        head += f"{name}: {value}\r\n"
    if body is None and method in ("GET", "HEAD"):
        return f"{head}\r\n".encode()
    body = body or b""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Body:
    """A decoded body, truncated at a limit that also bounds decompression."""

    __slots__ = ("_coding", "_limit", "_packed_bytes", "_unpacker", "data", "has_ended", "is_cut")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._coding: bytes | None = None
        self._unpacker: Any = None
        self._packed_bytes = 0
        self.data = bytearray()
        self.is_cut = False
        self.has_ended = False  # Further bytes do not belong to the body.

    def set_coding(self, coding: bytes) -> None:
        if coding in (b"gzip", b"x-gzip", b"deflate"):
            self._coding = coding

    def add(self, chunk: bytes) -> None:
        self.data += self._unpack(chunk) if self._coding else chunk
        if len(self.data) > self._limit:
            del self.data[self._limit :]
            self.is_cut = self.has_ended = True

    def _unpack(self, chunk: bytes) -> bytes:
        if self._unpacker is None:
            self._unpacker = zlib.decompressobj(self._window(chunk))
        elif self._unpacker.eof:  # zlib would store all further bytes.
            self.has_ended = True
            return b""
        try:
            # One byte above the limit shows that the body is longer.
            data: bytes = self._unpacker.decompress(chunk, self._limit - len(self.data) + 1)
        except zlib.error as error:
            raise BadResponse(NOT_DECODABLE) from error
        self._packed_bytes += len(chunk)
        if self._unpacker.eof:
            self.has_ended = bool(self._unpacker.unused_data)
        elif self._packed_bytes > 2 * self._limit + MAX_HEAD_BYTES:  # for example endless blocks without content
            self.is_cut = self.has_ended = True
        return data

    def _window(self, chunk: bytes) -> int:
        """Detect deflate without a zlib header, as many servers send it."""
        is_bare = self._coding == b"deflate" and chunk and chunk[0] & 0x0F != zlib.DEFLATED
        return -zlib.MAX_WBITS if is_bare else _GZIP_OR_ZLIB

    def check_end(self) -> None:
        """Raise BadResponse if the compressed data is incomplete."""
        if self._unpacker is not None and not self._unpacker.eof and not self.is_cut:
            raise BadResponse(NOT_DECODABLE)


class _Discarded(Body):
    """A body that is read up to a limit, but not stored."""

    __slots__ = ()

    def add(self, chunk: bytes) -> None:
        self._limit -= len(chunk)
        self.is_cut = self.has_ended = self._limit < 0


class Response:
    """Incremental parser of one response; interim responses (1xx) and trailers are skipped.

    The response is complete at its end, or where its body exceeds `max_body_bytes` or has data after its compressed
    content.
    """

    def __init__(self, *, is_head: bool = False, max_body_bytes: int = UNLIMITED, stores_body: bool = True) -> None:
        self.status = 0  # until the head is complete
        self.is_complete = False
        self.can_keep_alive = False
        self.body = (Body if stores_body else _Discarded)(max_body_bytes)
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._is_head = is_head
        self._is_framed = False  # The head defines the end of the body; otherwise it is the end of the connection.
        self._unparsed = 0  # bytes since the start, the end of the head or the last piece of the body
        self._parser: Any = HttpResponseParser(self)

    @cached_property
    def headers(self) -> CIMultiDict[str]:
        """Headers of the final response; bytes that are not UTF-8 are replaced."""
        pairs = self._raw_headers
        return CIMultiDict((name.decode("utf-8", "replace"), value.decode("utf-8", "replace")) for name, value in pairs)

    def feed(self, data: bytes) -> None:
        """Parse received bytes; raises BadResponse."""
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # Only status 101 has this effect; its response ends with its head.
        except HttpParserError as error:
            if not self.is_complete:
                cause = error.__context__  # An exception of a callback below.
                raise cause if isinstance(cause, BadResponse) else BadResponse(NOT_HTTP) from error
        # The parser stores a field without an end, and does not report it: this may be a trailer, too.
        if self._unparsed > MAX_HEAD_BYTES and not self.is_complete:
            raise BadResponse(NOT_HTTP)

    def end(self) -> None:
        """Handle the end of the connection; raises CutOff if the response is incomplete."""
        if self.is_complete:
            return
        if not self.status or self._is_framed:
            raise CutOff("the connection was closed")
        self._complete()

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_complete:  # A second response, to no request.
            self.can_keep_alive = False
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != _SWITCHING:
            return
        if status < 100 or (self._unparsed > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES):
            raise BadResponse(NOT_HTTP)
        self.status, self._unparsed = status, 0
        for name, value in self._raw_headers:
            if len(name) not in _LENGTHS:
                continue
            lower = name.lower()
            if lower in _FRAMING:
                self._is_framed = True
            elif lower == _ENCODING:
                self.body.set_coding(value.strip().lower())
        if self._is_head or status == _SWITCHING:
            self._complete()

    def on_body(self, chunk: bytes) -> None:
        if not self.is_complete:
            self._unparsed = 0
            self.body.add(chunk)
            if self.body.has_ended:
                self._complete()

    def on_message_complete(self) -> None:
        if not self.status:
            self._raw_headers.clear()  # of an interim response
        elif not self.is_complete:
            self.can_keep_alive = bool(self._parser.should_keep_alive())
            self._complete()

    def _complete(self) -> None:
        self.body.check_end()
        self.is_complete = True
        self._parser = None  # The parser refers to this object: without the cycle both are freed at once.

    def _head_bytes(self) -> int:
        return sum(len(name) + len(value) for name, value in self._raw_headers)


class Connection(asyncio.Protocol):
    """Client's end of a connection; `on_lost` is called when it is closed."""

    def __init__(self, on_lost: Callable[[Connection], None] | None = None) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._error: ResponseError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_for_head = False

    def send(self, request: bytes, response: Response) -> None:
        """Send a request, to be answered with `response`; raises CutOff if the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            raise CutOff("the connection was closed")
        self._response = response
        self._transport.write(request)

    async def read(self, *, only_head: bool = False) -> None:
        """Wait for the end of the response, or of its head; raises ResponseError."""
        while (response := self._response) and not (response.is_complete or (only_head and response.status)):
            if self._error is not None:
                raise self._error
            self._waiter, self._waits_for_head = asyncio.get_running_loop().create_future(), only_head
            await self._waiter

    def is_idle(self) -> bool:
        """Check that the server has neither closed nor sent data since a complete response.

        Polls the socket, because the event loop may not have processed such an event yet.
        """
        if self._transport is None or self._transport.is_closing() or self._error is not None:
            return False
        if self._response is not None and not (self._response.is_complete and self._response.can_keep_alive):
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.is_complete or self._error is not None:
            return self.close()  # There is no request that the data could answer.
        try:
            response.feed(data)
        except BadResponse as error:
            self._error = error
        if self._error or response.is_complete or (self._waits_for_head and response.status):
            self._wake()
        return None

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        if self._on_lost is not None:
            self._on_lost(self)
        self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if self._response is None or self._response.is_complete:
            return
        try:
            if error is not None:
                raise CutOff("the connection was closed") from error
            self._response.end()
        except ResponseError as incomplete:
            self._error = self._error or incomplete
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def connect(host: str, port: int) -> Connection:
    """Connect to a trusted address; the caller closes the connection."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection
