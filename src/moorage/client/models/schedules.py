"""Models of the group schedules. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.client.model import List, Model


class ScheduledFunction(Model, kw_only=True):
    id: int
    name: str
    function_id: int
    function_name: str | None
    organization_id: str
    cron_schedule: str
    timezone: str
    enabled: bool
    params: dict[str, Any] | None
    last_run_at: str | None
    next_run_at: str | None
    last_status: str | None
    last_error: str | None
    total_runs: int
    created_at: str | None
    updated_at: str | None


class CronPreview(Model, kw_only=True):
    expression: str
    timezone: str
    description: str
    next_runs: List[CronRun]


class CronRun(Model, kw_only=True):
    at: str
    local_time: str


class CreateScheduledFunctionInput(Model, kw_only=True):
    name: str
    # A function's id, or its name.
    function: int | str
    cron_schedule: str
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    # The parameters of each run; `{}` if omitted.
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    # Alias of `params`; ignored if `params` is sent too.
    payload: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class UpdateScheduledFunctionInput(Model, kw_only=True):
    cron_schedule: str | msgspec.UnsetType = msgspec.UNSET
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    # Alias of `params`; ignored if `params` is sent too.
    payload: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
