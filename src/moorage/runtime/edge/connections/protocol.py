"""HTTP/1.1 server of the edge: one protocol object per connection, on httptools.

Invalid requests get an answer in the error envelope, or their connection is closed in bounded time. Decision 38 has the
reasons for a protocol of our own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from moorage.core.net import proxies
from moorage.core.net.host_header import is_host
from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.bodies import LARGE_BYTES, add_piece
from moorage.runtime.edge.connections.clients import UNKNOWN, key_from_gateway, key_from_proxy, key_of
from moorage.runtime.edge.connections.flow import AHEAD, NO_ROOM, UNREAD, Flow
from moorage.runtime.edge.connections.owner import ConnectionOwner
from moorage.runtime.edge.connections.unparsed import Unparsed

# Returns the answer, or None to answer later through the connection.
Handler = Callable[["Connection", Request], Answer | None]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"  # required by HTTP/1.0 clients, the default in HTTP/1.1
_MAX_CACHED_BYTES = 4096
_MAX_CACHED_REQUESTS = 1024
_MAX_PIPELINED = 32  # requests
_MAX_PIPELINED_BYTES = 256 * 1024
_REQUEST_BYTES = 1024  # approximate memory of a request besides its text
_HEADER_BYTES = 160  # the same of a header
_MAX_HEADERS = 256
_MAX_CACHED_HEADERS = 40  # A request with more takes many times the memory of its text and is not cached.
CLIENT_HEADER = b"x-moorage-client"
_SPECIAL_HEADERS = frozenset((b"content-length", b"x-request-id", b"expect", b"transfer-encoding", CLIENT_HEADER))

# Phases of a connection.
IDLE = 0  # no byte of the next request has arrived
HEADERS = 1  # the first byte has arrived
BODY = 2  # the headers are complete
ANSWERING = 3  # the handler runs
CLOSING = 4  # the last answer is written; further input is discarded


class Refused(Exception):
    """Stops the parser from its callbacks; the connection answers and closes."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Connection(asyncio.Protocol):
    """One client connection. The parser calls the `on_…` methods."""

    def __init__(self, listener: ConnectionOwner) -> None:
        self.listener = self._listener = listener
        self._limits = listener.limits
        self._handler = listener.handler
        self._guard = listener.guard
        self._parser = httptools.HttpRequestParser(self)
        self._pipelined: deque[tuple[Request, int]] = deque()  # waiting requests and their memory in bytes
        self._pipelined_bytes = 0
        self._current: Request | None = None  # the request that the handler runs
        self._is_receiving = False  # a request has begun and is incomplete
        self._unparsed = Unparsed()
        self._discarded_bytes = 0  # after the last answer
        self._request_cache = listener.request_cache
        self._complete_request: Request | None = None  # in the current chunk of data
        self._begun = 0  # requests in the current chunk of data
        self._flow = Flow(self, listener.guard)
        self._peer = ""
        self._reset()
        self._phase = IDLE
        self._deadline = self._listener.now + self._limits.header_s

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes | bytearray] = []
        self._sent_id: bytes | None = None
        self._client: bytes | None = None
        self._early: Answer | None = None  # answer that does not depend on the body
        self._header_bytes = 0
        self._body_bytes = 0
        self._length = 0
        self._is_chunked = False
        self._has_host = False
        self._expects_continue = False
        self._must_send_continue = False
        self._is_past_headers = False
        self._is_skipped = False  # the request is answered; the rest of its body is discarded

    # Connect and disconnect.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._listener.add(self)
        guard = self._guard
        if guard is not None and not self._listener.is_behind_gateway:
            peer = transport.get_extra_info("peername") or (UNKNOWN,)
            if guard.trusted and proxies.is_within(peer[0], guard.trusted):
                return  # A proxy's connections are not limited per address.
            self._peer = key_of(peer[0])
            if not guard.clients.add(self._peer, self):
                self._answer_unread(answers.NO_ROOM.answer(answers.fresh_id()), lingers=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSING
        self._listener.remove(self)
        self._forget_requests()
        self._flow.forget_unread()
        if self._guard is not None:
            self._guard.clients.remove(self._peer, self)

    def _forget_requests(self) -> None:
        """Release the memory of requests that will not be answered."""
        self._pipelined.clear()
        self._pipelined_bytes = 0
        self._body = []
        self._flow.close()

    @property
    def is_answering(self) -> bool:
        return self._phase == ANSWERING

    def _client_key(self, headers: list[tuple[bytes, bytes]], client: bytes | None) -> str:
        """Return the key of a request: the peer, or the client of a trusted peer."""
        if self._peer:
            return self._peer
        return key_from_gateway(client) if self._listener.is_behind_gateway else key_from_proxy(headers)

    # Backpressure.

    def pause_writing(self) -> None:
        # A client that sends requests without reading answers would fill the memory.
        self._flow.pause(UNREAD)
        if self._flow.is_metered and (request := self._current) is not None:
            key = self._client_key(request.headers, request.client)
            self._flow.count_unread(key, self._listener.now + self._limits.body_s)

    def resume_writing(self) -> None:
        self._flow.forget_unread()
        self._flow.resume(UNREAD)

    # Requests.

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE and len(data) <= _MAX_CACHED_BYTES and (request := self._request_cache.get(data)) is not None:
            self._handle(request)
            return
        if phase == CLOSING:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > 2 * self._limits.body_bytes:
                self.abort()
            return
        self._unparsed.add_read(len(data), is_receiving=self._is_receiving)
        self._complete_request = None
        self._begun = 0
        try:
            self._parser.feed_data(data)
            if self._is_receiving:
                if self._unparsed.endless > self._limits.header_bytes:
                    raise Refused(answers.LONG_HEADERS)
            elif phase == IDLE and self._begun == 1 and len(data) <= _MAX_CACHED_BYTES:
                self._remember(data)
        except Refused as refused:
            self._refuse(refused.failure)
        except httptools.HttpParserCallbackError as error:
            self._refuse(self._failure_of(error))
        except httptools.HttpParserError:
            self._refuse(answers.MALFORMED)
        except httptools.HttpParserUpgrade:
            pass  # The request was answered without upgrade, and the connection is closing.
        if self._is_receiving or self._pipelined or self._flow.has_hold:
            self._account()

    def _remember(self, data: bytes) -> None:
        """Cache a request that arrived alone in one chunk."""
        if self._complete_request is not None and len(self._complete_request.headers) <= _MAX_CACHED_HEADERS:
            if len(self._request_cache) >= _MAX_CACHED_REQUESTS:
                self._request_cache.clear()
            self._request_cache[data] = self._complete_request

    def _account(self) -> None:
        """Count the memory after a chunk; pause or refuse the client above its share."""
        if self._phase == CLOSING:
            return
        is_past_headers = self._is_receiving and self._is_past_headers
        if is_past_headers and self._early is not None:
            self._answer_early(self._early)
            return
        flow = self._flow
        if not flow.is_metered:
            return
        if not self._is_receiving and not self._pipelined:
            flow.close()
            return
        if not flow.has_hold:
            flow.open(self._client_key(self._headers, self._client))
        # The parser holds an incomplete header or trailer. Complete headers of the same read are counted twice.
        can_hold = self._is_receiving and (self._is_chunked or not self._is_past_headers)
        held = self._unparsed.held if can_hold else 0
        parsed = self._header_bytes + len(self._headers) * _HEADER_BYTES
        size = self._body_size() if is_past_headers else 0
        fits = flow.count(
            loose=self._pipelined_bytes + parsed + held,
            body=self._body_bytes,
            size=size,
            is_turn=self._current is None,
        )
        if not fits:
            self._refuse(answers.NO_ROOM)
        elif flow.is_reserved:
            self._send_continue()

    def _answer_early(self, answer: Answer) -> None:
        """Answer without the body: a small body is skipped, else the connection closes."""
        if self._current is not None:
            self._flow.pause(NO_ROOM)  # An earlier request is running.
        elif not self._is_skippable():
            self._answer_unread(answer)
        elif not self._is_skipped:
            self._is_skipped = True
            self.transport.write(self._render_unread(answer, b""))

    def _is_skippable(self) -> bool:
        is_small = not self._is_chunked and self._length <= LARGE_BYTES and not self._expects_continue
        stays = self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0"
        return is_small and stays and not self._listener.is_draining

    def _body_size(self) -> int:
        """Return the expected length of the body; the maximum for a large chunked one."""
        if self._is_chunked:
            return self._limits.body_bytes if self._body_bytes > LARGE_BYTES else self._body_bytes
        return self._length

    def body_granted(self) -> None:
        """Continue reading: memory for the whole body is reserved."""
        self._deadline = self._listener.now + self._limits.body_s
        self._flow.resume(NO_ROOM)
        self._account()

    def reject(self) -> None:
        self._refuse(answers.NO_ROOM)

    def _send_continue(self) -> None:
        if self._must_send_continue:
            self._must_send_continue = False
            self.transport.write(_CONTINUE)

    def on_message_begin(self) -> None:
        self._begun += 1
        self._is_receiving = True
        if self._current is None:
            self._phase = HEADERS
            self._deadline = self._listener.now + self._limits.header_s

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
            return  # A trailer must not pass for a header: the headers are checked already.
        name = name.lower()
        if name in _SPECIAL_HEADERS:
            self._read_special_header(name, value)
            if name == CLIENT_HEADER:
                return
        elif name == b"host":
            if self._has_host or not is_host(value):
                raise Refused(answers.MANY_HOSTS if self._has_host else answers.BAD_HOST)
            self._has_host = True
        self._headers.append((name, value))
        if len(self._headers) > _MAX_HEADERS:
            raise Refused(answers.MANY_HEADERS)

    def _read_special_header(self, name: bytes, value: bytes) -> None:
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
        self._unparsed.add_parsed()
        if not self._has_host and self._parser.get_http_version() != "1.0":
            raise Refused(answers.NO_HOST)
        if self._length > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        if self._length or self._is_chunked:
            self._expect_body()
        if self._current is None:
            self._phase = BODY
            self._deadline = self._listener.now + self._limits.body_s

    def _expect_body(self) -> None:
        if self._listener.early is not None:
            request = Request(self._parser.get_method(), self._target, self._headers, b"")
            request.sent_id = self._sent_id
            self._early = self._listener.early(request)
        if self._expects_continue and self._early is None and self._parser.get_http_version() != "1.0":
            self._must_send_continue = True
            if self._current is None and (self._guard is None or self._length <= LARGE_BYTES):
                self._send_continue()

    def on_body(self, body: bytes) -> None:
        self._unparsed.add_parsed(len(body))
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise Refused(answers.LARGE_BODY)
        self._deadline = self._listener.now + self._limits.body_s
        if self._early is not None:
            return
        add_piece(self._body, body)

    def on_message_complete(self) -> None:
        self._unparsed.add_parsed()
        if self._is_skipped:
            self._is_receiving = False
            self._reset()
            self._phase = IDLE
            self._deadline = self._listener.idle_until
            return
        parser = self._parser
        pieces = self._body
        body = cast(bytes, pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        request = Request(parser.get_method(), self._target, self._headers, body)
        request.client = self._client
        request.sent_id = self._sent_id
        request.upgrades = parser.should_upgrade()
        request.keep_alive = parser.should_keep_alive() and not request.upgrades
        request.is_http10 = parser.get_http_version() == "1.0"
        request.is_plain = (
            request.keep_alive and not request.is_http10 and request.sent_id is None and request.method != b"HEAD"
        )
        if request.keep_alive and not self._expects_continue and self._early is None:
            self._complete_request = request
        size = self._header_bytes + self._body_bytes
        self._is_receiving = False
        self._reset()
        if self._current is not None:
            size += len(request.headers) * _HEADER_BYTES + _REQUEST_BYTES
            self._pipelined.append((request, size))
            self._pipelined_bytes += size
            if len(self._pipelined) >= _MAX_PIPELINED or self._pipelined_bytes >= _MAX_PIPELINED_BYTES:
                self._flow.pause(AHEAD)
            return
        self._handle(request)

    # Answers.

    def _handle(self, request: Request) -> None:
        self._current = request
        self._phase = ANSWERING
        self._deadline = self._listener.answered_by
        answer = self._handler(self, request)
        if answer is not None:
            self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """Answer the current request and continue with the next pipelined one."""
        request = self._current
        if request is None or self._phase == CLOSING:
            return
        request_id = request.request_id or answer.request_id or answers.fresh_id()
        is_head = request.method == b"HEAD"
        line = self.connection_line(request)
        self.finish(
            answers.render(answer, request_id=request_id, date=self._listener.date, connection=line, is_head=is_head)
        )

    def connection_line(self, request: Request) -> bytes:
        if not request.keep_alive or self._listener.is_draining:
            return CLOSE
        return KEEP_ALIVE if request.is_http10 else b""

    def finish(self, rendered: bytes) -> None:
        """Write the rendered answer of the current request."""
        request = self._current
        if request is None or self._phase == CLOSING:
            return
        self.transport.write(rendered)
        self._current = None
        if not request.keep_alive or self._listener.is_draining:
            self._close(has_unread=request.upgrades)
            return
        if self._pipelined:
            self._handle_next()
            return
        if self._is_receiving:
            self._resume_request()
            return
        self._phase = IDLE
        self._deadline = self._listener.idle_until

    def _handle_next(self) -> None:
        """Handle the oldest pipelined request."""
        request, size = self._pipelined.popleft()
        self._pipelined_bytes -= size
        if len(self._pipelined) <= _MAX_PIPELINED // 2 and self._pipelined_bytes <= _MAX_PIPELINED_BYTES // 2:
            self._flow.resume(AHEAD)
        self._handle(request)

    def _resume_request(self) -> None:
        """Continue with an incomplete pipelined request, which is the current one now."""
        self._phase = BODY if self._is_past_headers else HEADERS
        self._deadline = self._listener.now + (self._limits.body_s if self._is_past_headers else self._limits.header_s)
        if self._must_send_continue and self._length <= LARGE_BYTES:
            self._send_continue()
        self._flow.resume(NO_ROOM)
        self._account()

    def check_deadline(self) -> None:
        """Refuse the request or abort the connection if its deadline has passed."""
        self._flow.check_unread(self._listener.now, self._limits.body_s)
        if self._listener.now < self._deadline:
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

    def _failure_of(self, error: httptools.HttpParserCallbackError) -> Failure:
        if isinstance(error.__context__, Refused):
            return error.__context__.failure
        context = {"message": "a request could not be answered", "exception": error.__context__ or error}
        asyncio.get_running_loop().call_exception_handler(context)
        return answers.INTERNAL

    def _refuse(self, failure: Failure) -> None:
        """Answer a request that was not read completely, and close."""
        request = Request(b"GET", self._target, self._headers, b"")
        request.sent_id = self._sent_id or (self._current.sent_id if self._current else None)
        self._answer_unread(failure.answer_to(request))

    def _answer_unread(self, answer: Answer, *, lingers: bool = True) -> None:
        if self._phase == CLOSING:
            return
        if self._is_skipped:
            self.abort()  # The request was answered before.
            return
        self.transport.write(self._render_unread(answer, CLOSE))
        self._close(has_unread=lingers)

    def _render_unread(self, answer: Answer, connection: bytes) -> bytes:
        request_id = answer.request_id or answers.fresh_id()
        is_head = self._target != b"" and self._parser.get_method() == b"HEAD"
        return answers.render(
            answer, request_id=request_id, date=self._listener.date, connection=connection, is_head=is_head
        )

    def _close(self, *, has_unread: bool) -> None:
        self._phase = CLOSING
        self._deadline = self._listener.now + self._limits.linger_s
        self._forget_requests()
        if has_unread:
            # Closing while the client sends would reset the connection and lose the answer. So only the sending side
            # closes here; the client or the deadline closes the rest.
            self._flow.resume(NO_ROOM | AHEAD)
            self.transport.write_eof()
        else:
            self.transport.close()
