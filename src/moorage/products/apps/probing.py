"""Asking apps whether they answer: before they get any requests, through the public route, and all through a swap.

The path comes from the user and the answer from the user's app, so neither is trusted: what must not stand in a request
line is encoded, and an answer may be as long and as slow as it likes without costing us more than a bounded look.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httptools

from moorage.products.analytics.lines import OWN_AGENT as AGENT

LOOPBACK = "127.0.0.1"
HEAD_BYTES = 64 * 1024
BODY_BYTES = 2**20  # More of an answer is not read: that it comes is known by then.
CHUNK = 64 * 1024
ANSWER_S = 5.0
LEAVE_S = 0.25  # An app that is still sending when we hang up would log an error for each of our looks.
SHOWN_CHARS = 200
# What is left as it is in a request line; a percent sign is, because the user may have encoded the path already.
SAFE = "/?%:@!$&'()*+,;=-._~[]"
FROM_GATEWAY = frozenset((502, 503, 504))
TOO_MANY = 429  # An app that limits requests says so to us too, swap or not.


class NotHttp(Exception):
    """What came is no answer."""


class BrokenOff(Exception):
    """The connection was closed before the answer, or in the middle of it."""


class AnswerParser:
    """Follows an answer as its bytes come: the status, once it is known, and whether it has come to its end."""

    def __init__(self) -> None:
        self.status = 0  # An interim one, such as 100, does not count.
        self.is_whole = False
        self.may_keep = False  # The connection can be used again.
        self._is_framed = False
        self._head_bytes = 0
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take in what came; raises NotHttp."""
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.status = self._parser.get_status_code()
        except httptools.HttpParserError as error:
            raise NotHttp(str(error)) from error
        if not self.status and self._head_bytes > HEAD_BYTES:
            raise NotHttp("the headers are too large")

    def end(self) -> None:
        """Take in that the connection was closed; raises BrokenOff where that is no end of an answer."""
        if not self.status or (self._is_framed and not self.is_whole):
            raise BrokenOff
        self.is_whole = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._is_framed = self._is_framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status

    def on_message_complete(self) -> None:
        self.is_whole = bool(self.status)
        self.may_keep = self.is_whole and bool(self._parser.should_keep_alive())


def target_of(path: str) -> str:
    """Return a path as it may stand in a request line."""
    encoded = quote(path, safe=SAFE, errors="surrogatepass")
    return encoded if encoded.startswith("/") else f"/{encoded}"


async def check(port: int, path: str, host: str, timeout_s: float = ANSWER_S) -> str | None:
    """Return None where the app at a port of this machine answers with 2xx or 3xx, else a sentence about why not."""
    return await _look(LOOPBACK, port, path, host, timeout_s, f"nothing listens on PORT ({port}) yet")


async def check_through(
    gateway_host: str, gateway_port: int, host: str, path: str, timeout_s: float = ANSWER_S
) -> str | None:
    """The same, by the way that the public takes."""
    return await _look(gateway_host, gateway_port, path, host, timeout_s, "the gateway takes no connections")


async def _look(address: str, port: int, path: str, host: str, timeout_s: float, refused: str) -> str | None:
    target = target_of(path)
    asked = f"GET {target[:SHOWN_CHARS]}"
    try:
        async with asyncio.timeout(timeout_s):
            status = await _status_of(address, port, target, host)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except ConnectionRefusedError:
        return refused
    except (BrokenOff, OSError):
        return f"{asked} got no answer: the connection was closed"
    except NotHttp:
        return f"{asked} got something that is no HTTP answer"
    return None if 200 <= status < 400 else f"{asked} answered {status}"


