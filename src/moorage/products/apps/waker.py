"""Where the gateway sends requests of apps that have no replica to answer them: they wait here until there is one.

A request is read as far as its headers, its app is woken, and then its bytes are passed on as they come, both ways. The
gateway is told to close the connection afterwards, so that its next request finds the way that leads past us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from moorage.products.apps.probing import AnswerParser, NotHttp

HEAD_BYTES = 64 * 1024
HEAD_S = 30.0
CHUNK = 64 * 1024
CONNECT_S = 5.0
LINGER_S = 2.0  # Closing while the other side still sends would take our answer from it.
GRACE_S = 5.0
MOST_WAITING = 1_000  # requests for one host
BACKLOG = 1_024
RETRY_AFTER_S = 2
UPGRADED = 101
_HOP = (b"connection", b"keep-alive", b"proxy-connection")


class Target(NamedTuple):
    """Where an app answers, on this machine."""

    port: int


Wake = Callable[[str], Awaitable[Target | None]]


class Refusal(Exception):
    """The request is answered here, with a page."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status, self.title, self.text = status, title, text


def _not_yet() -> Refusal:
    return Refusal(503, "Service Unavailable", "The app does not answer yet")


def _too_late() -> Refusal:
    return Refusal(504, "Gateway Timeout", "The app did not start in time")


class Gone(Exception):
    """The client, or the app, hung up; there is nobody to tell."""


class TooLarge(NotHttp):
    """The headers are over their bound."""


class Head(NamedTuple):
    """The first line of a request or an answer, and its headers, as they came."""

    start: bytes
    fields: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> bytes:
        return b",".join(value.strip() for key, value in self.fields if key.lower() == name)

    def wire(self) -> bytes:
        return b"\r\n".join([self.start, *(b"%b:%b" % field for field in self.fields), b"", b""])

    def closing(self) -> Head:
        """Return it with the wish that the connection is closed after this exchange."""
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
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0

    @property
    def host(self) -> str:
        """The host that was asked for, without a port; raises Refusal."""
        name = self.get(b"host").decode("latin-1").lower().partition(":")[0]
        if not name or not name.isascii() or not name.isprintable() or "," in name:
            raise Refusal(400, "Bad Request", "The request names no host")
        return name


class Waker:
    """Serves the gateway. `wake` returns where an app answers once it does, None where it will not, or TimeoutError."""

    def __init__(
        self, socket_path: Path, wake: Wake, *, within_s: float = 60.0, most_waiting: int = MOST_WAITING
    ) -> None:
        self.socket_path = socket_path
        self._wake = wake
        self._within_s = within_s
        self._most_waiting = most_waiting
        self._wakings: dict[str, asyncio.Task[Target | None]] = {}
        self._waiting: Counter[str] = Counter()
        self._at_work: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Take the place of whatever is at the path, and serve."""
        self.socket_path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(self.socket_path))
            self.socket_path.chmod(0o600)  # Nobody can connect before it listens.
            self._inode = self.socket_path.stat().st_ino
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._protocol, sock=sock, backlog=BACKLOG)
        except BaseException:
            sock.close()
            raise

    async def close(self) -> None:
        """Take no more requests, and let those under way finish for a few seconds."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self.socket_path).st_ino == self._inode:  # Another may have taken our place.
                self.socket_path.unlink()
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=GRACE_S)
        left = [*self._at_work, *self._wakings.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _protocol(self) -> _Protocol:
        return _Protocol(self._begin)

    def _begin(self, client: _Client) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _serve(self, client: _Client) -> None:
        """See one request through, and close its connection."""
        method = b""
        try:
            request = await _read_request(client)
            method = request.method
            app = await self._find_app(client, request.host)
            await _exchange(client, app, request)
        except Refusal as refusal:
            client.writer.write(_page(refusal, is_head=method == b"HEAD"))
        except (Gone, ConnectionError):
            client.abort()
        finally:
            await client.linger()

    async def _find_app(self, client: _Client, host: str) -> _App:
        if self._waiting[host] >= self._most_waiting:
            raise _not_yet()
        self._waiting[host] += 1
        try:
            target = await self._awake(client, host)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
        if target is None:
            raise _not_yet()
        return await _connect(target)

    async def _awake(self, client: _Client, host: str) -> Target | None:
        """Wait until an app answers, together with whoever else waits for it; raises Refusal, and Gone."""
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
        return None if _error_of(waking) else waking.result()

    def _waking(self, host: str) -> asyncio.Task[Target | None]:
        """Return the one waking of a host that is under way, for as many as want it."""
        if host not in self._wakings:
            self._wakings[host] = asyncio.ensure_future(self._wake_up(host))
            self._wakings[host].add_done_callback(lambda done: self._woken(host, done))
        return self._wakings[host]

    async def _wake_up(self, host: str) -> Target | None:
        # Bounded too, so that one that hangs is not what every later request waits for.
        async with asyncio.timeout(self._within_s):
            return await self._wake(host)

    def _woken(self, host: str, waking: asyncio.Task[Target | None]) -> None:
        del self._wakings[host]
        error = _error_of(waking)
        if error is not None and not isinstance(error, TimeoutError | asyncio.CancelledError):
            context = {"message": f"waking {host} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


class _Client:
    """The connection of the gateway: its two directions, and whether the other side has hung up."""

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
        """Send what is left, say that this was all, and take in for a moment what the other side still sends."""
        try:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                async with asyncio.timeout(LINGER_S):
                    await self.writer.drain()
                    self.writer.write_eof()
                    while await self.reader.read(CHUNK):
                        pass
        finally:
            self.abort()


class _Protocol(asyncio.StreamReaderProtocol):
    """Streams, and an event for a client that hangs up while nobody reads."""

    def __init__(self, on_connected: Callable[[_Client], None]) -> None:
        self._gone = asyncio.Event()
        reader = asyncio.StreamReader(limit=HEAD_BYTES)
        super().__init__(reader, lambda reader, writer: on_connected(_Client(reader, writer, self._gone)))

    def eof_received(self) -> bool | None:
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(exc)


class _App:
    """The connection to an app. It is no stream: there, what could not be sent takes with it what is to be read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = b""
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def read(self) -> bytes:
        data, self._held = self._held, b""
        return data or await self._loop.sock_recv(self._sock, CHUNK)

    async def readline(self) -> bytes:
        """Return a line with its end, or without one where it is too long or the app has hung up."""
        while b"\n" not in self._held and len(self._held) <= HEAD_BYTES:
            data = await self._loop.sock_recv(self._sock, CHUNK)
            if not data:
                break
            self._held += data
        line, end, self._held = self._held.partition(b"\n")
        return line + end

    def close(self) -> None:
        """Hang up. What was sent last, such as the end of a WebSocket, still arrives."""
        self._sock.close()


async def _connect(target: Target) -> _App:
    """Connect to an app. One that has just ended again is one that does not answer yet."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", target.port))
    except (OSError, TimeoutError):
        sock.close()
        raise _not_yet() from None
    except BaseException:
        sock.close()
        raise
    return _App(sock)


