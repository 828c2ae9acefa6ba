"""Request and response bodies of the monitor routes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError
from yarl import URL

from moorage.core.http.models import Input, Output, QueryInput, QueryInt, optional
from moorage.core.kit.clock import to_wire
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import check_line
from moorage.core.net.hops import FRAMING_HEADERS, TOKEN, UNSENDABLE
from moorage.products.monitors.aggregates import Bucket, uptime_over
from moorage.products.monitors.probing import codes
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.probing.codes import Codes
from moorage.products.monitors.service import NewMonitor
from moorage.products.monitors.tables import Heartbeat, Monitor, State

URL_CHARS = 2_048
MAX_HEADERS = 100
BODY_CHARS = 65_536

_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")
_HOST = re.compile(r"[a-z0-9_-][a-z0-9._-]*|(?=[0-9a-f.]*:)[0-9a-f:.]+")
# Columns with a unit or an `is_` in their names, by field.
_COLUMNS = {"interval": "interval_s", "timeout": "timeout_ms", "public": "is_public"}


def _url(text: str) -> str:
    if _NOT_IN_URLS.search(text):
        raise ValueError("must not contain spaces or control characters")
    try:
        url = URL(text)
        host = url.raw_host or ""
        is_complete = url.scheme in ("http", "https") and url.port is not None and _HOST.fullmatch(host)
        if ":" in host:
            IPv6Address(host)  # yarl accepts anything in brackets.
    except (ValueError, IndexError):  # IndexError: yarl fails so for http://[]@
        raise ValueError("should be a URL") from None
    if not is_complete:
        raise ValueError("should be a URL that begins with http:// or https:// and names a host")
    return text


def _code(text: str) -> str:
    Codes.parse([text])
    return text


def _also_for_the_list(codes: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Report the first bad element under the name of the list too, for clients that show errors by field."""
    try:
        return check(codes)
    except ValidationError as error:
        details = [
            InitErrorDetails(type=PydanticCustomError(each["type"], "{message}", {"message": each["msg"]}),
                             loc=each["loc"], input=each["input"])
            for each in error.errors()
        ]  # fmt: skip
        raise ValidationError.from_exception_data("codes", [{**details[0], "loc": ()}, *details]) from None


def _header_name(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise ValueError("should be the name of a header: letters, digits and hyphens")
    if name.lower() in FRAMING_HEADERS:
        raise ValueError("is set by the check itself")
    return name


def _sendable(value: str) -> str:
    if UNSENDABLE.search(value):
        raise ValueError("must not contain control characters")
    return value


class HeaderInput(Input):
    name: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_header_name)]
    value: Annotated[str, Field(max_length=8192), AfterValidator(_sendable)]


def _each_once(headers: list[HeaderInput]) -> list[HeaderInput]:
    """Reject duplicate names: a check sends each header once."""
    seen: set[str] = set()
    wrong: list[InitErrorDetails] = []
    for index, each in enumerate(headers):
        if each.name.lower() in seen:
            error = PydanticCustomError("value_error", "is there twice")
            wrong.append(InitErrorDetails(type=error, loc=(index, "name"), input=each.name))
        seen.add(each.name.lower())
    if wrong:
        raise ValidationError.from_exception_data("headers", wrong)
    return headers


HttpUrl = Annotated[str, Field(max_length=URL_CHARS), AfterValidator(_url)]
Name = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(check_line)]
Interval = Annotated[int, Field(ge=30, le=86_400, description="Seconds.")]
Timeout = Annotated[int, Field(ge=1_000, le=60_000, description="Milliseconds, for each try.")]
Retries = Annotated[int, Field(ge=0, le=10, description="Further tries within one check.")]
Method = Literal["GET", "HEAD", "POST"]
StatusCodes = Annotated[
    list[Annotated[str, AfterValidator(_code)]],
    Field(max_length=100, description="Accepted codes: `200`, `200-299`, `2xx`. None at all means `200-299`."),
    WrapValidator(_also_for_the_list),
]
Keyword = Annotated[str, Field(max_length=500, description="A text that the answer has to contain.")]
Headers = Annotated[list[HeaderInput], Field(max_length=MAX_HEADERS), AfterValidator(_each_once)]
Body = Annotated[str, Field(max_length=BODY_CHARS)]
Public = Annotated[bool, Field(description="Whether it is on the organization's public status page.")]


