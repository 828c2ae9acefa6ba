"""Request and response bodies of the alert routes. Responses never have addresses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.core.http.models import Input, Output, optional
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.decoding import decode
from moorage.products.monitors.alerts.notices import Observed
from moorage.products.monitors.alerts.service import AlertDetails, NewAlert
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Incident, Notice
from moorage.products.monitors.schemas import HttpUrl

Metric = Literal["status", "response_time", "status_code", "error_rate", "ssl_expiry"]
Condition = Literal["gt", "lt", "eq", "neq"]
Severity = Literal["info", "warning", "error", "critical"]
Threshold = Annotated[
    float,
    Field(
        allow_inf_nan=False,
        description="`status` is 1 while it is up and 0 while it is down; `response_time` is in milliseconds, "
        "`error_rate` in percent of the checks in the last `duration` minutes, `ssl_expiry` in days.",
    ),
]
Duration = Annotated[int, Field(ge=1, le=60, description="Minutes for which the condition has to hold.")]

# Columns with a unit or an `is_` in their names, by field.
_COLUMNS = {"duration": "duration_min", "enabled": "is_enabled"}
_ADDRESSES = {"slack_webhook": SLACK_WEBHOOK, "webhook_url": WEBHOOK_URL}


class NotificationsInput(Input):
    email: bool = True
    slack: bool = False
    webhook: bool = False


class SomeNotificationsInput(Input):
    """Channels to enable or disable; omitted ones stay unchanged."""

    email: bool = optional()
    slack: bool = optional()
    webhook: bool = optional()


def _columns(sent: dict[str, Any]) -> dict[str, Any]:
    excluded = ("notifications", *_ADDRESSES)
    values = {_COLUMNS.get(name, name): value for name, value in sent.items() if name not in excluded}
    switched = sent["notifications"].sent() if "notifications" in sent else {}
    return values | {f"by_{channel}": is_on for channel, is_on in switched.items()}


def _addresses(sent: dict[str, Any]) -> dict[str, str | None]:
    """Return the sent addresses by their names in the vault."""
    return {name: sent[field] for field, name in _ADDRESSES.items() if field in sent}


class CreateAlertInput(Input):
    metric: Metric
    condition: Condition
    threshold: Threshold
    duration: Duration = 1
    severity: Severity = "warning"
    notifications: Annotated[NotificationsInput, Field(default_factory=NotificationsInput)]
    webhook_url: HttpUrl = optional(description="Never returned.")
    slack_webhook: HttpUrl = optional(description="Never returned.")

    def new(self) -> NewAlert:
        return NewAlert(**_columns(self.sent()))

    def addresses(self) -> dict[str, str | None]:
        return _addresses(self.sent())


class UpdateAlertInput(Input):
    condition: Condition = optional()
    threshold: Threshold = optional()
    duration: Duration = optional()
    severity: Severity = optional()
    notifications: SomeNotificationsInput = optional(description="Channels that are left out stay as they are.")
    webhook_url: HttpUrl | None = optional(description="Never returned.")
    slack_webhook: HttpUrl | None = optional(description="Never returned.")
    acknowledged: bool = optional()
    enabled: bool = optional()

    def changes(self) -> dict[str, Any]:
        return _columns(self.sent())

    def addresses(self) -> dict[str, str | None]:
        return _addresses(self.sent())


class AlertNotifications(Output, frozen=True):
    email: bool
    slack: bool
    webhook: bool


class DisabledChannels(Output, frozen=True):
    """The reason why an enabled channel is not used any more; null if it is used."""

    slack: str | None
    webhook: str | None


class AlertDelivery(Output, frozen=True):
    channel: str
    kind: str
    status: str
    attempts: int
    last_error: str | None
    at: str

    @classmethod
    def of(cls, notice: Notice) -> AlertDelivery:
        at = notice.delivered_at if notice.delivered_at is not None else notice.updated_at
        return cls(notice.channel, notice.kind, notice.status, notice.attempts, notice.last_error, to_wire(at))


class AlertOut(Output, frozen=True):
    id: int
    monitor_id: int
    organization_id: str
    metric: str
    condition: str
    threshold: float
    duration: int | None
    severity: str | None
    notifications: AlertNotifications | None
    status: str | None
    acknowledged: bool | None
    last_triggered: str | None
    created_at: str | None
    enabled: bool
    is_flapping: bool
    has_webhook_url: bool
    has_slack_webhook: bool
    disabled: DisabledChannels
    deliveries: list[AlertDelivery]

    @classmethod
    def of(cls, details: AlertDetails) -> AlertOut:
        alert = details.alert
        return cls(
            id=alert.id,
            monitor_id=alert.monitor_id,
            organization_id=str(alert.org_id),
            metric=alert.metric,
            condition=alert.condition,
            threshold=alert.threshold,
            duration=alert.duration_min,
            severity=alert.severity,
            notifications=AlertNotifications(alert.by_email, alert.by_slack, alert.by_webhook),
            status=alert.status,
            acknowledged=alert.acknowledged,
            last_triggered=to_wire_or_none(alert.last_triggered_at),
            created_at=to_wire(alert.created_at),
            enabled=alert.is_enabled,
            is_flapping=alert.is_flapping,
            has_webhook_url=WEBHOOK_URL in details.stored,
            has_slack_webhook=SLACK_WEBHOOK in details.stored,
            disabled=DisabledChannels(alert.slack_off, alert.webhook_off),
            deliveries=[AlertDelivery.of(each) for each in details.deliveries],
        )


class AlertDeleted(Output, frozen=True):
    deleted: bool


class AlertTest(Output, frozen=True):
    deliveries: list[AlertDelivery]


class ObservedOut(Output, frozen=True):
    value: float | None
    status_code: int | None
    response_time: int | None
    message: str
    at: str


class IncidentOut(Output, frozen=True):
    id: str
    alert_id: int
    monitor_id: int
    is_flapping: bool
    observed: ObservedOut
    started_at: str
    resolved_at: str | None

    @classmethod
    def of(cls, incident: Incident) -> IncidentOut:
        observed = decode(incident.observed, Observed)
        return cls(
            id=incident.uuid,
            alert_id=incident.alert_id,
            monitor_id=incident.monitor_id,
            is_flapping=incident.is_flapping,
            observed=ObservedOut(
                observed.value, observed.status_code, observed.response_time, observed.message, to_wire(observed.at)
            ),
            started_at=to_wire(incident.started_at),
            resolved_at=to_wire_or_none(incident.resolved_at),
        )