async def _read_request(client: _Client) -> Head:
    try:
        async with asyncio.timeout(HEAD_S):
            return await _read_head(client.reader)
    except TimeoutError:
        raise Gone from None
    except TooLarge:
        raise Refusal(431, "Request Header Fields Too Large", "The headers are larger than 64 KiB") from None
    except NotHttp:
        raise Refusal(400, "Bad Request", "The request is malformed") from None


async def _read_head(reader: asyncio.StreamReader | _App) -> Head:
    """Read up to the empty line; raises NotHttp and Gone. Ends of lines without a carriage return are let pass."""
    lines: list[bytes] = []
    size = 0
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise TooLarge from None
        size += len(line)
        if size > HEAD_BYTES:
            raise TooLarge
        if not line.endswith(b"\n"):
            raise Gone
        line = line.rstrip(b"\r\n")
        if line:
            lines.append(line)
        elif lines:
            return Head(lines[0], [_field(each) for each in lines[1:]])


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name.strip() or name[:1].isspace():
        raise NotHttp("a header is malformed")
    return name, value


async def _exchange(client: _Client, app: _App, request: Head) -> None:
    """Pass a request on and its answer back, for as long as both sides are there."""
    try:
        with contextlib.suppress(ConnectionError):  # It may have answered already; what it said is read all the same.
            await app.send((request if request.is_upgrade else request.closing()).wire())
        answering = asyncio.ensure_future(_pass_answer(app, client, request))
        sending = asyncio.ensure_future(_pass_body(client, app))
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


async def _pass_body(client: _Client, app: _App) -> None:
    """Pass on what a client sends until it hangs up. An app may stop listening before that, and still answer."""
    is_heard = True
    while data := await client.reader.read(CHUNK):
        if is_heard:
            try:
                await app.send(data)
            except ConnectionError:
                is_heard = False


async def _pass_answer(app: _App, client: _Client, request: Head) -> None:
    """Pass an answer back to its end; raises Refusal where none comes and Gone where it breaks off."""
    head = await _read_answer(app)
    while 100 <= head.status < 200 and head.status != UPGRADED:
        await client.send(head.wire())
        head = await _read_answer(app)
    if head.status == UPGRADED:
        await client.send(head.wire())
        return await _pass_all(app, client)
    closing = head.closing().wire()
    await client.send(closing)
    if request.method != b"HEAD":
        await _pass_rest(app, client, closing)
    return None


async def _read_answer(app: _App) -> Head:
    try:
        return await _read_head(app)
    except (NotHttp, Gone, ConnectionError):
        raise Refusal(502, "Bad Gateway", "The app gave no answer") from None


async def _pass_rest(app: _App, client: _Client, head: bytes) -> None:
    """Pass on the body of an answer. Its end is where its headers say, not only where the app hangs up."""
    answer = AnswerParser()
    try:
        answer.feed(head)
        while not answer.is_whole:
            data = await app.read()
            if not data:
                return
            await client.send(data)
            answer.feed(data)
    except NotHttp:
        # Whatever it is, the gateway judges it; it ends when the app hangs up, which it was asked to do.
        await _pass_all(app, client)


async def _pass_all(app: _App, client: _Client) -> None:
    while data := await app.read():
        await client.send(data)


def _page(refusal: Refusal, *, is_head: bool) -> bytes:
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{refusal.title}</title>'
        '<meta name="viewport" content="width=device-width"><body style="font:1em/1.5 sans-serif;margin:15vh auto;'
        f'max-width:30em;padding:0 1em"><h1>{refusal.title}</h1><p>{refusal.text}</p></body></html>\n'
    ).encode()
    again = f"Retry-After: {RETRY_AFTER_S}\r\n" if refusal.status == 503 else ""
    head = (
        f"HTTP/1.1 {refusal.status} {refusal.title}\r\nContent-Type: text/html; charset=utf-8\r\n{again}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)
