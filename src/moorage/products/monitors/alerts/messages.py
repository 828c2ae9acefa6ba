"""Content of notices, as data and as text for all channels. Pure functions."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import msgspec

from moorage.accounts.identity.organizations.service import Organization
from moorage.core.kit.clock import to_wire
from moorage.core.kit.decoding import decoder_of
from moorage.core.kit.masking import MASK
from moorage.core.kit.texts import one_line
from moorage.products.monitors.alerts.tables import Alert, Incident
from moorage.products.monitors.probing.beats import Beat, Certificate
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.tables import Monitor

TRIGGERED, RESOLVED, FLAPPING, TEST, CERTIFICATE = "triggered", "resolved", "flapping", "test", "certificate"
# Names of the kinds of notices in the API and in webhooks.
EVENTS = {
    TRIGGERED: "alert.triggered",
    RESOLVED: "alert.resolved",
    FLAPPING: "alert.flapping",
    TEST: "alert.test",
    CERTIFICATE: "certificate.expiring",
}
_METRICS = {
    "status": ("status", ""),
    "response_time": ("response time", " ms"),
    "status_code": ("status code", ""),
    "error_rate": ("error rate", " %"),
    "ssl_expiry": ("certificate's time left", " days"),
}
_CONDITIONS = {"gt": "above", "lt": "below", "eq": "equal to", "neq": "other than"}
_STATES = {0.0: "down", 1.0: "up"}


class Observed(msgspec.Struct, frozen=True):
    """The sample that caused a notice."""

    value: float | None  # of the alert's metric
    status_code: int | None
    response_time: int | None  # ms
    message: str
    at: int

    @classmethod
    def of(cls, beat: Beat, value: float | None) -> Observed:
        return cls(value, beat.outcome.code, beat.outcome.response_ms, beat.outcome.message, beat.slot)


class AlertPart(msgspec.Struct, frozen=True):
    id: int
    metric: str
    condition: str
    threshold: float
    duration: int  # minutes
    severity: str


class MonitorPart(msgspec.Struct, frozen=True):
    id: int
    name: str
    url: str


class OrganizationPart(msgspec.Struct, frozen=True):
    id: int
    name: str


class CertificatePart(msgspec.Struct, frozen=True):
    subject: str
    issuer: str
    valid_to: int
    days_left: int


class NoticeContent(msgspec.Struct, frozen=True):
    """Content of a notice at the time of its cause. Stored: fields may only be added."""

    kind: str
    organization: OrganizationPart
    monitor: MonitorPart
    observed: Observed
    alert: AlertPart | None = None
    incident: str | None = None  # uuid
    started_at: int | None = None
    resolved_at: int | None = None
    certificate: CertificatePart | None = None
    message: str = ""  # additional text, such as the reason for the end
    version: int = 1


_decoder = decoder_of(NoticeContent)


def encode(content: NoticeContent) -> str:
    return msgspec.json.encode(content).decode()


def decode(payload: str) -> NoticeContent:
    return _decoder.decode(payload)


def make(
    org: Organization,
    monitor: Monitor,
    alert: Alert | None,
    incident: Incident | None,
    kind: str,
    observed: Observed,
    message: str,
    certificate: Certificate | None,
    now: int,
) -> NoticeContent:
    ended = observed.at if kind == RESOLVED else None
    return NoticeContent(
        kind=kind,
        organization=OrganizationPart(org.id, org.name),
        monitor=MonitorPart(monitor.id, monitor.name, _without_credentials(monitor.url)),
        observed=observed,
        alert=_alert_part(alert) if alert else None,
        incident=incident.uuid if incident else None,
        started_at=incident.started_at if incident else None,
        resolved_at=incident.resolved_at or ended if incident else None,
        certificate=_certificate_part(certificate, now) if certificate else None,
        message=message,
    )


def _alert_part(alert: Alert) -> AlertPart:
    return AlertPart(alert.id, alert.metric, alert.condition, alert.threshold, alert.duration_min, alert.severity)


def _certificate_part(certificate: Certificate, now: int) -> CertificatePart:
    left = days_left(certificate.valid_to, now)
    return CertificatePart(certificate.subject, certificate.issuer, certificate.valid_to, left)


def _without_credentials(url: str) -> str:
    """Remove the credentials of a URL: notices leave the organization."""
    try:
        parts = urlsplit(url)
    except ValueError:  # An earlier release stored URLs with malformed IPv6 addresses.
        return MASK
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def headline(content: NoticeContent) -> str:
    name = one_line(content.monitor.name)
    match content.kind:
        case "test":
            return f"Test notice for {name}"
        case "certificate":
            return f"The certificate of {name} {_expiry(content.certificate)}"
        case "flapping":
            return f"{name} is flapping: {_reading(content)}"
        case "resolved" if content.message:
            return f"{name}: resolved. {one_line(content.message)}"
        case "resolved":
            return f"{name}: resolved, {_reading(content)}"
        case _ if content.alert is not None and content.alert.metric == "status":
            return f"{name} is {_state(content.observed)}"
        case _:
            return f"{name}: {_reading(content)}"


def details(content: NoticeContent) -> list[str]:
    """Return the lines below the title."""
    lines = []
    if content.observed.message not in ("", content.message):
        lines.append(one_line(content.observed.message))
    if content.alert is not None:
        lines.append(f"Rule: {rule(content.alert)}")
    if content.kind == FLAPPING:
        lines.append("It was triggered three times in half an hour; the next notice comes when it has been steady.")
    if content.started_at is not None:
        lines.append(f"Since: {moment(content.started_at)}")
    if content.resolved_at is not None and content.started_at is not None:
        lines.append(f"Until: {moment(content.resolved_at)} ({_span(content.resolved_at - content.started_at)})")
    if content.certificate is not None:
        lines.append(f"Certificate: {one_line(content.certificate.subject)}, by {one_line(content.certificate.issuer)}")
        lines.append(f"Valid until: {moment(content.certificate.valid_to)}")
    return lines


def rule(alert: AlertPart) -> str:
    metric, unit = _METRICS[alert.metric]
    limit = _STATES.get(alert.threshold) if alert.metric == "status" else None
    limit = limit or f"{number(alert.threshold)}{unit}"
    return f"{metric} {_CONDITIONS[alert.condition]} {limit} for {alert.duration} min"


def number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:.2f}".rstrip("0").rstrip(".")


def moment(at: int) -> str:
    """Format a time in UTC, to the second."""
    return to_wire(at)[:19].replace("T", " ") + " UTC"


def _reading(content: NoticeContent) -> str:
    value = content.observed.value
    if content.alert is None or value is None:
        return "there is no value"
    if content.alert.metric == "status":
        return f"it is {_state(content.observed)}"
    metric, unit = _METRICS[content.alert.metric]
    return f"{metric} is {number(value)}{unit}"


def _state(observed: Observed) -> str:
    return "up" if observed.value else "down"


def _expiry(certificate: CertificatePart | None) -> str:
    if certificate is None:
        return "expires soon"
    days = certificate.days_left
    if days < 0:
        return "has expired"
    if days == 0:
        return "expires within a day"
    return f"expires in {days} day{'s' if days > 1 else ''}"


def _span(ms: int) -> str:
    minutes = max(round(ms / 60_000), 0)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
