"""Proxy that starts an app on request and holds the request until it answers.

The gateway connects over a unix socket, for apps without a ready replica. The waker reads the request's headers, starts
the app, then forwards bytes in both directions. It answers with `Connection: close`, so that the gateway's next request
goes directly to the app.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from moorage.core.kit.ids import new_trace_id
from moorage.core.net import error_pages
from moorage.core.net.error_pages import ErrorPage
from moorage.core.net.http1 import BadResponse, Response
from moorage.runtime.engines.ports import Address

MAX_HEAD_BYTES = 64 * 1024
MAX_EMPTY_LINES = 16  # before the start line
MAX_INTERIM_RESPONSES = 16
READ_HEAD_TIMEOUT_S = 30.0
CHUNK_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 5.0
LINGER_S = 2.0  # Closing while the client still sends would reset the connection and discard the response.
SHUTDOWN_GRACE_S = 5.0
MAX_WAITING_REQUESTS = 1_000  # per host
BACKLOG = 1_024
RETRY_AFTER_S = 2
UPGRADED = 101
_HOP = (b"connection", b"keep-alive", b"proxy-connection")
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


Wake = Callable[[str], Awaitable[Address | None]]


class Refusal(Exception):
    """The waker answers the request itself, with an error page."""

    def __init__(self, page: ErrorPage) -> None:
        super().__init__(page.message)
        self.page = page


def _not_yet() -> Refusal:
    message = "The app does not answer yet"
    hint = "It was asleep, or starts for the first time. This page loads again by itself."
    page = ErrorPage(
        503, "internal", "The app is starting", message, hint, retry_after_s=RETRY_AFTER_S, reload_s=RETRY_AFTER_S
    )
    return Refusal(page)


def _too_late() -> Refusal:
    return Refusal(ErrorPage(504, "internal", "The app is not ready", "The app did not start in time"))


def absent(why: str) -> Refusal:
    """Return the answer for an app whose machine does not answer."""
    page = ErrorPage(503, "internal", "The app is not available", f"The app is not available: {why}", retry_after_s=30)
    return Refusal(page)


def _no_answer() -> Refusal:
    return Refusal(ErrorPage(502, "internal", "No answer", "The app gave no answer"))


def _bad_request(message: str, status: int = 400) -> Refusal:
    return Refusal(ErrorPage(status, "bad_request", "Bad request", message))


class Gone(Exception):
    """The client or the app closed the connection, so no response can be sent."""


class NotHttp(Exception):
    """The head of a request or response is malformed."""


class TooLarge(NotHttp):
    """The headers exceed MAX_HEAD_BYTES."""


class Head(NamedTuple):
    """Start line and headers of a request or response, unmodified."""

    start: bytes
    fields: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> bytes:
        return b",".join(value.strip() for key, value in self.fields if key.lower() == name)

    def wire(self) -> bytes:
        return b"\r\n".join([self.start, *(b"%b:%b" % field for field in self.fields), b"", b""])

    def closing(self) -> Head:
        """Return a copy with `Connection: close` and without other connection headers."""
        kept = [field for field in self.fields if field[0].lower() not in _HOP]
        return Head(self.start, [*kept, (b"Connection", b" close")])

    @property
    def is_upgrade(self) -> bool:
        return b"upgrade" in self.get(b"connection").lower() and bool(self.get(b"upgrade"))

    @property
    def method(self) -> bytes:
        return self.start.partition(b" ")[0]

    @property
    def status(self) -> int:
        parts = self.start.split(None, 2)
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() and len(parts[1]) == 3 else 0

    @property
    def host(self) -> str:
        """Requested host without the port; raises Refusal."""
        name = self.get(b"host").decode("latin-1").lower().partition(":")[0]
        if not name or not name.isascii() or not name.isprintable() or "," in name:
            raise _bad_request("The request names no host")
        return name


_NO_REQUEST = Head(b"", [])  # the headers did not arrive, or are malformed


class Waker:
    """Serves the gateway's requests to apps without a ready replica.

    `wake` returns the app's address once it answers, None for a host without an app, or raises TimeoutError.
    """

    def __init__(
        self, socket_path: Path, wake: Wake, *, within_s: float = 60.0, most_waiting: int = MAX_WAITING_REQUESTS
    ) -> None:
        self.socket_path = socket_path
        self._wake = wake
        self._within_s = within_s
        self._most_waiting = most_waiting
        self._wakings: dict[str, asyncio.Task[Address | None]] = {}
        self._waiting: Counter[str] = Counter()
        self._requests: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Replace an existing socket at the path and start to serve."""
        self.socket_path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(self.socket_path))
            self.socket_path.chmod(0o600)  # Before listen(), so no connection precedes it.
            self._inode = self.socket_path.stat().st_ino
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._protocol, sock=sock, backlog=BACKLOG)
        except BaseException:
            sock.close()
            raise

    async def close(self) -> None:
        """Stop accepting requests, and give open ones a few seconds to finish."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self.socket_path).st_ino == self._inode:  # A newer process may have replaced the socket.
                self.socket_path.unlink()
        if self._requests:
            await asyncio.wait(self._requests, timeout=SHUTDOWN_GRACE_S)
        unfinished = [*self._requests, *self._wakings.values()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _protocol(self) -> _Protocol:
        return _Protocol(self._begin)

    def _begin(self, client: _Client) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _serve(self, client: _Client) -> None:
        """Handle one request and close its connection."""
        request = _NO_REQUEST
        try:
            request = await _read_request(client)
            app = await self._find_app(client, request.host)
            await _exchange(client, app, request)
        except Refusal as refusal:
            client.writer.write(_answer(refusal.page, request))
        except (Gone, ConnectionError):
            client.abort()
        finally:
            await client.linger()

    async def _find_app(self, client: _Client, host: str) -> _App:
        if self._waiting[host] >= self._most_waiting:
            raise _not_yet()
        self._waiting[host] += 1
        try:
            target = await self._wait_for_app(client, host)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
        if target is None:
            raise _not_yet()
        return await _connect(target)

    async def _wait_for_app(self, client: _Client, host: str) -> Address | None:
        """Wait for the wake task of a host; raises Refusal, or Gone on disconnect."""
        waking = self._waking(host)
        gone = asyncio.ensure_future(client.gone.wait())
        try:
            await asyncio.wait({waking, gone}, timeout=self._within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if client.gone.is_set():
            raise Gone
        if not waking.done() or isinstance(_error_of(waking), TimeoutError):
            raise _too_late()
        error = _error_of(waking)
        if isinstance(error, Refusal):
            raise Refusal(error.page)
        return None if error else waking.result()

    def _waking(self, host: str) -> asyncio.Task[Address | None]:
        """Return the wake task that all requests of a host share; start it if needed."""
        if host not in self._wakings:
            self._wakings[host] = asyncio.ensure_future(self._wake_up(host))
            self._wakings[host].add_done_callback(lambda done: self._on_wake_done(host, done))
        return self._wakings[host]

    async def _wake_up(self, host: str) -> Address | None:
        # The timeout keeps a task that hangs from blocking all later requests of the host.
        async with asyncio.timeout(self._within_s):
            return await self._wake(host)

    def _on_wake_done(self, host: str, waking: asyncio.Task[Address | None]) -> None:
        del self._wakings[host]
        error = _error_of(waking)
        if error is not None and not isinstance(error, TimeoutError | asyncio.CancelledError | Refusal):
            context = {"message": f"waking {host} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


class _Client:
    """Connection of the gateway; `gone` is set when the gateway closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self.reader = reader
        self.writer = writer
        self.gone = gone

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def linger(self) -> None:
        """Send the rest and EOF, discard input for at most LINGER_S, then close."""
        try:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                async with asyncio.timeout(LINGER_S):
                    await self.writer.drain()
                    self.writer.write_eof()
                    while await self.reader.read(CHUNK_BYTES):
                        pass
        finally:
            self.abort()


