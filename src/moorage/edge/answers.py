"""What the function gateway answers, as bytes on the wire: status, CORS headers, request id and failure envelope."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from http import HTTPStatus

Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SAFE_HEADER_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,1024}")

# Any page may call a function, so preflights are answered alike for all of them.
_CORS = (
    b"access-control-allow-origin: *\r\n"
    b"access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    b"access-control-expose-headers: *\r\n"
)
_USUAL_HEADERS = b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose head and body have arrived; header names are lower case."""

    method: bytes
    target: bytes
    headers: Headers
    request_id: str

    def find_header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer before the connection adds what is the same for all of them."""

    status: int
    body: bytes = b""
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure before it is known which request, and so which trace id, it answers."""

    status: int
    code: str
    message: str

    def answer(self, request_id: str) -> Answer:
        error = {"code": self.code, "message": self.message, "traceId": request_id}
        body = json.dumps({"success": False, "error": error}, separators=(",", ":")).encode()
        return Answer(self.status, body, ((b"content-type", JSON),))


NOT_FOUND = Failure(404, "not_found", "There is no such function")
MALFORMED = Failure(400, "bad_request", "The request is not valid HTTP")
LONG_HEADERS = Failure(400, "bad_request", "The request's headers are longer than 64 KB")
LARGE_BODY = Failure(413, "bad_request", "The request's body is larger than 6 MB")
TOO_SLOW = Failure(408, "bad_request", "The request did not arrive in time")
INTERNAL = Failure(500, "internal", "Something went wrong on our side")


def respond(request: Request) -> Answer:
    """Answer a request: preflights at once, and everything else as a function that does not exist."""
    if request.method == b"OPTIONS":
        return preflight(request)
    return NOT_FOUND.answer(request.request_id)


def preflight(request: Request) -> Answer:
    asked = request.find_header(b"access-control-request-headers")
    # `*` would not cover Authorization, so the names a page asks for are repeated to it.
    allowed = asked if asked and _SAFE_HEADER_NAMES.fullmatch(asked) else _USUAL_HEADERS
    return Answer(200, b"", ((b"access-control-allow-headers", allowed), (b"access-control-max-age", b"86400")))


def request_id(sent: bytes | None) -> str:
    """Return the id a client sent where it is safe to repeat, else a fresh one."""
    if sent is not None and _SAFE_ID.fullmatch(sent):
        return sent.decode()
    return os.urandom(16).hex()


def http_date() -> bytes:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()


def render(answer: Answer, *, request_id: str, date: bytes, connection: bytes, is_head: bool) -> bytes:
    """Return the bytes of an answer; one to HEAD has the length of the body it leaves out."""
    own = b"".join(b"%b: %b\r\n" % header for header in answer.headers)
    head = b"%b%b%bcontent-length: %d\r\nx-request-id: %b\r\ndate: %b\r\n%b\r\n" % (
        _STATUS_LINES[answer.status],
        own,
        _CORS,
        len(answer.body),
        request_id.encode(),
        date,
        connection,
    )
    return head if is_head else head + answer.body
