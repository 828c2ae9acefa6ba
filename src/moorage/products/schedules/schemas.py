"""Request and response models of the scheduled function routes."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field

from moorage.core.http.models import Input, Output, QueryInput, optional
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.cron import MAX_EXPRESSION_CHARS, MAX_TIMEZONE_CHARS, BadCron, BadTimezone, Cron
from moorage.products.schedules.service import Changes, New
from moorage.products.schedules.tables import Schedule

MAX_PARAMS_BYTES = 64 * 1024  # The list of schedules returns the parameters of all.


def _cron(text: str) -> str:
    try:
        Cron.parse(text)
    except BadCron as error:
        raise ValueError(str(error)) from None
    return text


def _timezone(name: str) -> str:
    try:
        Cron.parse("@daily", name)
    except BadTimezone as error:
        raise ValueError(str(error)) from None
    return name


def _function(value: Any) -> Any:
    is_id = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not is_id and not (isinstance(value, str) and value):
        raise ValueError("should be a function's id, a whole number above 0, or its name")
    return value


def _params_size(params: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(params)) > MAX_PARAMS_BYTES:
        raise ValueError(f"should have at most {MAX_PARAMS_BYTES:,} bytes as JSON")
    return params


Name = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
FunctionRef = Annotated[int | str, BeforeValidator(_function), Field(description="A function's id, or its name.")]
CronText = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_CHARS), AfterValidator(_cron)]
Timezone = Annotated[str, Field(min_length=1, max_length=MAX_TIMEZONE_CHARS), AfterValidator(_timezone)]
Params = Annotated[dict[str, Any], AfterValidator(_params_size)]
SHOWN_RUNS = 5


class CronQuery(QueryInput):
    expression: CronText
    timezone: Timezone = "UTC"


class CronRun(Output, frozen=True):
    at: str
    local_time: str


class CronPreview(Output, frozen=True):
    expression: str
    timezone: str
    description: str
    next_runs: list[CronRun]

    @classmethod
    def of(cls, cron: Cron, now: int) -> CronPreview:
        ticks = cron.next_runs(now, SHOWN_RUNS)
        runs = [CronRun(to_wire(tick), cron.local_time(tick)) for tick in ticks]
        return cls(cron.expression, cron.timezone, cron.describe(), runs)


class CreateScheduledFunctionInput(Input):
    name: Name
    function: FunctionRef
    cron_schedule: CronText
    timezone: Timezone = "UTC"
    enabled: bool = True
    params: Params = optional(description="The parameters of each run; `{}` if omitted.")
    payload: Params = optional(description="Alias of `params`; ignored if `params` is sent too.")

    def new(self) -> New:
        params = _params(self.params, self.payload)
        return New(self.name, self.function, Cron.parse(self.cron_schedule, self.timezone), self.enabled, params or {})


class UpdateScheduledFunctionInput(Input):
    cron_schedule: CronText = optional()
    timezone: Timezone = optional()
    enabled: bool = optional()
    params: Params = optional()
    payload: Params = optional(description="Alias of `params`; ignored if `params` is sent too.")

    def changes(self) -> Changes:
        return Changes(self.cron_schedule, self.timezone, self.enabled, _params(self.params, self.payload))


def _params(params: Params | None, payload: Params | None) -> Params | None:
    return payload if params is None else params


class ScheduledFunction(Output, frozen=True):
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

    @classmethod
    def of(cls, row: Schedule) -> ScheduledFunction:
        return cls(
            id=row.id,
            name=row.name,
            function_id=row.function_id,
            function_name=row.function_name,
            organization_id=str(row.org_id),
            cron_schedule=row.cron,
            timezone=row.timezone,
            enabled=row.enabled,
            # Stored as JSON; sent without parsing.
            params=cast("dict[str, Any]", msgspec.Raw(row.params.encode())),
            last_run_at=to_wire_or_none(row.last_run_at),
            next_run_at=to_wire_or_none(row.next_run_at),
            last_status=row.last_status,
            last_error=row.last_error,
            total_runs=row.total_runs,
            created_at=to_wire(row.created_at),
            updated_at=to_wire(row.updated_at),
        )