class _Protocol(asyncio.StreamReaderProtocol):
    """Stream protocol that signals a disconnect even while no task reads."""

    def __init__(self, on_connected: Callable[[_Client], None]) -> None:
        self._gone = asyncio.Event()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        super().__init__(reader, lambda reader, writer: on_connected(_Client(reader, writer, self._gone)))

    def eof_received(self) -> bool | None:
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(exc)


class _App:
    """Connection to an app, on a socket: a stream loses input after a failed send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = bytearray()  # Deleting at its start does not copy the rest.
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def read(self) -> bytes:
        data, self._held = bytes(self._held), bytearray()
        return data or await self._loop.sock_recv(self._sock, CHUNK_BYTES)

    async def readline(self) -> bytes:
        """Return a line; without a newline if it is too long or at EOF."""
        searched = 0
        while (newline := self._held.find(b"\n", searched)) < 0 and len(self._held) <= MAX_HEAD_BYTES:
            searched = len(self._held)
            data = await self._loop.sock_recv(self._sock, CHUNK_BYTES)
            if not data:
                break
            self._held += data
        length = newline + 1 or len(self._held)
        line = bytes(self._held[:length])
        del self._held[:length]
        return line

    def close(self) -> None:
        """Close the connection; bytes already sent, such as a close frame, still arrive."""
        self._sock.close()


async def _connect(target: Address) -> _App:
    """Connect to an app; raises Refusal (503) where it ended again meanwhile."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(sock, (target.host, target.port))
    except (OSError, TimeoutError):
        sock.close()
        raise _not_yet() from None
    except BaseException:
        sock.close()
        raise
    return _App(sock)


