"""HTTP answers of the edge: status, CORS headers, request id and error envelope."""

from __future__ import annotations

import os
import re
import time
from http import HTTPStatus
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.core.net import error_pages, host_header
from moorage.core.net.error_pages import ErrorPage
from moorage.runtime.edge.connections.origins import NOWHERE, Origin

Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SAFE_HEADER_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,1024}")

# Any web page may call functions, so all get the same CORS headers.
_CORS_HEADERS = {
    b"access-control-allow-origin": b"*",
    b"access-control-allow-methods": b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    b"access-control-allow-headers": b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent",
    b"access-control-expose-headers": b"*",
}
_CORS_LINES = {name.decode(): b"%b: %b\r\n" % (name, value) for name, value in _CORS_HEADERS.items()}
CORS_NAMES = frozenset(_CORS_LINES)
CORS = b"".join(_CORS_LINES.values())


class Request:
    """A complete request; header names are lower case."""

    __slots__ = (
        *("body", "client", "headers", "is_http10", "is_plain", "keep_alive", "method", "origin", "resolved"),
        *("sent_id", "target", "upgrades"),
    )

    def __init__(self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.client: bytes | None = None  # client address from the gateway's header
        self.sent_id: bytes | None = None
        self.keep_alive = True
        self.is_http10 = False
        self.upgrades = False
        self.is_plain = False  # the head of the answer does not depend on the request
        self.origin: Origin = NOWHERE  # rules for the reply, set by the handler
        self.resolved: Any = None  # cached result of the handler, for a repeated request

    def find_header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def request_id(self) -> bytes | None:
        """The id from the client's header, if its characters are safe."""
        sent = self.sent_id
        return sent if sent is not None and _SAFE_ID.fullmatch(sent) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer without the headers that the connection adds to all answers."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    has_cors: bool = False  # the headers include CORS headers
    request_id: bytes | None = None  # used if the client sent none


@dataclass(frozen=True, slots=True)
class Failure:
    """An error answer without its trace id."""

    status: int
    code: str
    message: str
    headers: Headers = ()

    def answer(self, request_id: bytes) -> Answer:
        """Return the answer to a program: the error envelope."""
        body = error_pages.to_json(self._page, request_id.decode()).encode()
        return Answer(self.status, body, ((b"content-type", JSON), *self.headers), request_id=request_id)

    def answer_to(self, request: Request, default_id: bytes | None = None) -> Answer:
        """Return the answer to a web request: a page for browsers, the envelope for others."""
        request_id = request.request_id or default_id or fresh_id()
        if not error_pages.accepts_html((request.find_header(b"accept") or b"").decode("latin-1")):
            return self.answer(request_id)
        headers = tuple(
            (name.lower().encode(), value.encode())
            for name, value in error_pages.headers_of(self._page, error_pages.HTML)
        )
        body = error_pages.to_html(self._page, request_id.decode()).encode()
        return Answer(self.status, body, (*headers, *self.headers), request_id=request_id)

    @property
    def _page(self) -> ErrorPage:
        phrase = HTTPStatus(self.status).phrase.capitalize()
        return ErrorPage(self.status, self.code, phrase, self.message)


NOT_FOUND = Failure(404, "not_found", "There is no such function")
SERVICE_WORKER = Failure(
    403,
    "forbidden",
    "A service worker cannot be loaded from this address, which all functions share. Load it from the host of its"
    " organization: the function's url shows it",
    # Unregisters a service worker of an earlier release at its next update check. Pages at this address have opaque
    # origins, so there is no other storage to lose.
    ((b"clear-site-data", b'"storage"'),),
)
MALFORMED = Failure(400, "bad_request", "The request is not valid HTTP")
NO_HOST = Failure(400, "bad_request", host_header.ABSENT)
MANY_HOSTS = Failure(400, "bad_request", host_header.SEVERAL)
BAD_HOST = Failure(400, "bad_request", host_header.MALFORMED)
BAD_JSON = Failure(400, "bad_request", "The request's body is not valid JSON")
LONG_FORM = Failure(400, "bad_request", "The request's form has more than 10,000 fields")
LONG_QUERY = Failure(400, "bad_request", "The request's query has more than 1,000 fields")
RESERVED = Failure(400, "bad_request", "A JSON body of more than 64 KB cannot set __ow_body or __ow_isBase64Encoded")
LONG_HEADERS = Failure(400, "bad_request", "The request's headers are longer than 64 KB")
MANY_HEADERS = Failure(400, "bad_request", "The request has more than 256 headers")
LARGE_BODY = Failure(413, "bad_request", "The request's body is larger than 6 MB")
TOO_SLOW = Failure(408, "bad_request", "The request did not arrive in time")
NO_ROOM = Failure(
    429, "rate_limited", "There is no room for more requests from this address at the moment", ((b"retry-after", b"5"),)
)
INTERNAL = Failure(500, "internal", "Something went wrong on our side")
QUEUE_FULL = Failure(429, "rate_limited", "Too many calls wait for this function", ((b"retry-after", b"1"),))


def preflight(request: Request) -> Answer:
    headers = _CORS_HEADERS | {b"access-control-max-age": b"86400"}
    requested = request.find_header(b"access-control-request-headers")
    if requested and _SAFE_HEADER_NAMES.fullmatch(requested):
        # `*` does not cover Authorization, so the requested names are repeated.
        headers[b"access-control-allow-headers"] = requested
    return Answer(200, b"", tuple(headers.items()), has_cors=True)


def cors_besides(names: set[str]) -> bytes:
    """Return the CORS lines of a reply that sets these CORS headers itself.

    A function that sets the allowed origin sets all of them: the others would widen its rule.
    """
    if "access-control-allow-origin" in names:
        return b""
    return b"".join(line for name, line in _CORS_LINES.items() if name not in names)


def fresh_id() -> bytes:
    return os.urandom(16).hex().encode()


def http_date() -> bytes:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def render(answer: Answer, *, request_id: bytes, date: bytes, connection: bytes, is_head: bool) -> bytes:
    """Return the bytes of an answer; for HEAD with content-length but without body."""
    own = b"".join([b"%b: %b\r\n" % header for header in answer.headers])
    bare = answer.status in (204, 304)
    head = b"%b%b%b%bx-request-id: %b\r\ndate: %b\r\n%b\r\n" % (
        status_line(answer.status),
        own,
        b"" if answer.has_cors else CORS,
        b"" if bare else b"content-length: %d\r\n" % len(answer.body),
        request_id,
        date,
        connection,
    )
    return head if is_head or bare else head + answer.body
