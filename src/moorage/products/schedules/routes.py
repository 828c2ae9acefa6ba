"""Scheduled functions: a function, when it runs, and what it is given."""

from __future__ import annotations

from typing import cast

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.answer import failure
from moorage.core.http.request import Request
from moorage.core.http.route import Router
from moorage.errors import RateLimited
from moorage.products.functions.routes import BUSY_S
from moorage.products.functions.schemas import InvokeFunctionResult
from moorage.products.schedules import service
from moorage.products.schedules.runner import ScheduleRunner
from moorage.products.schedules.schemas import (
    CreateScheduledFunctionInput,
    ScheduledFunction,
    UpdateScheduledFunctionInput,
)


def make_router(runner: ScheduleRunner) -> Router:
    router = Router("Scheduled functions")

    @router.get("/scheduled-functions")
    def list_scheduled_functions(tx: Tx, caller: Caller) -> list[ScheduledFunction]:
        """List the organization's scheduled functions, oldest first."""
        return [ScheduledFunction.of(found) for found in service.all_of(tx, caller.org_id)]

    @router.post("/scheduled-functions", floor=Role.MEMBER)
    def create_scheduled_function(tx: Tx, caller: Caller, body: CreateScheduledFunctionInput) -> ScheduledFunction:
        """Run a function at fixed times.

        `cronSchedule` has five fields, or is a name such as `@hourly`; times are those of `timezone`.
        """
        return ScheduledFunction.of(service.create(tx, caller.org_id, caller.as_actor, body.new()))

    @router.get("/scheduled-functions/{schedule_id}", point=True)
    def read_scheduled_function(tx: Tx, caller: Caller, schedule_id: int) -> ScheduledFunction:
        """Return a scheduled function, with its latest and its next run."""
        return ScheduledFunction.of(service.get(tx, caller.org_id, schedule_id))

    @router.patch("/scheduled-functions/{schedule_id}", floor=Role.MEMBER)
    def update_scheduled_function(
        tx: Tx, caller: Caller, schedule_id: int, body: UpdateScheduledFunctionInput
    ) -> ScheduledFunction:
        """Change when a scheduled function runs, whether it does, or what it is given.

        Another time, zone or switch counts from now. New `params` keep the next run where it is.
        """
        changed = service.update(tx, caller.org_id, caller.as_actor, schedule_id, body.changes())
        return ScheduledFunction.of(changed)

    @router.delete("/scheduled-functions/{schedule_id}", floor=Role.MEMBER)
    def delete_scheduled_function(tx: Tx, caller: Caller, schedule_id: int) -> None:
        """Delete a scheduled function. A run that is under way ends on its own and no longer counts."""
        service.delete(tx, caller.org_id, caller.as_actor, schedule_id)

    @router.post("/scheduled-functions/{schedule_id}/run", floor=Role.MEMBER)
    async def run_scheduled_function(caller: Caller, request: Request, schedule_id: int) -> InvokeFunctionResult:
        """Run a scheduled function now, also one that is switched off, and return what came of it.

        The run counts like any other; the next one stays where it is.
        """
        try:
            return InvokeFunctionResult.of(await runner.run_now(caller.org_id, schedule_id))
        except RateLimited as error:
            busy = failure(error, request.trace_id)
            busy.headers.append((b"retry-after", b"%d" % BUSY_S))
            # A handler's type documents its success; the dispatcher passes a whole answer on as it is.
            return cast(InvokeFunctionResult, busy)

    return router