def _columns(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the sent fields by column; headers and body are stored in the vault."""
    values = {_COLUMNS.get(name, name): value for name, value in sent.items() if name not in ("headers", "http_body")}
    if "status_codes" in values:
        values["status_codes"] = json.dumps(values["status_codes"] or codes.DEFAULT)
    if "keyword" in values:
        values["keyword"] = values["keyword"] or None
    return values


def _pairs(headers: Sequence[HeaderInput]) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in headers]


class CreateMonitorInput(Input):
    name: Name
    url: HttpUrl
    project_id: Annotated[int, Field(ge=1)] = optional()
    interval: Interval = 60
    timeout: Timeout = 10_000
    retries: Retries = 1
    http_method: Method = "GET"
    status_codes: Annotated[StatusCodes, Field(default_factory=lambda: list(codes.DEFAULT))]
    keyword: Keyword = optional()
    headers: Annotated[Headers, Field(default_factory=list)]
    http_body: Body = optional()
    expire_cert_notify: bool = False
    ignore_tls_error: bool = False
    public: Public = False

    def new(self) -> NewMonitor:
        return NewMonitor(**_columns(self.sent()))

    def header_pairs(self) -> list[tuple[str, str]]:
        return _pairs(self.headers)


class UpdateMonitorInput(Input):
    name: Name = optional()
    url: HttpUrl = optional()
    interval: Interval = optional()
    timeout: Timeout = optional()
    retries: Retries = optional()
    http_method: Method = optional()
    status_codes: StatusCodes = optional()
    keyword: Keyword | None = optional()
    headers: Headers = optional(description="Replaces all.")
    http_body: Body | None = optional()
    expire_cert_notify: bool = optional()
    ignore_tls_error: bool = optional()
    public: Public = optional()

    def changes(self) -> dict[str, Any]:
        return _columns(self.sent())

    def hidden(self) -> dict[str, Any]:
        """Return the sent fields that are stored in the vault."""
        sent = self.model_fields_set
        headers = {"headers": _pairs(self.headers)} if "headers" in sent else {}
        return headers | ({"body": self.http_body} if "http_body" in sent else {})


class HeartbeatQuery(QueryInput):
    limit: Annotated[QueryInt, Field(ge=1, le=1000)] = 70


class AggregateQuery(QueryInput):
    hours: Annotated[QueryInt, Field(ge=1, le=2160)] = 24


class HeaderOut(Output, frozen=True):
    name: str
    value: str


class MonitorSsl(Output, frozen=True):
    subject: str
    valid_to: str
    issuer: str
    days_until_expiry: int

    @classmethod
    def of(cls, state: State, now: int) -> MonitorSsl | None:
        if state.ssl_valid_to is None:
            return None
        return cls(
            subject=state.ssl_subject or "",
            valid_to=to_wire(state.ssl_valid_to),
            issuer=state.ssl_issuer or "",
            days_until_expiry=days_left(state.ssl_valid_to, now),
        )


class HeartbeatOut(Output, frozen=True):
    status: str
    response_time: int | None
    message: str
    time: str

    @classmethod
    def of(cls, beat: Heartbeat) -> HeartbeatOut:
        return cls(beat.status, beat.response_ms, beat.message, to_wire(beat.at))


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """URL, headers and body of a check, redacted for viewers."""

    url: str
    headers: Sequence[tuple[str, str]]
    body: str | None


class MonitorOut(Output, frozen=True):
    id: int
    name: str | None
    url: str | None
    project_id: int | None
    organization_id: str
    interval: int | None
    retries: int | None
    timeout: int | None
    http_method: str | None
    status: str | None
    status_codes: list[str] | None
    keyword: str | None
    headers: list[HeaderOut] | None
    http_body: str | None
    expire_cert_notify: bool | None
    ignore_tls_error: bool | None
    public: bool
    ssl: MonitorSsl | None
    created_at: str | None
    uptime_percent: float | None
    last_heartbeat: HeartbeatOut | None
    missed_checks: int
    lag_ms: int | None

    @classmethod
    def of(
        cls,
        monitor: Monitor,
        *,
        state: State,
        beat: Heartbeat | None,
        uptime: float | None,
        request: ShownRequest,
        now: int,
    ) -> MonitorOut:
        return cls(
            id=monitor.id,
            name=monitor.name,
            url=request.url,
            project_id=monitor.project_id,
            organization_id=str(monitor.org_id),
            interval=monitor.interval_s,
            retries=monitor.retries,
            timeout=monitor.timeout_ms,
            http_method=monitor.http_method,
            status=monitor.status,
            status_codes=monitor.codes,
            keyword=monitor.keyword,
            headers=[HeaderOut(*pair) for pair in request.headers],
            http_body=request.body,
            expire_cert_notify=monitor.expire_cert_notify,
            ignore_tls_error=monitor.ignore_tls_error,
            public=monitor.is_public,
            ssl=MonitorSsl.of(state, now),
            created_at=to_wire(monitor.created_at),
            uptime_percent=uptime,
            last_heartbeat=HeartbeatOut.of(beat) if beat is not None else None,
            missed_checks=state.missed,
            lag_ms=state.lag_ms,
        )


class BucketOut(Output, frozen=True):
    bucket: str
    up_count: int
    down_count: int
    paused_count: int
    avg_response_time: int | None
    status: str | None

    @classmethod
    def of(cls, bucket: Bucket) -> BucketOut:
        return cls(to_wire(bucket.start), bucket.up, bucket.down, bucket.paused, bucket.average_ms, bucket.status)


class MonitorAggregate(Output, frozen=True):
    monitor_id: int
    window_hours: int
    uptime_percent: float | None
    buckets: list[BucketOut]

    @classmethod
    def of(cls, monitor_id: int, hours: int, buckets: list[Bucket]) -> MonitorAggregate:
        return cls(monitor_id, hours, uptime_over(buckets), [BucketOut.of(each) for each in buckets])


class MonitorDeleted(Output, frozen=True):
    deleted: bool
