"""The HTTP server: uvicorn, hardened for untrusted clients.

uvicorn's httptools protocol reads headers of any size without a timeout, answers invalid HTTP in plain text, and loses
the body of a request that offers an upgrade. The subclass limits size and time of headers, answers in the envelope, and
reads such bodies.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from email.utils import formatdate
from functools import partial
from typing import Any, NamedTuple

import httptools

from moorage.core.http.answer import failure
from moorage.core.http.request import DRAIN_BYTES, DRAIN_S
from moorage.core.kit.ids import new_trace_id
from moorage.core.kit.imports import hidden
from moorage.core.net import host_header
from moorage.errors import BadRequest

# The command line of uvicorn imports click and multiprocessing: 2 MB.
with hidden("uvicorn.main", Server=None, main=None, run=None):
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import Server as UvicornServer

HEADER_BYTES = 64 * 1024
HEADER_S = 10.0
UNREAD_S = 30.0
_TOO_LARGE = "The headers are larger than 64 KiB"

# Replaces the header list while no headers are expected: uvicorn would otherwise collect trailers without a limit, as
# headers.
_NOT_KEPT: Any = deque(maxlen=0)


class BadHead(Exception):
    """Stops the parser from inside a callback; the message is for the client."""


class _Unsent(NamedTuple):
    """Bytes of responses that a client has not read."""

    in_transport: int
    in_kernel: int
    since: float  # time of the latest progress


class BoundedProtocol(HttpToolsProtocol):
    """Refuses headers and trailers over 64 KiB, headers slower than 10 s, and an invalid Host.

    Aborts a connection whose client does not read its responses.
    """

    header_s = HEADER_S
    unread_s = UNREAD_S
    _unsent: _Unsent | None = None
    on_first_connection: Callable[[], None] = staticmethod(lambda: None)
    _unparsed_bytes = 0  # since the last request, the end of its headers or the last part of its body
    _head_timer: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None
    _is_half_closed = False  # by the client
    _on_half_close: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.headers = _NOT_KEPT
        self._start_timer()
        if len(self.connections) == 1:
            self.on_first_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._running is not None:
            # uvicorn notifies only the newest of pipelined requests about the disconnect.
            _mark_disconnected(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Counted per read: the parser does not report a header, a trailer or a chunk size that never ends.
        self._unparsed_bytes += len(data)
        is_over = self._unparsed_bytes > HEADER_BYTES
        if is_over and self._waits_for_head() and not self._head_ends_within(data):
            self._refuse(_TOO_LARGE)
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade(data[offer.args[0] :])
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(str(cause) if isinstance(cause, BadHead) else "The request is not valid HTTP")
            return
        if self._unparsed_bytes > HEADER_BYTES and not self._waits_for_head():
            self._refuse(_TOO_LARGE)
            return
        # Headers nearly always arrive in one read and then need no timer. An answered connection has its own.
        is_answered = self.headers is _NOT_KEPT and self.timeout_keep_alive_task is not None
        if self._head_timer is None and not is_answered and self._waits_for_head():
            self._start_timer()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a connection that the client half-closed after a complete request."""
        cycle, running = self.cycle, self._running
        if cycle is None or cycle.response_complete or cycle.more_body or running is None or running.response_started:
            return False
        cycle.keep_alive = False
        self._is_half_closed = True
        if self._on_half_close is not None:
            self._on_half_close()
        return True

    def set_on_half_close(self, call: Callable[[], None] | None) -> None:
        """Set a function to call when the client half-closes; it may have closed, too."""
        self._on_half_close = call
        if call is not None and self._is_half_closed:
            call()

    def abort_if_unread(self, now: float) -> None:
        """Abort the connection if the client has read nothing for `unread_s`; called every second.

        Appending to a response, such as an event, is no progress. The kernel accepts more bytes only when much of its
        own queue is free, so the length of that queue counts too.
        """
        in_transport = self.transport.get_write_buffer_size()
        if not in_transport:
            self._unsent = None
            return
        last, in_kernel = self._unsent, _queued_bytes(self.transport)
        if last is None or in_transport < last.in_transport or in_kernel != last.in_kernel:
            self._unsent = _Unsent(in_transport, in_kernel, now)
        elif now - last.since < self.unread_s:
            self._unsent = last._replace(in_transport=in_transport)
        else:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._unparsed_bytes = 0
        if self._head_timer is not None:
            self._stop_timer()
        problem = host_header.find_problem(self.headers, self.parser.get_http_version())
        if problem is not None:
            raise BadHead(problem)
        super().on_headers_complete()
        self.headers = _NOT_KEPT

    def on_body(self, body: bytes) -> None:
        if not self.cycle.response_complete:
            self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        scope: Any = cycle.scope
        scope["moorage.respond"] = partial(write_at_once, cycle)
        scope["moorage.set_on_half_close"] = self.set_on_half_close
        answer_now = getattr(app, "answer_now", None)
        busy = cycle.flow.write_paused or cycle.disconnected or self.parser.should_upgrade()
        if answer_now is None or busy or not answer_now(scope):
            super()._start_asgi_task(cycle, app)

    def _waits_for_head(self) -> bool:
        cycle = self.cycle
        return self.headers is not _NOT_KEPT or cycle is None or cycle.response_complete

    def _head_ends_within(self, data: bytes) -> bool:
        at = data.find(b"\r\n\r\n")
        return 0 <= at <= HEADER_BYTES

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or not self._waits_for_head():
            return
        if self.headers is _NOT_KEPT:
            self.transport.close()
        elif self.flow.read_paused:
            # The server paused reading while earlier pipelined requests run.
            self._start_timer()
        else:
            self._refuse("The headers came too slowly")

    def _decline_upgrade(self, rest: bytes) -> None:
        """Process the request without the upgrade, then close the connection.

        httptools ends such a request after its headers and does not parse its body:
        https://github.com/Kludex/uvicorn/issues/2722
        """
        cycle, kept = self.cycle, (b"content-length", b"transfer-encoding")
        framing = b"".join(b"%b: %b\r\n" % pair for pair in self.scope["headers"] if pair[0] in kept)
        cycle.keep_alive = False
        cycle.more_body = True
        self.parser = httptools.HttpRequestParser(_RestOfRequest(self))
        self.data_received(b"POST / HTTP/1.1\r\n" + framing + b"\r\n" + rest)

    def _refuse(self, message: str) -> None:
        """Answer 400 unless an earlier request still runs; then ignore input."""
        if self.transport.is_closing():
            return
        running = self._running
        if running is None or running.response_complete:
            self._write_refusal(message)
        elif running.response_started:
            _mark_disconnected(running)
            self.transport.write_eof()
        elif running is self.cycle and running.more_body:
            _mark_disconnected(running)
            self._write_refusal(message)
        else:
            running.keep_alive = False
            self.pipeline.clear()
        self._stop_timer()
        self.transport.set_protocol(_Draining(self, self.transport))

    def _write_refusal(self, message: str) -> None:
        trace_id = new_trace_id()
        answer = failure(BadRequest(message), trace_id)
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"x-request-id: {trace_id}\r\ncontent-length: {len(answer.body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + answer.body)
        self.transport.write_eof()

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.header_s, self._on_head_timeout)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def write_at_once(cycle: RequestResponseCycle, status: int, lines: bytes, body: bytes) -> bool:
    """Write a complete response with one call; `lines` are its encoded headers.

    Has the same effect as two ASGI messages to uvicorn, at a third of the cost. Returns False without any effect if the
    client does not read; the ASGI path then waits for the client.
    """
    if cycle.flow.write_paused or cycle.disconnected or cycle.response_started:
        return False
    head = [STATUS_LINE[status]]
    for name, value in cycle.default_headers:
        head += (name, b": ", value, b"\r\n")
    head += (lines, b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(head))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def _queued_bytes(transport: asyncio.BaseTransport) -> int:
    """Return the length of the kernel's send queue: bytes that the client's machine has not acknowledged."""
    sock = transport.get_extra_info("socket")
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError):  # The socket is closed, or of a kind without a queue.
        return 0


