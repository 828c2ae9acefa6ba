"""Routes of the group Monitors. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class AsyncMonitors:
    """Methods of the group Monitors."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[models.MonitorOut]:
        """List the organization's monitors, newest first.

        Viewers get `****` for header values, for `httpBody` and for a password in `url`.
        """
        return await self._transport.call(Call("GET", "/v1/monitors"), List[models.MonitorOut])

    async def create(
        self,
        *,
        name: str,
        url: str,
        project_id: int | UnsetType = UNSET,
        interval: int | UnsetType = UNSET,
        timeout: int | UnsetType = UNSET,
        retries: int | UnsetType = UNSET,
        http_method: Literal["GET", "HEAD", "POST"] | UnsetType = UNSET,
        status_codes: List[str] | UnsetType = UNSET,
        keyword: str | UnsetType = UNSET,
        headers: List[models.HeaderInput] | UnsetType = UNSET,
        http_body: str | UnsetType = UNSET,
        expire_cert_notify: bool | UnsetType = UNSET,
        ignore_tls_error: bool | UnsetType = UNSET,
        public: bool | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.MonitorOut:
        """Create a monitor that checks a URL at an interval, the first time immediately.

        A check makes up to `1 + retries` attempts and is `DOWN` only if all of them fail. Redirects are
        followed, unless `statusCodes` accept them.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/monitors",
                query={"wait": wait},
                body=models.CreateMonitorInput(
                    name=name,
                    url=url,
                    project_id=project_id,
                    interval=interval,
                    timeout=timeout,
                    retries=retries,
                    http_method=http_method,
                    status_codes=status_codes,
                    keyword=keyword,
                    headers=headers,
                    http_body=http_body,
                    expire_cert_notify=expire_cert_notify,
                    ignore_tls_error=ignore_tls_error,
                    public=public,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.MonitorOut,
        )

    async def read(self, monitor_id: int | str) -> models.MonitorOut:
        """Return a monitor with its uptime and last heartbeat.

        `uptimePercent` is over the last 24 hours. `missedChecks` counts checks that were due and did not
        run, and `lagMs` is the delay of the last check. Viewers get `****` for header values, for
        `httpBody` and for a password in `url`.
        """
        return await self._transport.call(Call("GET", f"/v1/monitors/{path_part(monitor_id)}"), models.MonitorOut)

    async def update(
        self,
        monitor_id: int | str,
        *,
        name: str | UnsetType = UNSET,
        url: str | UnsetType = UNSET,
        interval: int | UnsetType = UNSET,
        timeout: int | UnsetType = UNSET,
        retries: int | UnsetType = UNSET,
        http_method: Literal["GET", "HEAD", "POST"] | UnsetType = UNSET,
        status_codes: List[str] | UnsetType = UNSET,
        keyword: str | UnsetType | None = UNSET,
        headers: List[models.HeaderInput] | UnsetType = UNSET,
        http_body: str | UnsetType | None = UNSET,
        expire_cert_notify: bool | UnsetType = UNSET,
        ignore_tls_error: bool | UnsetType = UNSET,
        public: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.MonitorOut:
        """Change a monitor.

        `headers` replaces all headers; null removes `keyword` and `httpBody`. A header value or an
        `httpBody` of `****` keeps the stored value, if any.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/monitors/{path_part(monitor_id)}",
                body=models.UpdateMonitorInput(
                    name=name,
                    url=url,
                    interval=interval,
                    timeout=timeout,
                    retries=retries,
                    http_method=http_method,
                    status_codes=status_codes,
                    keyword=keyword,
                    headers=headers,
                    http_body=http_body,
                    expire_cert_notify=expire_cert_notify,
                    ignore_tls_error=ignore_tls_error,
                    public=public,
                ),
                key=idempotency_key,
            ),
            models.MonitorOut,
        )

    async def delete(self, monitor_id: int | str, *, idempotency_key: str | None = None) -> models.MonitorDeleted:
        """Delete a monitor with its alerts and heartbeats."""
        return await self._transport.call(
            Call("DELETE", f"/v1/monitors/{path_part(monitor_id)}", key=idempotency_key), models.MonitorDeleted
        )

    async def list_heartbeats(self, monitor_id: int | str, *, limit: int | None = None) -> List[models.HeartbeatOut]:
        """List the latest heartbeats of a monitor, newest first.

        `PAUSE` marks the beginning of a time without checks.
        """
        return await self._transport.call(
            Call("GET", f"/v1/monitors/{path_part(monitor_id)}/heartbeats", query={"limit": limit}),
            List[models.HeartbeatOut],
        )

    async def read_aggregate(self, monitor_id: int | str, *, hours: int | None = None) -> models.MonitorAggregate:
        """Return a monitor's uptime in hourly buckets up to a week, else in daily ones.

        Hours and days are in UTC; the last bucket is incomplete. Buckets without checks are included.
        Paused time counts neither as up nor as down.
        """
        return await self._transport.call(
            Call("GET", f"/v1/monitors/{path_part(monitor_id)}/aggregate", query={"hours": hours}),
            models.MonitorAggregate,
        )

    async def pause(self, monitor_id: int | str, *, idempotency_key: str | None = None) -> models.MonitorOut:
        """Stop the checks of a monitor and the evaluation of its alerts."""
        return await self._transport.call(
            Call("POST", f"/v1/monitors/{path_part(monitor_id)}/pause", key=idempotency_key), models.MonitorOut
        )

    async def resume(
        self, monitor_id: int | str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.MonitorOut:
        """Start the checks of a monitor again, the first one immediately."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/monitors/{path_part(monitor_id)}/resume",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.MonitorOut,
        )

    async def list_alerts(self, monitor_id: int | str) -> List[models.AlertOut]:
        """List the alerts of a monitor, oldest first.

        `deliveries` has the last notice of each channel with its status. `disabled` has the reason why a
        channel is not used any more.
        """
        return await self._transport.call(
            Call("GET", f"/v1/monitors/{path_part(monitor_id)}/alerts"), List[models.AlertOut]
        )

    async def create_alert(
        self,
        monitor_id: int | str,
        *,
        metric: Literal["status", "response_time", "status_code", "error_rate", "ssl_expiry"],
        condition: Literal["gt", "lt", "eq", "neq"],
        threshold: float,
        duration: int | UnsetType = UNSET,
        severity: Literal["info", "warning", "error", "critical"] | UnsetType = UNSET,
        notifications: models.NotificationsInput | UnsetType = UNSET,
        webhook_url: str | UnsetType = UNSET,
        slack_webhook: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.AlertOut:
        """Create an alert that triggers when a condition holds for `duration` minutes.

        A notice is sent when it triggers and when it resolves. Two good checks in a row resolve it. An
        alert that triggers and resolves repeatedly sends one notice as flapping, and the next one after it
        was steady.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/monitors/{path_part(monitor_id)}/alerts",
                body=models.CreateAlertInput(
                    metric=metric,
                    condition=condition,
                    threshold=threshold,
                    duration=duration,
                    severity=severity,
                    notifications=notifications,
                    webhook_url=webhook_url,
                    slack_webhook=slack_webhook,
                ),
                key=idempotency_key,
            ),
            models.AlertOut,
        )

    async def list_incidents(self, monitor_id: int | str, *, limit: int | None = None) -> List[models.IncidentOut]:
        """List the incidents of a monitor, newest first."""
        return await self._transport.call(
            Call("GET", f"/v1/monitors/{path_part(monitor_id)}/incidents", query={"limit": limit}),
            List[models.IncidentOut],
        )

    async def update_alert(
        self,
        alert_id: int | str,
        *,
        condition: Literal["gt", "lt", "eq", "neq"] | UnsetType = UNSET,
        threshold: float | UnsetType = UNSET,
        duration: int | UnsetType = UNSET,
        severity: Literal["info", "warning", "error", "critical"] | UnsetType = UNSET,
        notifications: models.SomeNotificationsInput | UnsetType = UNSET,
        webhook_url: str | UnsetType | None = UNSET,
        slack_webhook: str | UnsetType | None = UNSET,
        acknowledged: bool | UnsetType = UNSET,
        enabled: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.AlertOut:
        """Change, acknowledge, enable or disable an alert.

        A new condition counts from now. A channel that is not used any more is tried again after it is
        switched on or gets an address.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/alerts/{path_part(alert_id)}",
                body=models.UpdateAlertInput(
                    condition=condition,
                    threshold=threshold,
                    duration=duration,
                    severity=severity,
                    notifications=notifications,
                    webhook_url=webhook_url,
                    slack_webhook=slack_webhook,
                    acknowledged=acknowledged,
                    enabled=enabled,
                ),
                key=idempotency_key,
            ),
            models.AlertOut,
        )

    async def delete_alert(self, alert_id: int | str, *, idempotency_key: str | None = None) -> models.AlertDeleted:
        """Delete an alert with its incidents. Pending notices are not sent."""
        return await self._transport.call(
            Call("DELETE", f"/v1/alerts/{path_part(alert_id)}", key=idempotency_key), models.AlertDeleted
        )

    async def try_alert(
        self, alert_id: int | str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.AlertTest:
        """Send a test notice to every enabled channel; the list of alerts has the result."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/alerts/{path_part(alert_id)}/test",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.AlertTest,
        )
