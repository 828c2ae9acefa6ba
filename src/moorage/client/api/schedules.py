"""Routes of the group Scheduled functions. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class Schedules:
    """Methods of the group Scheduled functions."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list(self) -> List[models.ScheduledFunction]:
        """List the organization's scheduled functions, oldest first."""
        return self._transport.call(Call("GET", "/v1/scheduled-functions"), List[models.ScheduledFunction])

    def create(
        self,
        *,
        name: str,
        function: int | str,
        cron_schedule: str,
        timezone: str | UnsetType = UNSET,
        enabled: bool | UnsetType = UNSET,
        params: dict[str, Any] | UnsetType = UNSET,
        payload: dict[str, Any] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.ScheduledFunction:
        """Run a function at fixed times.

        `cronSchedule` has five fields, or is a name such as `@hourly`; times are those of `timezone`.
        """
        return self._transport.call(
            Call(
                "POST",
                "/v1/scheduled-functions",
                body=models.CreateScheduledFunctionInput(
                    name=name,
                    function=function,
                    cron_schedule=cron_schedule,
                    timezone=timezone,
                    enabled=enabled,
                    params=params,
                    payload=payload,
                ),
                key=idempotency_key,
            ),
            models.ScheduledFunction,
        )

    def read(self, schedule_id: int | str) -> models.ScheduledFunction:
        """Return a scheduled function, with its latest and its next run."""
        return self._transport.call(
            Call("GET", f"/v1/scheduled-functions/{path_part(schedule_id)}"), models.ScheduledFunction
        )

    def update(
        self,
        schedule_id: int | str,
        *,
        cron_schedule: str | UnsetType = UNSET,
        timezone: str | UnsetType = UNSET,
        enabled: bool | UnsetType = UNSET,
        params: dict[str, Any] | UnsetType = UNSET,
        payload: dict[str, Any] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.ScheduledFunction:
        """Update the times, the parameters or `enabled` of a scheduled function.

        New times, a new timezone and `enabled` apply from now on. New `params` do not move the next run.
        """
        return self._transport.call(
            Call(
                "PATCH",
                f"/v1/scheduled-functions/{path_part(schedule_id)}",
                body=models.UpdateScheduledFunctionInput(
                    cron_schedule=cron_schedule, timezone=timezone, enabled=enabled, params=params, payload=payload
                ),
                key=idempotency_key,
            ),
            models.ScheduledFunction,
        )

    def delete(self, schedule_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Delete a scheduled function. A running run is not cancelled and does not count."""
        self._transport.call(
            Call("DELETE", f"/v1/scheduled-functions/{path_part(schedule_id)}", key=idempotency_key), None
        )

    def run(self, schedule_id: int | str, *, idempotency_key: str | None = None) -> models.InvokeFunctionResult:
        """Run a scheduled function now, even if it is disabled, and return the result.

        The run counts like any other and does not move the next run.
        """
        return self._transport.call(
            Call("POST", f"/v1/scheduled-functions/{path_part(schedule_id)}/run", key=idempotency_key),
            models.InvokeFunctionResult,
        )

    def read_next_runs(self, *, expression: str, timezone: str | None = None) -> models.CronPreview:
        """Return a cron expression in words, and its next five runs.

        `at` is in UTC, `localTime` in `timezone` with its offset. The same rules hold for scheduled
        functions, cronjobs and backups.
        """
        return self._transport.call(
            Call("GET", "/v1/cron/next", query={"expression": expression, "timezone": timezone}), models.CronPreview
        )
