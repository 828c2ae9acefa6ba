"""One HTTP/1.1 request and response on their own connection.

A general client spends three quarters of a check's time on sessions, pools, cookies and streams, which checks do not
use.

    BadAnswer    the response is not HTTP, or its body cannot be decoded; the message says which
    CutOff       the server closed the connection before the response was complete
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

MAX_HEAD_BYTES = 64 * 1024
NOT_HTTP, NOT_DECODABLE = "did not answer in valid HTTP", "sent a body that cannot be decoded"
_SWITCHING = 101
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # zlib detects the format by its header.


class BadAnswer(Exception):
    """The response is not valid HTTP, or its body cannot be decoded."""


class CutOff(Exception):
    """The connection was closed before the response was complete."""


class Body:
    """A decoded body, truncated at a limit that also bounds decompression."""

    def __init__(self, limit: int, coding: str) -> None:
        self._limit = limit
        self._coding = coding if coding in ("gzip", "x-gzip", "deflate") else ""
        self._unpacker: Any = None
        self.data = bytearray()
        self.is_cut = False

    def add(self, chunk: bytes) -> None:
        data = self._unpack(chunk) if self._coding else chunk
        self.data += data
        if len(self.data) > self._limit:
            del self.data[self._limit :]
            self.is_cut = True

    def _unpack(self, chunk: bytes) -> bytes:
        if self._unpacker is None:
            self._unpacker = zlib.decompressobj(self._window(chunk))
        try:
            # One byte above the limit shows that the body is longer.
            data: bytes = self._unpacker.decompress(chunk, self._limit - len(self.data) + 1)
        except zlib.error as error:
            raise BadAnswer(NOT_DECODABLE) from error
        return data

    def _window(self, chunk: bytes) -> int:
        """Detect deflate without a zlib header, as many servers send it."""
        is_bare = self._coding == "deflate" and chunk and chunk[0] & 0x0F != zlib.DEFLATED
        return -zlib.MAX_WBITS if is_bare else _GZIP_OR_ZLIB

    def check_end(self) -> None:
        """Raise BadAnswer if the compressed data is incomplete."""
        if self._unpacker is not None and not self._unpacker.eof and not self.is_cut:
            raise BadAnswer(NOT_DECODABLE)


class Exchange(asyncio.Protocol):
    """Sends a request when connected; `answered` is done at the end or failure."""

    def __init__(self, request: bytes, *, is_head: bool, max_body_bytes: int) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.body: Body | None = None
        self.transport: asyncio.Transport | None = None
        self._request = request
        self._is_head = is_head
        self._max_body_bytes = max_body_bytes
        self._parser = HttpResponseParser(self)
        self._head_bytes = self._unparsed = 0
        self._ends_with_connection = False

    @property
    def has_begun(self) -> bool:
        """Whether the head of the response was received."""
        return self.body is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        if self.body is None:
            self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._end()
        except HttpParserError:
            self._end(BadAnswer(NOT_HTTP))
        if self.body is None and self._unparsed > MAX_HEAD_BYTES:
            self._end(BadAnswer(NOT_HTTP))

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._ends_with_connection and error is None:
            self._end()
        else:
            self._end(CutOff())

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        # Bytes that are not UTF-8 are replaced.
        self.headers.add(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._head_bytes > MAX_HEAD_BYTES:
            self._end(BadAnswer(NOT_HTTP))
        if 100 <= status < 200 and status != _SWITCHING:
            return  # The final response follows.
        self.status = status
        self.body = Body(self._max_body_bytes, self.headers.get("Content-Encoding", "").strip().lower())
        has_end = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        self._ends_with_connection = not has_end
        if self._is_head or status == _SWITCHING:
            self._end()

    def on_body(self, chunk: bytes) -> None:
        if self.body is None or self.answered.done():
            return
        try:
            self.body.add(chunk)
        except BadAnswer as error:
            self._end(error)
        if self.body.is_cut:
            self._end()

    def on_message_complete(self) -> None:
        if self.body is None:
            self.headers = CIMultiDict()  # These belonged to an interim response (1xx).
        else:
            self._end()

    def _end(self, error: Exception | None = None) -> None:
        if self.answered.done():
            return
        if error is None and self.body is not None:
            try:
                self.body.check_end()
            except BadAnswer as bad:
                error = bad
        if error is None:
            self.answered.set_result(None)
        else:
            self.answered.set_exception(error)


def write_request(
    method: str, target: str, host: str, headers: CIMultiDict[str], body: bytes | None, user_agent: str
) -> bytes:
    """Encode a request. The caller has checked that no header contains a line break."""
    lines = [f"{method} {target} HTTP/1.1"]
    if "Host" not in headers:
        lines.append(f"Host: {host}")
    if "User-Agent" not in headers:
        lines.append(f"User-Agent: {user_agent}")
    if "Accept" not in headers:
        lines.append("Accept: */*")
    if "Accept-Encoding" not in headers:
        lines.append("Accept-Encoding: gzip, deflate")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None and "Content-Type" not in headers:
        lines.append("Content-Type: application/octet-stream")
    if body is not None or method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body or b'')}")
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode() + (body or b"")
