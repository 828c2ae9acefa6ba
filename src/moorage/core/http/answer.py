"""Responses of the API: envelope, errors, and common headers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import field
from http import HTTPStatus
from typing import Any

import msgspec

from moorage.core.kit.records import dataclass
from moorage.core.net import error_pages
from moorage.core.net.error_pages import ErrorPage
from moorage.errors import MoorageError

STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "quota_exceeded": 402,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "rate_limited": 429,
    "internal": 500,
}

Headers = list[tuple[bytes, bytes]]
encode = msgspec.json.Encoder().encode

# Responses are not cached, framed or sniffed.
SECURITY: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
HSTS = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
DEPRECATED = (b"deprecation", b"@1767225600")  # 2026-01-01, the date of the first API description
JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")


@dataclass(slots=True)
class Answer:
    """A complete response."""

    status: int
    body: bytes
    headers: Headers = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """A response whose body is sent in chunks as they become available."""

    chunks: AsyncIterator[bytes]
    headers: Headers = field(default_factory=list)
    status: int = 200


def success(data: Any, status: int = 200) -> Answer:
    if data is None:
        return Answer(status, b'{"success":true}', [JSON])
    return Answer(status, b'{"success":true,"data":' + encode(data) + b"}", [JSON])


def plain_json(data: Any, status: int = 200) -> Answer:
    return Answer(status, encode(data), [JSON])


def plain_text(text: str, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return plain text for clients that print the body, such as git."""
    return Answer(status, f"{text}\n".encode(), [TEXT, *(headers or [])])


def failure(error: MoorageError, trace_id: str) -> Answer:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.fields:
        body["fields"] = error.fields
    body["traceId"] = trace_id
    return Answer(STATUS[error.code], encode({"success": False, "error": body}), [JSON])


def failure_page(error: MoorageError, trace_id: str) -> Answer:
    """Return a failure as a page, for browsers at addresses outside of the API."""
    status = STATUS[error.code]
    page = ErrorPage(status, error.code, HTTPStatus(status).phrase.capitalize(), error.message)
    headers = [
        (name.lower().encode(), value.encode()) for name, value in error_pages.headers_of(page, error_pages.HTML)
    ]
    return Answer(status, error_pages.to_html(page, trace_id).encode(), headers)
