"""Sending an answer, with the headers that every answer carries."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from moorage.http.answer import HSTS, JSON, SECURITY, Answer, Headers, Stream
from moorage.http.cors import Cors
from moorage.http.request import Request
from moorage.settings import Settings
from moorage.telemetry import Telemetry

Send = Callable[[dict[str, Any]], Awaitable[None]]
_JSON_ONLY = [JSON]


class Counted(NamedTuple):
    """What the rate limiter said of a request."""

    limit: int
    left: int
    reset: int
    may: bool

    @property
    def headers(self) -> Headers:
        found = [
            (b"ratelimit-limit", b"%d" % self.limit),
            (b"ratelimit-remaining", b"%d" % self.left),
            (b"ratelimit-reset", b"%d" % self.reset),
        ]
        return found if self.may else [*found, (b"retry-after", b"%d" % self.reset)]


class Sender:
    def __init__(self, settings: Settings, cors: Cors, telemetry: Telemetry) -> None:
        self._cors = cors
        self._telemetry = telemetry
        self._security: Headers = [*SECURITY, HSTS] if settings.is_production else SECURITY
        self._block = b"".join(b"%b: %b\r\n" % pair for pair in [JSON, *self._security])

    async def send(self, send: Send, request: Request, answer: Answer | Stream, counted: Counted | None) -> None:
        if not self._sent_at_once(request, answer, counted):
            headers = self._headers(request, answer, counted)
            if isinstance(answer, Stream):
                await self._stream(send, request, answer, headers)
            else:
                await _whole(send, request, answer, headers)

    def _sent_at_once(self, request: Request, answer: Answer | Stream, counted: Counted | None) -> bool:
        """Send the usual answer, JSON to a request that was read to its end, through the server's short way."""
        respond = request.respond
        if respond is None or answer.headers != _JSON_ONLY or not request.consumed or b"origin" in request.headers:
            return False
        assert isinstance(answer, Answer)
        if counted is not None and counted.may:
            more = b"ratelimit-limit: %d\r\nratelimit-remaining: %d\r\nratelimit-reset: %d\r\n" % counted[:3]
        elif counted is None:
            more = b""
        else:
            return False
        body = b"" if request.method == "HEAD" else answer.body
        trace = request.trace_id.encode()
        head = b"x-request-id: %b\r\ncontent-length: %d\r\n%b%b" % (trace, len(answer.body), more, self._block)
        return bool(respond(answer.status, head, body))

    def _headers(self, request: Request, answer: Answer | Stream, counted: Counted | None) -> Headers:
        headers = [*answer.headers, *(counted.headers if counted else ()), *self._cors.headers(request)]
        own = {name for name, _ in answer.headers}
        headers += [pair for pair in self._security if pair[0] not in own]
        headers.append((b"x-request-id", request.trace_id.encode()))
        return headers

    async def _stream(self, send: Send, request: Request, answer: Stream, headers: Headers) -> None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        pump = asyncio.ensure_future(_pump(send, answer))
        gone = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            done = await asyncio.gather(pump, gone, return_exceptions=True)
            if isinstance(done[0], Exception):
                self._telemetry.crashed(request.trace_id, done[0])


async def _whole(send: Send, request: Request, answer: Answer, headers: Headers) -> None:
    body = b"" if request.method == "HEAD" else answer.body
    headers.append((b"content-length", b"%d" % len(answer.body)))
    unread = not request.consumed
    if unread:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if unread:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await request.drain()
        body = b""
    await send({"type": "http.response.body", "body": body})


async def _pump(send: Send, answer: Stream) -> None:
    chunks = answer.chunks
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if inspect.isasyncgen(chunks):
            await chunks.aclose()
