"""Sends answers with the common headers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.core.http.answer import HSTS, JSON, SECURITY, Answer, Headers, Stream
from moorage.core.http.limits.cors import Cors
from moorage.core.http.limits.turns import Turns
from moorage.core.http.request import Counted, Request
from moorage.core.telemetry import Telemetry
from moorage.settings import Settings

Send = Callable[[dict[str, Any]], Awaitable[None]]
_JSON_ONLY = [JSON]
PIECE_BYTES = 64 * 1024  # of a stream, written in one turn of the event loop


class Sender:
    def __init__(self, settings: Settings, cors: Cors, telemetry: Telemetry) -> None:
        self.turns = Turns()  # of streams
        self._cors = cors
        self._telemetry = telemetry
        self._security: Headers = [*SECURITY, HSTS] if settings.is_production else SECURITY
        self._block = b"".join(b"%b: %b\r\n" % pair for pair in [JSON, *self._security])

    async def send(self, send: Send, request: Request, answer: Answer | Stream) -> None:
        if answer.headers == _JSON_ONLY and self.may_send_now(request) and self.send_now(request, answer):
            return
        headers = self._headers(request, answer)
        if isinstance(answer, Stream):
            await self._send_stream(send, request, answer, headers)
        else:
            await _send_whole(send, request, answer, headers)

    def may_send_now(self, request: Request) -> bool:
        """Check whether a JSON answer may be written without ASGI messages."""
        return request.respond is not None and request.consumed and b"origin" not in request.headers

    def send_now(self, request: Request, answer: Answer | Stream) -> bool:
        """Send a JSON answer with one write; False if the client does not read."""
        assert isinstance(answer, Answer)
        counted = request.counted
        rate = b""
        if counted is not None:
            rate = b"ratelimit-limit: %d\r\nratelimit-remaining: %d\r\nratelimit-reset: %d\r\n" % counted[:3]
            if not counted.may:
                rate += b"retry-after: %d\r\n" % counted.reset
        body = b"" if request.method == "HEAD" else answer.body
        trace = request.trace_id.encode()
        head = b"x-request-id: %b\r\ncontent-length: %d\r\n%b%b" % (trace, len(answer.body), rate, self._block)
        return bool(request.respond(answer.status, head, body))

    def _headers(self, request: Request, answer: Answer | Stream) -> Headers:
        headers = [*answer.headers, *_rate_headers(request.counted), *self._cors.headers(request)]
        own = {name for name, _ in answer.headers}
        headers += [pair for pair in self._security if pair[0] not in own]
        headers.append((b"x-request-id", request.trace_id.encode()))
        return headers

    async def _send_stream(self, send: Send, request: Request, answer: Stream, headers: Headers) -> None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        pump = asyncio.ensure_future(_pump(send, answer, self.turns))
        gone = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            done = await asyncio.gather(pump, gone, return_exceptions=True)
            if isinstance(done[0], Exception):
                self._telemetry.crashed(request.trace_id, done[0])


def _rate_headers(counted: Counted | None) -> Headers:
    if counted is None:
        return []
    headers = [
        (b"ratelimit-limit", b"%d" % counted.limit),
        (b"ratelimit-remaining", b"%d" % counted.left),
        (b"ratelimit-reset", b"%d" % counted.reset),
    ]
    return headers if counted.may else [*headers, (b"retry-after", b"%d" % counted.reset)]


async def _send_whole(send: Send, request: Request, answer: Answer, headers: Headers) -> None:
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


async def _pump(send: Send, answer: Stream, turns: Turns) -> None:
    chunks = answer.chunks
    try:
        async for chunk in chunks:
            for begin in range(0, len(chunk), PIECE_BYTES):
                if begin:
                    await turns.take()
                piece = chunk[begin : begin + PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if inspect.isasyncgen(chunks):
            await chunks.aclose()
