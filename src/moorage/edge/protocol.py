"""HTTP/1.1 for the function gateway: one protocol object per connection, on httptools.

A general server would cost each call more than the whole way to a warm function; this one does what the gateway needs.
Whatever a client sends, it gets an answer in the failure envelope, or its connection is closed in bounded time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import httptools

from moorage.edge import answers
from moorage.edge.answers import Answer, Failure, Request

# Returns the answer, or None and answers later, through the connection.
Handler = Callable[["Connection", Request], Answer | None]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"  # HTTP/1.0 clients close without it; in 1.1 it goes without saying.
_USUAL_BYTES = 4096
_MOST_USUAL = 1024
_FORGET_S = 60
_MOST_WAITING = 32  # requests that a client may send ahead of our answers
_NOTED = frozenset((b"content-length", b"x-request-id", b"expect"))

# How far the current request of a connection is.
IDLE = 0  # nothing of the next request has come
HEADERS = 1  # its first byte has come
BODY = 2  # its headers are complete
ANSWERING = 3  # a function works on it
CLOSING = 4  # the last answer is written; whatever still comes is thrown away


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take up."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 6 * 2**20
    header_s: float = 10  # from the first byte of a request, or the connection, to the end of its headers
    body_s: float = 30  # between two pieces of a body
    idle_s: float = 150  # between two requests; more than the public gateway keeps its connections
    linger_s: float = 5  # for the client to take a last answer
    answer_s: float = 86_400  # a call has a deadline of its own


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
        self.usual: dict[bytes, Request] = {}  # requests as they came, and as understood: clients repeat themselves
        self._look()
        self.is_draining = False
        self._forget_at = self.now + _FORGET_S
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __call__(self) -> Connection:
        return Connection(self)

    def _look(self) -> None:
        """Note what time it is: deadlines and dates are seconds, not moments."""
        self.date = answers.http_date()
        self.plain_end = b"\r\ndate: %b\r\n\r\n" % self.date
        self.now = asyncio.get_running_loop().time()
        self.answered_by = self.now + self.limits.answer_s
        self.idle_until = self.now + self.limits.idle_s

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
            self._look()
            if self.now > self._forget_at:
                self.usual.clear()  # They hold what clients sent, and functions that may be gone.
                self._forget_at = self.now + _FORGET_S
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
        self.all = self._all = connections
        self._limits = connections.limits
        self._handler = connections.handler
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()  # sent ahead of our answers
        self._current: Request | None = None  # a function works on it
        self._unfinished_bytes = 0
        self._usual = connections.usual
        self._complete: Request | None = None  # in this piece of data
        self._begun = 0  # requests, in this piece of data
        self._reset()
        self._phase = IDLE
        self._deadline = self._all.now + self._limits.header_s

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._sent_id: bytes | None = None
        self._header_bytes = 0
        self._body_bytes = 0
        self._length = 0
        self._has_host = False
        self._expects_continue = False
        self._is_past_headers = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSING
        self._all.remove(self)

    def pause_writing(self) -> None:
        # A client that sends requests and takes no answers would fill our memory with them.
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE and len(data) <= _USUAL_BYTES and (request := self._usual.get(data)) is not None:
            self._handle(request)
            return
        if phase == CLOSING:
            return
        self._unfinished_bytes += len(data)
        self._complete = None
        self._begun = 0
        try:
            self._parser.feed_data(data)
            if self._phase == HEADERS:
                self._check_unfinished_headers()
            elif phase == IDLE and self._begun == 1 and len(data) <= _USUAL_BYTES:
                self._remember(data)
        except Refused as refused:
            self._refuse(refused.failure)
        except httptools.HttpParserCallbackError as error:
            self._refuse(self._failure_of(error))
        except httptools.HttpParserError:
            self._refuse(answers.MALFORMED)
        except httptools.HttpParserUpgrade:
            pass  # It was answered as the plain request it also is, and the connection is closing.

    def _remember(self, data: bytes) -> None:
        """A request came alone and whole, so it means the same whenever the same bytes come again."""
        if self._complete is not None:
            if len(self._usual) >= _MOST_USUAL:
                self._usual.clear()
            self._usual[data] = self._complete

    def on_message_begin(self) -> None:
        self._begun += 1
        if self._current is None:
            self._phase = HEADERS
            self._deadline = self._all.now + self._limits.header_s

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        if self._header_bytes > self._limits.header_bytes:
            raise Refused(answers.LONG_HEADERS)
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._limits.header_bytes:
            raise Refused(answers.LONG_HEADERS)
        if self._is_past_headers:
            return  # A trailer: it must not pass for a header that was there when the request was let in.
        name = name.lower()
        self._headers.append((name, value))
        if name == b"host":
            self._has_host = True
        elif name in _NOTED:
            self._note(name, value)

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self._length = int(value)
        elif name == b"x-request-id":
            self._sent_id = value
        else:
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self._is_past_headers = True
        if not self._has_host and self._parser.get_http_version() != "1.0":
            raise Refused(answers.MALFORMED)
        if self._length > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        if self._expects_continue and self._parser.get_http_version() != "1.0" and self._current is None:
            self.transport.write(_CONTINUE)
        if self._current is None:
            self._phase = BODY
            self._deadline = self._all.now + self._limits.body_s

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        self._body.append(body)
        self._deadline = self._all.now + self._limits.body_s

    def on_message_complete(self) -> None:
        parser = self._parser
        request = Request(parser.get_method(), self._target, self._headers, b"".join(self._body))
        request.sent_id = self._sent_id
        request.upgrades = parser.should_upgrade()
        request.keep_alive = parser.should_keep_alive() and not request.upgrades
        request.is_old = parser.get_http_version() == "1.0"
        request.is_plain = (
            request.keep_alive and not request.is_old and request.sent_id is None and request.method != b"HEAD"
        )
        if request.keep_alive and not self._expects_continue:
            self._complete = request
        self._unfinished_bytes = 0
        self._reset()
        if self._current is not None:
            self._waiting.append(request)
            if len(self._waiting) >= _MOST_WAITING:
                self.transport.pause_reading()
            return
        self._handle(request)

    def _handle(self, request: Request) -> None:
        self._current = request
        self._phase = ANSWERING
        self._deadline = self._all.answered_by
        answer = self._handler(self, request)
        if answer is not None:
            self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """Write the answer to the current request; the next one that waits comes to its turn."""
        request = self._current
        if request is None or self._phase == CLOSING:
            return
        request_id = request.request_id or answer.request_id or answers.fresh_id()
        is_head = request.method == b"HEAD"
        line = self.connection_line(request)
        self.finish(
            answers.render(answer, request_id=request_id, date=self._all.date, connection=line, is_head=is_head)
        )

    def connection_line(self, request: Request) -> bytes:
        if not request.keep_alive or self._all.is_draining:
            return CLOSE
        return KEEP_ALIVE if request.is_old else b""

    def finish(self, rendered: bytes) -> None:
        """Write what answers the current request, already as bytes."""
        request = self._current
        if request is None or self._phase == CLOSING:
            return
        self.transport.write(rendered)
        self._current = None
        if not request.keep_alive or self._all.is_draining:
            self._close(has_unread=request.upgrades)
            return
        if self._waiting:
            if len(self._waiting) == _MOST_WAITING // 2:
                self.transport.resume_reading()
            self._handle(self._waiting.popleft())
            return
        self._phase = IDLE
        self._deadline = self._all.idle_until

    def check_deadline(self) -> None:
        """End the connection if what it waits for is overdue."""
        if self._all.now < self._deadline:
            return
        if self._phase in (HEADERS, BODY) and not self.transport.is_closing():
            self._refuse(answers.TOO_SLOW)
        else:
            self.abort()

    def close_if_idle(self) -> None:
        if self._phase == IDLE:
            self._close(has_unread=False)

    def abort(self) -> None:
        self.transport.abort()

    def _check_unfinished_headers(self) -> None:
        # The parser keeps a header to itself until its end has come, so an endless one is only seen by its pieces. A
        # piece that holds the end of one request and the start of the next is not counted: most of it may be the first.
        if self._unfinished_bytes > self._limits.header_bytes:
            raise Refused(answers.LONG_HEADERS)

    def _failure_of(self, error: httptools.HttpParserCallbackError) -> Failure:
        if isinstance(error.__context__, Refused):
            return error.__context__.failure
        context = {"message": "a request could not be answered", "exception": error.__context__ or error}
        asyncio.get_running_loop().call_exception_handler(context)
        return answers.INTERNAL

    def _refuse(self, failure: Failure) -> None:
        """Answer a request that is not read to its end, and close."""
        if self._phase == CLOSING:
            return
        request = Request(b"GET", self._target, [], b"")
        request.sent_id = self._sent_id or (self._current.sent_id if self._current else None)
        request_id = request.request_id or answers.fresh_id()
        is_head = self._target != b"" and self._parser.get_method() == b"HEAD"
        rendered = answers.render(
            failure.answer(request_id), request_id=request_id, date=self._all.date, connection=CLOSE, is_head=is_head
        )
        self.transport.write(rendered)
        self._close(has_unread=True)

    def _close(self, *, has_unread: bool) -> None:
        self._phase = CLOSING
        self._deadline = self._all.now + self._limits.linger_s
        if has_unread:
            # Closing while the client still sends would reset the connection and take the answer with it. So only our
            # side ends here; the client's end, or the deadline, ends the rest.
            self.transport.write_eof()
        else:
            self.transport.close()
