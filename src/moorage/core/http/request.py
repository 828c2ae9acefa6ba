"""A request of the API, for the dispatcher and async handlers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote

from moorage.core.kit.ids import new_trace_id
from moorage.core.kit.texts import size_text, unusable
from moorage.errors import BadRequest

T = TypeVar("T")

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# Headers that the API reads; all others are dropped.
_USED_HEADERS = frozenset(
    (
        b"authorization",
        b"host",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"transfer-encoding",
        b"x-request-id",
        b"x-organization-id",
        b"x-moorage-relayed",
        b"x-moorage-deploy",
        b"x-forwarded-for",
        b"idempotency-key",
        b"origin",
        b"last-event-id",
        b"accept",
        b"accept-encoding",
        b"user-agent",
        b"stripe-signature",
        b"x-hub-signature-256",
        b"x-github-event",
        b"x-github-delivery",
        b"git-protocol",
        b"x-moorage-deploy",
        b"content-range",
        b"range",
        b"access-control-request-method",
    )
)
DRAIN_BYTES = 64 * 2**20
DRAIN_S = 5.0
# Minimum average rate of a body: single bytes with short pauses would pass the timeout for ever.
MIN_BODY_BYTES_PER_S = 1024


class Counted(NamedTuple):
    """Result of the rate limiter for a request."""

    limit: int
    left: int
    reset: int
    may: bool


def uncounted(is_valid: bool = False) -> None:
    """No-op rate limit of a request that is not counted."""


class Request:
    """One request. Its body is read on demand, at most up to a limit."""

    __slots__ = (
        "_receive",
        "body_timeout_s",
        "caller",
        "client",
        "consumed",
        "count_failure",
        "count_request",
        "counted",
        "headers",
        "method",
        "path",
        "query_string",
        "release",
        "respond",
        "set_on_half_close",
        "token",
        "trace_id",
    )

    def __init__(self, scope: dict[str, Any], receive: Any, body_timeout_s: float) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, str] = {
            name: value.decode("latin-1") for name, value in scope["headers"] if name in _USED_HEADERS
        }
        client = scope.get("client")
        self.client: str = client[0] if client else "local"
        request_id = self.headers.get(b"x-request-id")
        self.trace_id = request_id if request_id and _SAFE_ID.fullmatch(request_id) else new_trace_id()
        self.caller: Any = None
        self.token: str | None = None
        self.counted: Counted | None = None
        self.count_request: Callable[[bool], None] = uncounted  # see `AccessRequest.count_request`
        # Counts a request to a route that is not counted, once it is known to be invalid; raises RateLimited.
        self.count_failure: Callable[[], None] = uncounted
        self.release: Callable[[], None] | None = None  # releases the stream slot after the response
        self.respond: Any = scope.get("moorage.respond")  # see `http.server`
        self.set_on_half_close: Any = scope.get("moorage.set_on_half_close")  # see `http.server`
        self.consumed = not self.has_body
        self.body_timeout_s = body_timeout_s
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        return self.headers.get(name)

    def query(self) -> dict[str, str]:
        return query_values(self.query_string.decode("latin-1")) if self.query_string else {}

    def from_query(self, name: str) -> str | None:
        """Return a value of the query; None if it is missing or empty, "" if the query is invalid."""
        try:
            return self.query().get(name) or None
        except BadRequest:
            return ""

    @property
    def has_body(self) -> bool:
        return b"transfer-encoding" in self.headers or self.headers.get(b"content-length", "0") != "0"

    @property
    def announced_bytes(self) -> int:
        """Return `Content-Length`, 0 without one."""
        length = self.headers.get(b"content-length", "")
        return int(length) if length.isdigit() else 0

    @property
    def media_type(self) -> str:
        return self.headers.get(b"content-type", "").partition(";")[0].strip().lower()

    async def body(self, limit: int) -> bytes:
        """Return the whole body; raises BadRequest as soon as it exceeds the limit."""
        if self.consumed:
            return b""
        return b"".join([chunk async for chunk in self.chunks(limit)])

    async def chunks(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, at most `limit` received bytes."""
        if self.announced_bytes > limit:
            raise BodyTooLarge(limit)
        left = limit
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                async with asyncio.timeout(self.body_timeout_s):
                    message = await self._receive()
            except TimeoutError:
                raise BadRequest("The body came too slowly") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            left -= len(chunk)
            # Set before anything can raise: `drain` must not wait for a body that was received completely.
            self.consumed = not message.get("more_body", False)
            if left < 0:
                raise BodyTooLarge(limit)
            waited = loop.time() - began
            if not self.consumed and waited > self.body_timeout_s and limit - left < waited * MIN_BODY_BYTES_PER_S:
                raise BadRequest("The body came too slowly")
            if chunk:
                yield chunk
            if self.consumed:
                return

    async def drain(self) -> None:
        """Read and drop the rest of a refused body, up to DRAIN_BYTES and DRAIN_S.

        Closing at once would reset the connection, and a client that is still sending would not receive the response.
        """
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_S):
                while left > 0 and not self.consumed:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.consumed = message["type"] == "http.disconnect" or not message.get("more_body", False)
        except TimeoutError:
            return

    async def disconnected(self) -> None:
        """Return when the client disconnects; for streams."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return


def query_values(text: str) -> dict[str, str]:
    """Parse a query string; the last value of a repeated name wins."""
    try:
        # Bytes that are not UTF-8 become surrogates, so that the error names their parameter.
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="surrogateescape")
    except ValueError:
        raise BadRequest("The query is not valid") from None
    values = dict(pairs)
    problems = {_sent_name(name): _query_problem(name + value) for name, value in values.items()}
    if fields := {name: problem for name, problem in problems.items() if problem}:
        raise BadRequest("The request is not valid", fields=fields)
    return values


def _query_problem(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "should be UTF-8"
    return unusable(text)


def _sent_name(name: str) -> str:
    """Return the name of a parameter for an error, percent-encoded where it is not valid itself."""
    return quote(name, errors="surrogateescape") if unusable(name) else name


async def finish_unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work for a request; cancels it and raises ClientGone when the client disconnects."""
    running = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.disconnected())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientGone
        return running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.wait({running, gone})


def basic_password(header: str) -> str | None:
    """Return the password of a Basic `Authorization` header, or None."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return pair.partition(":")[2] or None


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class BodyTooLarge(BadRequest):
    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {size_text(limit)}")
