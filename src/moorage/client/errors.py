"""Exceptions of the client: one class for each error code of the API, and two for answers that never came."""

from __future__ import annotations

from collections.abc import Mapping


class ClientError(Exception):
    """Base class of all exceptions that the client raises."""


class Unreachable(ClientError):
    """No answer: the connection was refused, was lost, or timed out."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach {url}: {reason}")
        self.url = url
        self.reason = reason


class UnexpectedAnswer(ClientError):
    """An answer that this release of the client cannot read, such as one of another version or of a proxy."""


class ApiError(ClientError):
    """The API refused a request. `fields` has the messages of single fields."""

    code = "internal"

    def __init__(self, status: int, message: str, fields: Mapping[str, str], trace_id: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fields = dict(fields)
        self.trace_id = trace_id


class BadRequest(ApiError):
    code = "bad_request"


class Unauthorized(ApiError):
    code = "unauthorized"


class Forbidden(ApiError):
    code = "forbidden"


class NotFound(ApiError):
    code = "not_found"


class Conflict(ApiError):
    code = "conflict"


class QuotaExceeded(ApiError):
    code = "quota_exceeded"


class RateLimited(ApiError):
    code = "rate_limited"


class Internal(ApiError):
    code = "internal"


BY_CODE: dict[str, type[ApiError]] = {
    each.code: each
    for each in (BadRequest, Unauthorized, Forbidden, NotFound, Conflict, QuotaExceeded, RateLimited, Internal)
}