def _mark_disconnected(cycle: RequestResponseCycle) -> None:
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


class _RestOfRequest:
    """Parser callbacks for the body of a request with a declined upgrade."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._ended = False

    def on_body(self, body: bytes) -> None:
        if not self._ended:
            self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        if not self._ended:
            self._ended = True
            self._protocol.on_message_complete()


class _Draining(asyncio.Protocol):
    """Drops further input, up to DRAIN_BYTES and DRAIN_S.

    Closing at once would reset the connection, and a client that is still sending would not receive the response.
    """

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self._transport = transport
        self._left = DRAIN_BYTES
        self._timer = protocol.loop.call_later(DRAIN_S, self._on_timeout)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def eof_received(self) -> bool:
        return self._is_answering

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    @property
    def _is_answering(self) -> bool:
        running = self._protocol._running
        return running is not None and not running.response_complete and not running.disconnected

    def _on_timeout(self) -> None:
        if self._is_answering:
            self._timer = self._protocol.loop.call_later(DRAIN_S, self._on_timeout)
        else:
            self._transport.close()


class Server(UvicornServer):
    """A uvicorn server that does not handle signals, and does not wake up without clients.

    uvicorn checks ten times a second whether it should exit.
    """

    def __init__(self, config: Config) -> None:
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._should_exit = False
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def main_loop(self) -> None:
        """Update the date header and abort unread connections every second while clients are connected."""
        self._loop = asyncio.get_running_loop()
        while not self.should_exit:
            self._wake.clear()
            self._update_date()
            for connection in list(self.server_state.connections):
                connection.abort_if_unread(self._loop.time())  # type: ignore[union-attr]
            with suppress(TimeoutError):
                async with asyncio.timeout(1 if self.server_state.connections else None):
                    await self._wake.wait()

    def on_first_connection(self) -> None:
        """Start to update the date header again."""
        self._update_date()
        self._wake.set()

    def _update_date(self) -> None:
        date = (b"date", formatdate(usegmt=True).encode())
        self.server_state.default_headers = [date, *self.config.encoded_headers]

    def capture_signals(self) -> Any:
        return nullcontext()


def tune_garbage_collector() -> None:
    """Exempt the objects of startup from garbage collection, and collect less often.

    Reference counting frees nearly all objects of a request; the rest can wait for a higher threshold.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def make_server(app: Any, *, stop_s: float = 5.0, header_s: float = HEADER_S, unread_s: float = UNREAD_S) -> Server:
    protocol = type("Protocol", (BoundedProtocol,), {"header_s": header_s, "unread_s": unread_s})
    config = Config(
        app,
        http=protocol,
        ws="none",  # Upgrades are always declined, also if a WebSocket library is installed.
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(stop_s),
        backlog=2048,
    )
    server = Server(config)
    protocol.on_first_connection = staticmethod(server.on_first_connection)  # type: ignore[attr-defined]
    return server


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; raises OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
