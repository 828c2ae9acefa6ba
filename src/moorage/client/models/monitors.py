"""Models of the group monitors. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import List, Model


class MonitorOut(Model, kw_only=True):
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
    status_codes: List[str] | None
    keyword: str | None
    headers: List[HeaderOut] | None
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


class HeaderOut(Model, kw_only=True):
    name: str
    value: str


class MonitorSsl(Model, kw_only=True):
    subject: str
    valid_to: str
    issuer: str
    days_until_expiry: int


class HeartbeatOut(Model, kw_only=True):
    status: str
    response_time: int | None
    message: str
    time: str


class MonitorAggregate(Model, kw_only=True):
    monitor_id: int
    window_hours: int
    uptime_percent: float | None
    buckets: List[BucketOut]


class BucketOut(Model, kw_only=True):
    bucket: str
    up_count: int
    down_count: int
    paused_count: int
    avg_response_time: int | None
    status: str | None


class MonitorDeleted(Model, kw_only=True):
    deleted: bool


class AlertOut(Model, kw_only=True):
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
    deliveries: List[AlertDelivery]


class AlertNotifications(Model, kw_only=True):
    email: bool
    slack: bool
    webhook: bool


class DisabledChannels(Model, kw_only=True):
    """The reason why an enabled channel is not used any more; null if it is used."""

    slack: str | None
    webhook: str | None


class AlertDelivery(Model, kw_only=True):
    channel: str
    kind: str
    status: str
    attempts: int
    last_error: str | None
    at: str


class IncidentOut(Model, kw_only=True):
    id: str
    alert_id: int
    monitor_id: int
    is_flapping: bool
    observed: ObservedOut
    started_at: str
    resolved_at: str | None


class ObservedOut(Model, kw_only=True):
    value: float | None
    status_code: int | None
    response_time: int | None
    message: str
    at: str


class AlertDeleted(Model, kw_only=True):
    deleted: bool


class AlertTest(Model, kw_only=True):
    deliveries: List[AlertDelivery]


class HeaderInput(Model, kw_only=True):
    name: str
    value: str


class CreateMonitorInput(Model, kw_only=True):
    name: str
    url: str
    project_id: int | msgspec.UnsetType = msgspec.UNSET
    # Seconds.
    interval: int | msgspec.UnsetType = msgspec.UNSET
    # Milliseconds, for each try.
    timeout: int | msgspec.UnsetType = msgspec.UNSET
    # Further tries within one check.
    retries: int | msgspec.UnsetType = msgspec.UNSET
    http_method: Literal["GET", "HEAD", "POST"] | msgspec.UnsetType = msgspec.UNSET
    # Accepted codes: `200`, `200-299`, `2xx`. None at all means `200-299`.
    status_codes: List[str] | msgspec.UnsetType = msgspec.UNSET
    # A text that the answer has to contain.
    keyword: str | msgspec.UnsetType = msgspec.UNSET
    headers: List[HeaderInput] | msgspec.UnsetType = msgspec.UNSET
    http_body: str | msgspec.UnsetType = msgspec.UNSET
    expire_cert_notify: bool | msgspec.UnsetType = msgspec.UNSET
    ignore_tls_error: bool | msgspec.UnsetType = msgspec.UNSET
    # Whether it is on the organization's public status page.
    public: bool | msgspec.UnsetType = msgspec.UNSET


class UpdateMonitorInput(Model, kw_only=True):
    name: str | msgspec.UnsetType = msgspec.UNSET
    url: str | msgspec.UnsetType = msgspec.UNSET
    # Seconds.
    interval: int | msgspec.UnsetType = msgspec.UNSET
    # Milliseconds, for each try.
    timeout: int | msgspec.UnsetType = msgspec.UNSET
    # Further tries within one check.
    retries: int | msgspec.UnsetType = msgspec.UNSET
    http_method: Literal["GET", "HEAD", "POST"] | msgspec.UnsetType = msgspec.UNSET
    # Accepted codes: `200`, `200-299`, `2xx`. None at all means `200-299`.
    status_codes: List[str] | msgspec.UnsetType = msgspec.UNSET
    keyword: str | msgspec.UnsetType | None = msgspec.UNSET
    # Replaces all.
    headers: List[HeaderInput] | msgspec.UnsetType = msgspec.UNSET
    http_body: str | msgspec.UnsetType | None = msgspec.UNSET
    expire_cert_notify: bool | msgspec.UnsetType = msgspec.UNSET
    ignore_tls_error: bool | msgspec.UnsetType = msgspec.UNSET
    # Whether it is on the organization's public status page.
    public: bool | msgspec.UnsetType = msgspec.UNSET


class NotificationsInput(Model, kw_only=True):
    email: bool | msgspec.UnsetType = msgspec.UNSET
    slack: bool | msgspec.UnsetType = msgspec.UNSET
    webhook: bool | msgspec.UnsetType = msgspec.UNSET


class CreateAlertInput(Model, kw_only=True):
    metric: Literal["status", "response_time", "status_code", "error_rate", "ssl_expiry"]
    condition: Literal["gt", "lt", "eq", "neq"]
    # `status` is 1 while it is up and 0 while it is down; `response_time` is in milliseconds, `error_rate` in
    # percent of the checks in the last `duration` minutes, `ssl_expiry` in days.
    threshold: float
    # Minutes for which the condition has to hold.
    duration: int | msgspec.UnsetType = msgspec.UNSET
    severity: Literal["info", "warning", "error", "critical"] | msgspec.UnsetType = msgspec.UNSET
    notifications: NotificationsInput | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    webhook_url: str | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    slack_webhook: str | msgspec.UnsetType = msgspec.UNSET


class SomeNotificationsInput(Model, kw_only=True):
    """Channels to enable or disable; omitted ones stay unchanged."""

    email: bool | msgspec.UnsetType = msgspec.UNSET
    slack: bool | msgspec.UnsetType = msgspec.UNSET
    webhook: bool | msgspec.UnsetType = msgspec.UNSET


class UpdateAlertInput(Model, kw_only=True):
    condition: Literal["gt", "lt", "eq", "neq"] | msgspec.UnsetType = msgspec.UNSET
    # `status` is 1 while it is up and 0 while it is down; `response_time` is in milliseconds, `error_rate` in
    # percent of the checks in the last `duration` minutes, `ssl_expiry` in days.
    threshold: float | msgspec.UnsetType = msgspec.UNSET
    # Minutes for which the condition has to hold.
    duration: int | msgspec.UnsetType = msgspec.UNSET
    severity: Literal["info", "warning", "error", "critical"] | msgspec.UnsetType = msgspec.UNSET
    # Channels that are left out stay as they are.
    notifications: SomeNotificationsInput | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    webhook_url: str | msgspec.UnsetType | None = msgspec.UNSET
    # Never returned.
    slack_webhook: str | msgspec.UnsetType | None = msgspec.UNSET
    acknowledged: bool | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
