"""What a notice tells, as data and in words. It is pure: the words of all channels come from here."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import msgspec

from moorage.accounts.identity.organizations.service import Organization
from moorage.core.kit.clock import to_wire
from moorage.products.monitors.alerts.tables import Alert, Incident
from moorage.products.monitors.probing.beats import Certificate
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.tables import Monitor

TRIGGERED, RESOLVED, FLAPPING, TEST, CERTIFICATE = "triggered", "resolved", "flapping", "test", "certificate"
# What each kind of notice is called outside.
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
    """The sample that made it necessary to tell something."""

    value: float | None  # of the alert's metric
    status_code: int | None
    response_time: int | None  # ms
    message: str
    at: int


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


class Story(msgspec.Struct, frozen=True):
    """All that is told of one matter, as it was when it happened. Stored, so fields are added and never removed."""

    kind: str
    organization: OrganizationPart
    monitor: MonitorPart
    observed: Observed
    alert: AlertPart | None = None
    incident: str | None = None  # uuid
    started_at: int | None = None
    resolved_at: int | None = None
    certificate: CertificatePart | None = None
    message: str = ""  # what is to be said besides, such as why it ended
    version: int = 1


_decoder = msgspec.json.Decoder(Story)


def encode(story: Story) -> str:
    return msgspec.json.encode(story).decode()


def decode(payload: str) -> Story:
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
) -> Story:
    ended = observed.at if kind == RESOLVED else None
    return Story(
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
    """Return a URL as strangers may see it: notices leave the organization."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def headline(story: Story) -> str:
    """Say in one line what happened."""
    name = one_line(story.monitor.name)
    match story.kind:
        case "test":
            return f"Test notice for {name}"
        case "certificate":
            return f"The certificate of {name} {_expiry(story.certificate)}"
        case "flapping":
            return f"{name} is flapping: {_reading(story)}"
        case "resolved" if story.message:
            return f"{name}: resolved. {one_line(story.message)}"
        case "resolved":
            return f"{name}: resolved, {_reading(story)}"
        case _ if story.alert is not None and story.alert.metric == "status":
            return f"{name} is {_state(story.observed)}"
        case _:
            return f"{name}: {_reading(story)}"


def details(story: Story) -> list[str]:
    """Return what else there is to say, a line each."""
    lines = []
    if story.observed.message not in ("", story.message):
        lines.append(one_line(story.observed.message))
    if story.alert is not None:
        lines.append(f"Rule: {rule(story.alert)}")
    if story.kind == FLAPPING:
        lines.append("It was triggered three times in half an hour; the next notice comes when it has been steady.")
    if story.started_at is not None:
        lines.append(f"Since: {moment(story.started_at)}")
    if story.resolved_at is not None and story.started_at is not None:
        lines.append(f"Until: {moment(story.resolved_at)} ({_span(story.resolved_at - story.started_at)})")
    if story.certificate is not None:
        lines.append(f"Certificate: {one_line(story.certificate.subject)}, by {one_line(story.certificate.issuer)}")
        lines.append(f"Valid until: {moment(story.certificate.valid_to)}")
    return lines


def rule(alert: AlertPart) -> str:
    """Say what an alert watches for."""
    metric, unit = _METRICS[alert.metric]
    limit = _STATES.get(alert.threshold) if alert.metric == "status" else None
    limit = limit or f"{number(alert.threshold)}{unit}"
    return f"{metric} {_CONDITIONS[alert.condition]} {limit} for {alert.duration} min"


def one_line(text: str) -> str:
    """Return a text that users or servers chose, fit for one line: no breaks, nothing that moves a cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:.2f}".rstrip("0").rstrip(".")


def moment(at: int) -> str:
    """Return a time for people: UTC, to the second."""
    return to_wire(at)[:19].replace("T", " ") + " UTC"


def _reading(story: Story) -> str:
    """Say what was measured."""
    value = story.observed.value
    if story.alert is None or value is None:
        return "there is no value"
    if story.alert.metric == "status":
        return f"it is {_state(story.observed)}"
    metric, unit = _METRICS[story.alert.metric]
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
