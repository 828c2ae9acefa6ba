"""HTTP/1.1 for the function gateway: one protocol object per connection, on httptools.

A general server would cost each call more than the whole way to a warm function; this one does what the gateway needs.
Whatever a client sends, it gets an answer in the failure envelope, or its connection is closed in bounded time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools

from moorage.core.http.limits import proxies
from moorage.core.net.host_header import is_host
from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.bodies import LARGE_BYTES, add_piece
from moorage.runtime.edge.connections.clients import UNKNOWN, key_of, named_by_gateway, named_by_proxy
from moorage.runtime.edge.connections.flow import AHEAD, NO_ROOM, UNREAD, Flow

if TYPE_CHECKING:
    from moorage.runtime.edge.connections.listener_connections import Connections

# Returns the answer, or None and answers later, through the connection.
Handler = Callable[["Connection", Request], Answer | None]
# Returns the answer to a request that does not depend on its body, which has not arrived.
EarlyHandler = Callable[[Request], Answer | None]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"  # HTTP/1.0 clients close without it; in 1.1 it goes without saying.
_USUAL_BYTES = 4096
_MOST_USUAL = 1024
_MOST_WAITING = 32  # requests that a client may send ahead of our answers
_MOST_WAITING_BYTES = 256 * 1024
_REQUEST_BYTES = 1024  # that a request takes beyond its text, about
_HEADER_BYTES = 160  # and a header
_MOST_HEADERS = 256
_USUAL_HEADERS = 40  # A request with more is not remembered: it takes many times the memory of its text.
CLIENT_HEADER = b"x-moorage-client"
_NOTED = frozenset((b"content-length", b"x-request-id", b"expect", b"transfer-encoding", CLIENT_HEADER))

# How far the current request of a connection is.
IDLE = 0  # nothing of the next request has come
HEADERS = 1  # its first byte has come
BODY = 2  # its headers are complete
ANSWERING = 3  # a function works on it
CLOSING = 4  # the last answer is written; whatever still comes is thrown away


class Refused(Exception):
    """Raised inside the parser's callbacks to stop it; the connection then answers the failure and closes."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Connection(asyncio.Protocol):
    """One client. The methods named `on_…` are called by the parser, in the order things arrive."""

    def __init__(self, connections: Connections) -> None:
        self.all = self._all = connections
        self._limits = connections.limits
        self._handler = connections.handler
        self._guard = connections.guard
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[Request, int]] = deque()  # sent ahead of our answers, with the memory each takes
        self._waiting_bytes = 0
        self._current: Request | None = None  # a function works on it
        self._is_under_way = False  # a request has begun and is not complete
        self._unfinished_bytes = 0
        self._usual = connections.usual
        self._complete: Request | None = None  # in this piece of data
        self._begun = 0  # requests, in this piece of data
        self._flow = Flow(self, connections.guard)
        self._peer = ""
        self._reset()
        self._phase = IDLE
        self._deadline = self._all.now + self._limits.header_s

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes | bytearray] = []
        self._sent_id: bytes | None = None
        self._client: bytes | None = None
        self._early: Answer | None = None  # where the body does not matter
        self._header_bytes = 0
        self._body_bytes = 0
        self._length = 0
        self._is_chunked = False
        self._has_host = False
        self._expects_continue = False
        self._owes_continue = False
        self._is_past_headers = False
        self._is_skipped = False  # it is answered; the rest of its body is thrown away

    # The client comes and goes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._all.add(self)
        guard = self._guard
        if guard is not None and not self._all.is_behind_gateway:
            peer = transport.get_extra_info("peername") or (UNKNOWN,)
            if guard.trusted and proxies.is_within(peer[0], guard.trusted):
                return  # Everybody comes through these.
            self._peer = key_of(peer[0])
            if not guard.clients.enter(self._peer, self):
                self._answer_unread(answers.NO_ROOM.answer(answers.fresh_id()), lingers=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSING
        self._all.remove(self)
        self._forget_requests()
        self._flow.forget_unread()
        if self._guard is not None:
            self._guard.clients.leave(self._peer, self)

    def _forget_requests(self) -> None:
        """Give back the memory of requests that will not be answered."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._body = []
        self._flow.close()

    @property
    def is_answering(self) -> bool:
        return self._phase == ANSWERING

    def _key(self, headers: list[tuple[bytes, bytes]], client: bytes | None) -> str:
        """Return the address that a request counts for: the peer's, or the one that a trusted peer names."""
        if self._peer:
            return self._peer
        return named_by_gateway(client) if self._all.is_behind_gateway else named_by_proxy(headers)

    # Backpressure.

    def pause_writing(self) -> None:
        # A client that sends requests and takes no answers would fill our memory with them.
        self._flow.pause(UNREAD)
        if self._flow.is_metered and (request := self._current) is not None:
            key = self._key(request.headers, request.client)
            self._flow.count_unread(key, self._all.now + self._limits.body_s)

    def resume_writing(self) -> None:
        self._flow.forget_unread()
        self._flow.resume(UNREAD)

    # Requests.

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE and len(data) <= _USUAL_BYTES and (request := self._usual.get(data)) is not None:
            self._handle(request)
            return
        if phase == CLOSING:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > 2 * self._limits.body_bytes:
                self.abort()
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
        if self._is_under_way or self._waiting or self._flow.has_hold:
            self._settle(len(data))

    def _remember(self, data: bytes) -> None:
        """A request came alone and whole, so it means the same whenever the same bytes come again."""
        if self._complete is not None and len(self._complete.headers) <= _USUAL_HEADERS:
            if len(self._usual) >= _MOST_USUAL:
                self._usual.clear()
            self._usual[data] = self._complete

    def _settle(self, last_bytes: int = 0) -> None:
        """Count what a piece of data left in memory; pause or refuse the client where that is too much."""
        if self._phase == CLOSING:
            return
        is_past_headers = self._is_under_way and self._is_past_headers
        if is_past_headers and self._early is not None:
            self._answer_early(self._early)
            return
        flow = self._flow
        if not flow.is_metered:
            return
        if not self._is_under_way and not self._waiting:
            flow.close()
            return
        if not flow.has_hold:
            flow.open(self._key(self._headers, self._client))
        # A header that is not complete is with the parser; where several requests came in one piece, most of it may be
        # one of the others, which is counted twice then.
        unparsed = 0 if self._is_past_headers else max(self._unfinished_bytes, last_bytes if self._begun > 1 else 0)
        parsed = self._header_bytes + len(self._headers) * _HEADER_BYTES
        size = self._body_size() if is_past_headers else 0
        fits = flow.count(
            loose=self._waiting_bytes + parsed + unparsed,
            body=self._body_bytes,
            size=size,
            is_turn=self._current is None,
        )
        if not fits:
            self._refuse(answers.NO_ROOM)
        elif flow.is_reserved:
            self._let_on()

    def _answer_early(self, answer: Answer) -> None:
        """Answer a request whose body does not matter. The rest of a small one is skipped, any other ends with it."""
        if self._current is not None:
            self._flow.pause(NO_ROOM)  # It is not its turn.
        elif not self._is_skippable():
            self._answer_unread(answer)
        elif not self._is_skipped:
            self._is_skipped = True
            self.transport.write(self._render_unread(answer, b""))

    def _is_skippable(self) -> bool:
        is_small = not self._is_chunked and self._length <= LARGE_BYTES and not self._expects_continue
        stays = self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0"
        return is_small and stays and not self._all.is_draining

    def _body_size(self) -> int:
        """Return how long the body will be, as far as is known; one without a length may be as long as any."""
        if self._is_chunked:
            return self._limits.body_bytes if self._body_bytes > LARGE_BYTES else self._body_bytes
        return self._length

    def go_on(self) -> None:
        """There is room for the whole body."""
        self._deadline = self._all.now + self._limits.body_s
        self._flow.resume(NO_ROOM)
        self._settle()

    def give_up(self) -> None:
        self._refuse(answers.NO_ROOM)

    def _let_on(self) -> None:
        if self._owes_continue:
            self._owes_continue = False
            self.transport.write(_CONTINUE)

    def on_message_begin(self) -> None:
        self._begun += 1
        self._is_under_way = True
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
        if name in _NOTED:
            self._note(name, value)
            if name == CLIENT_HEADER:
                return
        elif name == b"host":
            if self._has_host or not is_host(value):
                raise Refused(answers.MANY_HOSTS if self._has_host else answers.BAD_HOST)
            self._has_host = True
        self._headers.append((name, value))
        if len(self._headers) > _MOST_HEADERS:
            raise Refused(answers.MANY_HEADERS)

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self._length = int(value)
        elif name == b"x-request-id":
            self._sent_id = value
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            self._is_chunked = True
        else:
            self._client = value

    def on_headers_complete(self) -> None:
        self._is_past_headers = True
        if not self._has_host and self._parser.get_http_version() != "1.0":
            raise Refused(answers.NO_HOST)
        if self._length > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        if self._length or self._is_chunked:
            self._expect_body()
        if self._current is None:
            self._phase = BODY
            self._deadline = self._all.now + self._limits.body_s

    def _expect_body(self) -> None:
        if self._all.early is not None:
            request = Request(self._parser.get_method(), self._target, self._headers, b"")
            request.sent_id = self._sent_id
            self._early = self._all.early(request)
        if self._expects_continue and self._early is None and self._parser.get_http_version() != "1.0":
            self._owes_continue = True
            if self._current is None and (self._guard is None or self._length <= LARGE_BYTES):
                self._let_on()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        self._deadline = self._all.now + self._limits.body_s
        if self._early is not None:
            return
        add_piece(self._body, body)

    def on_message_complete(self) -> None:
        if self._is_skipped:
            self._unfinished_bytes = 0
            self._is_under_way = False
            self._reset()
            self._phase = IDLE
            self._deadline = self._all.idle_until
            return
        parser = self._parser
        pieces = self._body
        body = cast(bytes, pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        request = Request(parser.get_method(), self._target, self._headers, body)
        request.client = self._client
        request.sent_id = self._sent_id
        request.upgrades = parser.should_upgrade()
        request.keep_alive = parser.should_keep_alive() and not request.upgrades
        request.is_old = parser.get_http_version() == "1.0"
        request.is_plain = (
            request.keep_alive and not request.is_old and request.sent_id is None and request.method != b"HEAD"
        )
        if request.keep_alive and not self._expects_continue and self._early is None:
            self._complete = request
        taken = self._header_bytes + self._body_bytes
        self._unfinished_bytes = 0
        self._is_under_way = False
        self._reset()
        if self._current is not None:
            taken += len(request.headers) * _HEADER_BYTES + _REQUEST_BYTES
            self._waiting.append((request, taken))
            self._waiting_bytes += taken
            if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes >= _MOST_WAITING_BYTES:
                self._flow.pause(AHEAD)
            return
        self._handle(request)

    # Answers.

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
            self._handle_next()
            return
        if self._is_under_way:
            self._take_turn()
            return
        self._phase = IDLE
        self._deadline = self._all.idle_until

    def _handle_next(self) -> None:
        """Handle the oldest request that was sent ahead."""
        request, taken = self._waiting.popleft()
        self._waiting_bytes -= taken
        if len(self._waiting) <= _MOST_WAITING // 2 and self._waiting_bytes <= _MOST_WAITING_BYTES // 2:
            self._flow.resume(AHEAD)
        self._handle(request)

    def _take_turn(self) -> None:
        """Go on with a request that was sent ahead in part: it is the current one now."""
        self._phase = BODY if self._is_past_headers else HEADERS
        self._deadline = self._all.now + (self._limits.body_s if self._is_past_headers else self._limits.header_s)
        if self._owes_continue and self._length <= LARGE_BYTES:
            self._let_on()
        self._flow.resume(NO_ROOM)
        self._settle()

    def check_deadline(self) -> None:
        """End the connection if what it waits for is overdue."""
        self._flow.check_unread(self._all.now, self._limits.body_s)
        if self._all.now < self._deadline:
            return
        if self._phase in (HEADERS, BODY) and not self.transport.is_closing():
            self._refuse(answers.NO_ROOM if self._flow.waits_for_room else answers.TOO_SLOW)
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
        request = Request(b"GET", self._target, [], b"")
        request.sent_id = self._sent_id or (self._current.sent_id if self._current else None)
        self._answer_unread(failure.answer(request.request_id or answers.fresh_id()))

    def _answer_unread(self, answer: Answer, *, lingers: bool = True) -> None:
        if self._phase == CLOSING:
            return
        if self._is_skipped:
            self.abort()  # It was answered before.
            return
        self.transport.write(self._render_unread(answer, CLOSE))
        self._close(has_unread=lingers)

    def _render_unread(self, answer: Answer, connection: bytes) -> bytes:
        request_id = answer.request_id or answers.fresh_id()
        is_head = self._target != b"" and self._parser.get_method() == b"HEAD"
        return answers.render(
            answer, request_id=request_id, date=self._all.date, connection=connection, is_head=is_head
        )

    def _close(self, *, has_unread: bool) -> None:
        self._phase = CLOSING
        self._deadline = self._all.now + self._limits.linger_s
        self._unfinished_bytes = 0
        self._forget_requests()
        if has_unread:
            # Closing while the client still sends would reset the connection and take the answer with it. So only our
            # side ends here; the client's end, or the deadline, ends the rest.
            self._flow.resume(NO_ROOM | AHEAD)
            self.transport.write_eof()
        else:
            self.transport.close()
