"""HTTP/1.1 for the function gateway: one protocol object per connection, on httptools.

A general server would cost each call more than the whole way to a warm function; this one does what the gateway needs.
Whatever a client sends, it gets an answer in the failure envelope, or its connection is closed in bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

import httptools

from moorage.edge import answers
from moorage.edge.answers import Answer, Failure, Request

Handler = Callable[[Request], Answer]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_KEEP_ALIVE = b"connection: keep-alive\r\n"  # HTTP/1.0 clients close without it; in 1.1 it goes without saying.


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take up."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 6 * 2**20
    header_s: float = 10  # from the first byte of a request, or the connection, to the end of its headers
    body_s: float = 30  # between two pieces of a body
    idle_s: float = 150  # between two requests; more than the public gateway keeps its connections
    linger_s: float = 5  # for the client to take a last answer


class Phase(Enum):
    """How far the current request of a connection is."""

    IDLE = auto()  # nothing of the next request has come
    HEADERS = auto()  # its first byte has come
    BODY = auto()  # its headers are complete
    CLOSING = auto()  # the last answer is written; whatever still comes is thrown away


class Refused(Exception):
    """Raised inside the parser's callbacks to stop it; the connection then answers the failure and closes."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Connections:
    """Makes the protocol of each new connection, and knows all that are open."""

    def __init__(self, handler: Handler, limits: Limits | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.open: set[Connection] = set()
        self.date = answers.http_date()
        self.is_draining = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __call__(self) -> Connection:
        return Connection(self)

    def add(self, connection: Connection) -> None:
        self.open.add(connection)
        self._is_empty.clear()

    def remove(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._is_empty.set()

    async def keep_watch(self, every_s: float = 1) -> None:
        """End what is over its time, forever. One timer for all is cheaper than one per request."""
        while True:
            await asyncio.sleep(every_s)
            self.date = answers.http_date()
            for connection in tuple(self.open):
                connection.check_deadline()

    async def drain(self, within_s: float = 5) -> None:
        """Let each request that has begun finish, take no other, and cut off what is left after the time."""
        self.is_draining = True
        for connection in tuple(self.open):
            connection.close_if_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_empty.wait()
        for connection in tuple(self.open):
            connection.abort()


class Connection(asyncio.Protocol):
    """One client. The methods named `on_…` are called by the parser, in the order things arrive."""

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._limits = connections.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._out: list[bytes] = []
        self._unfinished_bytes = 0
        self._reset()
        self._enter(Phase.IDLE, self._limits.header_s)

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._sent_id: bytes | None = None
        self._header_bytes = 0
        self._body_bytes = 0
        self._length = 0
        self._is_old = False
        self._has_host = False
        self._expects_continue = False
        self._keep_alive = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)

    def pause_writing(self) -> None:
        # A client that sends requests and takes no answers would fill our memory with them.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.CLOSING:
            return
        self._unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
            self._check_unfinished_headers()
        except Refused as refused:
            self._refuse(refused.failure)
        except httptools.HttpParserCallbackError as error:
            self._refuse(self._failure_of(error))
        except httptools.HttpParserError:
            self._refuse(answers.MALFORMED)
        except httptools.HttpParserUpgrade:
            pass  # It was answered as the plain request it also is, and the connection is closing.
        self._flush()

    def on_message_begin(self) -> None:
        self._reset()
        self._enter(Phase.HEADERS, self._limits.header_s)

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)
        if self._phase is Phase.BODY:
            return  # A trailer: it must not pass for a header that was there when the request was let in.
        name = name.lower()
        self._headers.append((name, value))
        if name == b"host":
            self._has_host = True
        elif name == b"content-length":
            self._length = int(value)
        elif name == b"x-request-id":
            self._sent_id = value
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self._is_old = self._parser.get_http_version() == "1.0"
        if not self._has_host and not self._is_old:
            raise Refused(answers.MALFORMED)
        if self._length > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        if self._expects_continue and not self._is_old:
            self._out.append(_CONTINUE)
        self._keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._enter(Phase.BODY, self._limits.body_s)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        self._enter(Phase.BODY, self._limits.body_s)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        request = Request(
            self._parser.get_method(), self._target, tuple(self._headers), answers.request_id(self._sent_id)
        )
        answer = self._all.handler(request)
        stays = self._keep_alive and not self._all.is_draining
        self._write(answer, request.request_id, stays=stays, is_head=request.method == b"HEAD")
        if stays:
            self._enter(Phase.IDLE, self._limits.idle_s)
        else:
            self._close(has_unread=self._parser.should_upgrade())

    def check_deadline(self) -> None:
        """End the connection if what it waits for is overdue."""
        if self._loop.time() < self._deadline:
            return
        if self._phase in (Phase.HEADERS, Phase.BODY) and not self._transport.is_closing():
            self._refuse(answers.TOO_SLOW)
        else:
            self.abort()

    def close_if_idle(self) -> None:
        if self._phase is Phase.IDLE:
            self._close(has_unread=False)

    def abort(self) -> None:
        self._transport.abort()

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._limits.header_bytes:
            raise Refused(answers.LONG_HEADERS)

    def _check_unfinished_headers(self) -> None:
        # The parser keeps a header to itself until its end has come, so an endless one is only seen by its pieces. A
        # piece that holds the end of one request and the start of the next is not counted: most of it may be the first.
        if self._phase is Phase.HEADERS and self._unfinished_bytes > self._limits.header_bytes:
            raise Refused(answers.LONG_HEADERS)

    def _failure_of(self, error: httptools.HttpParserCallbackError) -> Failure:
        if isinstance(error.__context__, Refused):
            return error.__context__.failure
        context = {"message": "a request could not be answered", "exception": error.__context__ or error}
        self._loop.call_exception_handler(context)
        return answers.INTERNAL

    def _refuse(self, failure: Failure) -> None:
        """Answer a request that is not read to its end, and close."""
        if self._phase is Phase.CLOSING:
            return
        request_id = answers.request_id(self._sent_id)
        is_head = self._target != b"" and self._parser.get_method() == b"HEAD"
        self._write(failure.answer(request_id), request_id, stays=False, is_head=is_head)
        self._close(has_unread=True)

    def _write(self, answer: Answer, request_id: str, *, stays: bool, is_head: bool) -> None:
        connection = (_KEEP_ALIVE if self._is_old else b"") if stays else _CLOSE
        rendered = answers.render(
            answer, request_id=request_id, date=self._all.date, connection=connection, is_head=is_head
        )
        self._out.append(rendered)

    def _flush(self) -> None:
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _close(self, *, has_unread: bool) -> None:
        self._enter(Phase.CLOSING, self._limits.linger_s)
        self._flush()
        if has_unread:
            # Closing while the client still sends would reset the connection and take the answer with it. So only our
            # side ends here; the client's end, or the deadline, ends the rest.
            self._transport.write_eof()
        else:
            self._transport.close()

    def _enter(self, phase: Phase, within_s: float) -> None:
        self._phase = phase
        self._deadline = self._loop.time() + within_s