async def _status_of(address: str, port: int, target: str, host: str) -> int:
    async with _connected(address, port) as wire:
        answer = await wire.ask(target, host, keep=False)
        with contextlib.suppress(NotHttp, BrokenOff, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await wire.read_on(answer)
        return answer.status


class _Wire:
    """One connection, and one request at a time on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, target: str, host: str, *, keep: bool) -> AnswerParser:
        """Send a request, and return as soon as its status is known."""
        kept = "keep-alive" if keep else "close"
        head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\nAccept: */*\r\nConnection: {kept}"
        self._writer.write(f"{head}\r\n\r\n".encode("ascii"))
        await self._writer.drain()
        answer = AnswerParser()
        while not answer.status:
            await self._read_into(answer)
        return answer

    async def read_on(self, answer: AnswerParser) -> None:
        """Read an answer to its end, or to where it gets too long; raises BrokenOff."""
        left = BODY_BYTES
        while not answer.is_whole and left > 0:
            left -= await self._read_into(answer)

    async def _read_into(self, answer: AnswerParser) -> int:
        data = await self._reader.read(CHUNK)
        if data:
            answer.feed(data)
        else:
            answer.end()
        return len(data)

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


async def _connect(address: str, port: int) -> _Wire:
    return _Wire(*await asyncio.open_connection(address, port, limit=HEAD_BYTES))


@contextlib.asynccontextmanager
async def _connected(address: str, port: int) -> AsyncIterator[_Wire]:
    wire = await _connect(address, port)
    try:
        yield wire
    finally:
        wire.close()


class Measured(NamedTuple):
    """What the public has seen of a swap."""

    requests: int
    failed: int
    longest_gap_ms: int  # between two answers that were none of the failed


class SwapProber:
    """Sends requests by the way that the public takes for as long as it is open; a context.

    Fresh connections and a kept one take turns, and neither has more than one request under way. It opens when the
    first answer has come, or after a while: that answer is how the app answers this path, whatever it says.
    """

    def __init__(self, gateway_host: str, gateway_port: int, host: str, path: str, every_s: float = 0.02) -> None:
        self._place = (gateway_host, gateway_port)
        self._host = host
        self._target = target_of(path)
        self._every_s = every_s
        self._requests = self._failed = 0
        self._usual: int | None = None  # the status that the app answers this path with
        self._longest_s = 0.0
        self._last_at: float | None = None
        self._is_down = False  # The last request failed.
        self._kept: _Wire | None = None
        self._has_seen = asyncio.Event()
        self._is_over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._run(self._ask_fresh, after_s=0.0)),
            asyncio.create_task(self._run(self._ask_kept, after_s=self._every_s)),
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await self._has_seen.wait()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for requests that are under way, because one that never gets an answer is what is looked for."""
        self._is_over.set()
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        try:
            await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            self._drop_kept()
        if self._is_down and self._last_at is not None:  # An outage that has not ended yet.
            self._longest_s = max(self._longest_s, time.monotonic() - self._last_at)

    def measured(self) -> Measured:
        return Measured(self._requests, self._failed, round(self._longest_s * 1000))

    async def _run(self, ask: Callable[[], Awaitable[int]], after_s: float) -> None:
        due = time.monotonic() + after_s
        while not await self._is_over_by(due):
            self._note(await self._asked(ask))
            due = max(due + 2 * self._every_s, time.monotonic())

    async def _is_over_by(self, due: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due - time.monotonic(), 0.0)):
                await self._is_over.wait()
        return self._is_over.is_set()

    async def _asked(self, ask: Callable[[], Awaitable[int]]) -> int | None:
        """Return the status of one request's answer, or None where none came."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await ask()
        except (OSError, TimeoutError, NotHttp, BrokenOff):
            return None

    def _note(self, status: int | None) -> None:
        now = time.monotonic()
        self._requests += 1
        self._has_seen.set()
        if self._usual is None and status not in FROM_GATEWAY:
            self._usual = status
        if self._is_failure(status):
            self._failed += 1
            self._is_down = True
            return
        if self._last_at is not None:
            self._longest_s = max(self._longest_s, now - self._last_at)
        self._last_at, self._is_down = now, False

    def _is_failure(self, status: int | None) -> bool:
        """Tell failures of the swap from what is the app's own: an error that it gave before is none of ours."""
        if status is None or status in FROM_GATEWAY:
            return True
        return status >= 400 and status not in (self._usual, TOO_MANY)

    async def _ask_fresh(self) -> int:
        async with _connected(*self._place) as wire:
            answer = await wire.ask(self._target, self._host, keep=False)
            await _read_end(wire, answer)
            return answer.status

    async def _ask_kept(self) -> int:
        wire, answer = self._kept, None
        try:
            if wire is not None and wire.is_open:
                # A server may close a connection while nothing is under way on it: any client would open another, also
                # where it learns of that only when it has asked.
                with contextlib.suppress(OSError, BrokenOff):
                    answer = await wire.ask(self._target, self._host, keep=True)
            if wire is None or answer is None:
                self._drop_kept()
                wire = self._kept = await _connect(*self._place)
                answer = await wire.ask(self._target, self._host, keep=True)
            await _read_end(wire, answer)
        finally:
            if answer is None or not answer.may_keep:
                self._drop_kept()
        return answer.status

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


async def _read_end(wire: _Wire, answer: AnswerParser) -> None:
    """Read an answer to its end. One that just goes on is no failure; one that breaks off is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S / 2):
            await wire.read_on(answer)