async def _read_request(client: _Client) -> Head:
    try:
        async with asyncio.timeout(READ_HEAD_TIMEOUT_S):
            return await _read_head(client.reader)
    except TimeoutError:
        raise Gone from None
    except TooLarge:
        raise _bad_request("The headers are larger than 64 KiB", 431) from None
    except NotHttp:
        raise _bad_request("The request is malformed") from None


async def _read_head(reader: asyncio.StreamReader | _App) -> Head:
    """Read up to the empty line; accepts bare LF. Raises NotHttp and Gone."""
    lines: list[bytes] = []
    size = empty = 0
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise TooLarge from None
        size += len(line)
        if size > MAX_HEAD_BYTES:
            raise TooLarge
        if not line.endswith(b"\n"):
            raise Gone
        line = line.rstrip(b"\r\n")
        if line:
            lines.append(line)
        elif lines:
            return Head(lines[0], [_field(each) for each in lines[1:]])
        else:
            empty += 1
            if empty > MAX_EMPTY_LINES:
                raise NotHttp("there is no start line")


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name.strip() or name[:1].isspace():
        raise NotHttp("a header is malformed")
    return name, value


async def _exchange(client: _Client, app: _App, request: Head) -> None:
    """Forward a request and its response until one side closes the connection."""
    try:
        with contextlib.suppress(ConnectionError):  # The app may have answered before; its response is still read.
            await app.send((request if request.is_upgrade else request.closing()).wire())
        answering = asyncio.ensure_future(_forward_response(app, client, request))
        sending = asyncio.ensure_future(_forward_body(client, app))
        try:
            await asyncio.wait({answering, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, sending):
                task.cancel()
            await asyncio.wait({answering, sending})
        if answering.cancelled():
            raise Gone
        answering.result()
    finally:
        app.close()


async def _forward_body(client: _Client, app: _App) -> None:
    """Forward the client's bytes; an app may stop reading and still answer."""
    is_app_reading = True
    while data := await client.reader.read(CHUNK_BYTES):
        if is_app_reading:
            try:
                await app.send(data)
            except ConnectionError:
                is_app_reading = False


async def _forward_response(app: _App, client: _Client, request: Head) -> None:
    """Forward a response; raises Refusal without one, Gone for an incomplete one."""
    head = await _read_response(app)
    interim = 0
    while 100 <= head.status < 200 and head.status != UPGRADED:
        interim += 1
        if interim > MAX_INTERIM_RESPONSES:
            raise _no_answer()
        await client.send(head.wire())
        head = await _read_response(app)
    if head.status == UPGRADED:
        await client.send(head.wire())
        return await _forward_all(app, client)
    closing = head.closing().wire()
    await client.send(closing)
    if request.method != b"HEAD":
        await _forward_rest(app, client, closing)
    return None


async def _read_response(app: _App) -> Head:
    try:
        return await _read_head(app)
    except (NotHttp, Gone, ConnectionError):
        raise _no_answer() from None


async def _forward_rest(app: _App, client: _Client, head: bytes) -> None:
    """Forward a body up to the end that its headers define, or until EOF."""
    response = Response(stores_body=False)
    try:
        response.feed(head)
        while not response.is_complete:
            data = await app.read()
            if not data:
                return
            await client.send(data)
            response.feed(data)
    except BadResponse:
        # The gateway decides about an invalid response; it ends when the app closes the connection.
        await _forward_all(app, client)


async def _forward_all(app: _App, client: _Client) -> None:
    while data := await app.read():
        await client.send(data)


def _answer(page: ErrorPage, request: Head) -> bytes:
    sent_id = request.get(b"x-request-id").decode("latin-1")
    request_id = sent_id if _SAFE_ID.fullmatch(sent_id) else new_trace_id()
    is_html = error_pages.accepts_html(request.get(b"accept").decode("latin-1"))
    body = (error_pages.to_html if is_html else error_pages.to_json)(page, request_id).encode()
    headers = [
        *error_pages.headers_of(page, error_pages.HTML if is_html else error_pages.JSON),
        ("X-Request-Id", request_id),
        ("Connection", "close"),
        ("Content-Length", str(len(body))),
    ]
    start = f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}"
    head = "".join(f"{line}\r\n" for line in (start, *(f"{name}: {value}" for name, value in headers), ""))
    return head.encode() + (b"" if request.method == b"HEAD" else body)
