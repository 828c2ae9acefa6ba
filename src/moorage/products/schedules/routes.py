"""Routes of scheduled functions."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Scope
from moorage.core.kit.cron import Cron
from moorage.errors import RateLimited
from moorage.products.functions.routes import busy_response
from moorage.products.functions.schemas import InvokeFunctionResult
from moorage.products.schedules import service
from moorage.products.schedules.runner import ScheduleRunner
from moorage.products.schedules.schemas import (
    CreateScheduledFunctionInput,
    CronPreview,
    CronQuery,
    ScheduledFunction,
    UpdateScheduledFunctionInput,
)

_RECREATE = "DELETE /v1/scheduled-functions/{schedule_id} and POST /v1/scheduled-functions"
_CHANGED_BY = (("function", _RECREATE), ("functionId", _RECREATE), ("functionName", _RECREATE))


def make_router(runner: ScheduleRunner) -> Router:
    router = Router("Scheduled functions")

    @router.get("/scheduled-functions")
    def list_scheduled_functions(tx: Tx, caller: Caller) -> list[ScheduledFunction]:
        """List the organization's scheduled functions, oldest first."""
        return [ScheduledFunction.of(schedule) for schedule in service.all_of(tx, caller.org_id)]

    @router.post("/scheduled-functions", min_role=Role.MEMBER)
    def create_scheduled_function(tx: Tx, caller: Caller, body: CreateScheduledFunctionInput) -> ScheduledFunction:
        """Run a function at fixed times.

        `cronSchedule` has five fields, or is a name such as `@hourly`; times are those of `timezone`.
        """
        return ScheduledFunction.of(service.create(tx, caller.org_id, caller.as_actor, body.new()))

    @router.get("/scheduled-functions/{schedule_id}", point=True)
    def read_scheduled_function(tx: Tx, caller: Caller, schedule_id: int) -> ScheduledFunction:
        """Return a scheduled function, with its latest and its next run."""
        return ScheduledFunction.of(service.get(tx, caller.org_id, schedule_id))

    @router.patch("/scheduled-functions/{schedule_id}", min_role=Role.MEMBER, changed_by=_CHANGED_BY)
    def update_scheduled_function(
        tx: Tx, caller: Caller, schedule_id: int, body: UpdateScheduledFunctionInput
    ) -> ScheduledFunction:
        """Update the times, the parameters or `enabled` of a scheduled function.

        New times, a new timezone and `enabled` apply from now on. New `params` do not move the next run.
        """
        schedule = service.update(tx, caller.org_id, caller.as_actor, schedule_id, body.changes())
        return ScheduledFunction.of(schedule)

    @router.delete("/scheduled-functions/{schedule_id}", min_role=Role.MEMBER)
    def delete_scheduled_function(tx: Tx, caller: Caller, schedule_id: int) -> None:
        """Delete a scheduled function. A running run is not cancelled and does not count."""
        service.delete(tx, caller.org_id, caller.as_actor, schedule_id)

    @router.post("/scheduled-functions/{schedule_id}/run", min_role=Role.MEMBER)
    async def run_scheduled_function(caller: Caller, request: Request, schedule_id: int) -> InvokeFunctionResult:
        """Run a scheduled function now, even if it is disabled, and return the result.

        The run counts like any other and does not move the next run.
        """
        try:
            return InvokeFunctionResult.of(await runner.run_now(caller.org_id, schedule_id))
        except RateLimited as error:
            return busy_response(error, request)

    @router.get("/cron/next", scope=Scope.IDENTITY)
    def read_next_runs(tx: Tx, caller: Caller, query: CronQuery) -> CronPreview:
        """Return a cron expression in words, and its next five runs.

        `at` is in UTC, `localTime` in `timezone` with its offset. The same rules hold for scheduled functions, cronjobs
        and backups.
        """
        return CronPreview.of(Cron.parse(query.expression, query.timezone), tx.now)

    return router
