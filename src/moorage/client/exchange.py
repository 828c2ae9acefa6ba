"""Parts that the blocking and the asynchronous client share: requests, answers, errors and retries."""

from __future__ import annotations

import functools
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from moorage import __version__
from moorage.client.errors import BY_CODE, ApiError, Internal, UnexpectedAnswer
from moorage.core.kit import decoding

T = TypeVar("T")

Upload = bytes | Path | BinaryIO
Query = Mapping[str, Any]

DEFAULT_TIMEOUT_S: Final = 30.0
UPLOAD_TIMEOUT_S: Final = 300.0  # the platform answers after it has checked and stored the file
RETRIES: Final = 3
RETRIED_STATUSES: Final = frozenset((429, 502, 503, 504))
MAX_BACK_OFF_S: Final = 30.0
IDEMPOTENT_METHODS: Final = frozenset(("GET", "HEAD"))
USER_AGENT: Final = f"moorage-client/{__version__}"


@dataclass(slots=True)
class Call:
    """One request of the API."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Any = None  # encoded as JSON
    form: Mapping[str, Any] | None = None  # fields of a multipart form; the file is in `upload`
    upload: Upload | None = None
    upload_field: str = "file"
    key: str | None = None  # Idempotency-Key; made up for writes where it is missing
    wait_s: int = 0  # the server may take that much longer

    @property
    def is_read(self) -> bool:
        return self.method in IDEMPOTENT_METHODS

    def headers(self, *, is_stream: bool = False) -> dict[str, str]:
        headers: dict[str, str] = {}
        if not self.is_read and not is_stream:
            headers["idempotency-key"] = self.key or uuid.uuid4().hex
        if self.body is not None:
            headers["content-type"] = "application/json"
        if is_stream:
            headers["accept"] = "text/event-stream"
        return headers

    def timeout_s(self) -> float:
        """Return the time without any byte after which the connection counts as lost."""
        return (UPLOAD_TIMEOUT_S if self.upload is not None else DEFAULT_TIMEOUT_S) + self.wait_s

    def parameters(self) -> dict[str, str]:
        return {name: _text(value) for name, value in self.query.items() if value is not None}

    def content(self) -> bytes | None:
        return msgspec.json.encode(self.body) if self.body is not None else None

    def fields(self) -> dict[str, str]:
        """Return the fields of a multipart form as texts; lists and objects are JSON."""
        given = {name: value for name, value in (self.form or {}).items() if value is not msgspec.UNSET}
        return {name: _text(value) for name, value in given.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def path_part(value: object) -> str:
    """Quote a value for one part of a path."""
    return quote(str(value), safe="")


class Answer(msgspec.Struct, Generic[T]):
    data: T


class _Problem(msgspec.Struct):
    code: str
    message: str
    traceId: str = ""  # noqa: N815 - a name of the API
    fields: dict[str, str] = {}


class _Failure(msgspec.Struct):
    error: _Problem


@functools.cache
def _envelope_of(kind: Any) -> Any:
    return Answer[kind]


def decode(content: bytes, kind: Any, *, has_envelope: bool) -> Any:
    """Decode a successful answer; `kind` is None where the answer has no data."""
    if kind is None:
        return None
    try:
        document = decoding.decode(content, _envelope_of(kind) if has_envelope else kind)
    except msgspec.DecodeError as error:
        raise UnexpectedAnswer(
            f"cannot read the answer of the platform ({error}); client {__version__} and platform may differ in version"
        ) from error
    return document.data if has_envelope else document


def to_error(status: int, content: bytes, trace_id: str) -> ApiError:
    """Return the exception for a failed answer; also for one that a proxy wrote."""
    try:
        problem = decoding.decode(content, _Failure).error
    except msgspec.DecodeError:
        text = content[:200].decode("utf-8", "replace").strip()
        return Internal(status, f"the server answered {status}{f': {text}' if text else ''}", {}, trace_id)
    kind = BY_CODE.get(problem.code, ApiError)
    return kind(status, problem.message, problem.fields, problem.traceId or trace_id)


def back_off_s(attempt: int, retry_after: str | None = None) -> float:
    """Return the seconds before the next attempt; `Retry-After` has precedence."""
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), MAX_BACK_OFF_S)
    return min(0.2 * 2.0**attempt, MAX_BACK_OFF_S) * random.uniform(0.7, 1.3)  # noqa: S311 - jitter
