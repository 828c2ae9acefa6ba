"""HTTP routes of the platform's operators. For all other callers they do not exist."""

from __future__ import annotations

from moorage.accounts.identity import users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.operators import commands
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.schemas import ActivityOut
from moorage.accounts.identity.users import User
from moorage.accounts.operator import machine, machines, tenants
from moorage.accounts.operator.disk_areas import DiskAreas
from moorage.accounts.operator.handlers import RegisteredHandlers
from moorage.accounts.operator.schemas import (
    FailingJobsQuery,
    OperatorDisk,
    OperatorJob,
    OperatorMachine,
    OperatorOrganization,
    OperatorOrganizationDetail,
    OperatorProcess,
    OperatorQueues,
    OperatorUser,
    RemovedMachine,
    RemoveMachineQuery,
    TenantsQuery,
    UpdateMachineInput,
    UpdateTenantInput,
    UpdateUserInput,
    UsersQuery,
)
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.scope import PLATFORM_ORG_ID
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.paging import CursorPage, CursorQuery, Page, cut, read_cursor
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Scope
from moorage.core.jobs import queues
from moorage.core.jobs.queues import FailingJob
from moorage.core.kit.decoding import decode
from moorage.errors import Conflict


def make_router(db: Database, handlers: RegisteredHandlers) -> Router:
    router = Router("Operator")
    _add_machine(router, db)
    _add_jobs(router, handlers)
    _add_organizations(router)
    _add_users(router)
    return router


def _add_machine(router: Router, db: Database) -> None:
    areas = DiskAreas(db.env.settings, db.env.clock)

    @router.get("/operator/machines", scope=Scope.OPERATOR)
    def list_machines(tx: Tx, caller: Caller) -> list[OperatorMachine]:
        """List the machines of the platform: CPUs, load averages, memory, disk, versions, and what they run.

        `status` is `active`, `draining` or `gone`. Figures of other machines are those of their last heartbeat.
        """
        return [OperatorMachine.of(each) for each in machines.list_all(tx)]

    @router.patch("/operator/machines/{name}", scope=Scope.OPERATOR)
    def update_machine(tx: Tx, caller: Caller, name: str, body: UpdateMachineInput) -> OperatorMachine:
        """Drain a machine, or undo that.

        Each stateless app starts elsewhere before its replicas here are stopped, without a failed request. Databases
        and apps with volumes stay, because their data is on the machine.
        """
        return OperatorMachine.of(machines.set_draining(tx, name, caller.as_actor, draining=body.draining))

    @router.delete("/operator/machines/{name}", scope=Scope.OPERATOR)
    def remove_machine(tx: Tx, caller: Caller, name: str, query: RemoveMachineQuery) -> RemovedMachine:
        """Forget a machine that is gone. Refused while it runs.

        Also refused while it has databases, volumes or repositories, unless `lost` says that they are lost for good.
        """
        machines.remove(tx, name, caller.as_actor, is_lost=query.lost)
        return RemovedMachine(name, True)

    @router.get("/operator/processes", scope=Scope.OPERATOR)
    def list_processes(tx: Tx, caller: Caller) -> list[OperatorProcess]:
        """List the platform's processes on this machine.

        `cpuMs` is the CPU time since `startedAt`, without child processes; `restarts` counts since the supervisor
        started.
        """
        return [OperatorProcess.of(each, tx.env.clock.now()) for each in machine.processes(tx.env.settings)]

    @router.get("/operator/disk", scope=Scope.OPERATOR)
    async def read_disk(caller: Caller, request: Request) -> OperatorDisk:
        """Return the size of the data folder by area, at most five minutes old, and the free space.

        Backups of databases are part of `artifacts`. Nothing is stored while less than `reserveBytes` are free.
        """
        return OperatorDisk.of(await areas.report())

    @router.get("/operator/activity", scope=Scope.OPERATOR)
    def list_operator_activity(tx: Tx, caller: Caller, query: CursorQuery) -> CursorPage[ActivityOut]:
        """Return the activity of operators, newest first."""
        place, key = "operator-activity", tx.env.cursor_key
        position = read_cursor(key, place, query.cursor)
        rows = audit.latest(tx, PLATFORM_ORG_ID, before=position[0] if position else None, most=query.limit + 1)
        page, more = cut(key, place, rows, query.limit, lambda row: row.seq)
        return CursorPage([ActivityOut.of(row) for row in page], more)


def _add_jobs(router: Router, handlers: RegisteredHandlers) -> None:
    @router.get("/operator/queues", scope=Scope.OPERATOR)
    def list_queues(tx: Tx, caller: Caller) -> OperatorQueues:
        """Return the number of queued, running and failed jobs by kind and lane.

        `oldestAgeMs` is the age of the oldest one; `overdueMs` says how long the first queued job is due.
        """
        return OperatorQueues.of(queues.depths(tx), tx.now)

    @router.get("/operator/jobs", scope=Scope.OPERATOR)
    def list_failing_jobs(tx: Tx, caller: Caller, query: FailingJobsQuery) -> Page[OperatorJob]:
        """List jobs that failed (`state=failed`), or wait for another attempt after an error (`state=retrying`).

        `canRetry` and `canDiscard` say what is safe: a failed job that has marked its resource as failed is not run
        again, and a queued one whose resource would stay between two states is not discarded.
        """
        jobs, total = queues.failing(tx, query.state, skip=query.offset, most=query.page_size)
        return Page([OperatorJob.of(each, has_undo=handlers.has_undo(each)) for each in jobs], total)

    @router.post("/operator/jobs/{job_id}/retry", scope=Scope.OPERATOR)
    def retry_job(tx: Tx, caller: Caller, job_id: int) -> OperatorJob:
        """Run a failed or waiting job now."""
        job = queues.get(tx, job_id)
        queues.retry(tx, job, was_undone=handlers.has_undo(job))
        operator_role.record(tx, caller.as_actor, "job.retried", _target(job))
        return OperatorJob.of(queues.get(tx, job_id), has_undo=handlers.has_undo(job))

    @router.delete("/operator/jobs/{job_id}", scope=Scope.OPERATOR)
    def discard_job(tx: Tx, caller: Caller, job_id: int) -> None:
        """Remove a failed job from the list, or end a waiting one as failed."""
        job = queues.get(tx, job_id)
        handler = handlers.find(job)

        def undo() -> None:
            assert handler is not None
            assert handler.on_failure is not None
            handler.on_failure(tx, decode(job.payload, handler.payload))

        queues.discard(tx, job, undo if handlers.has_undo(job) else None, "an operator discarded it")
        operator_role.record(tx, caller.as_actor, "job.discarded", _target(job))


def _target(job: FailingJob) -> AuditTarget:
    return AuditTarget("job", f"{job.kind} {job.id}")


def _add_organizations(router: Router) -> None:
    @router.get("/operator/organizations", scope=Scope.OPERATOR)
    def list_tenants(tx: Tx, caller: Caller, query: TenantsQuery) -> Page[OperatorOrganization]:
        """List the organizations of the platform, newest first.

        `search` matches name, slug, id and the owner's mail address.
        """
        organizations, total = tenants.page(tx, query.search, skip=query.offset, most=query.page_size)
        return Page([OperatorOrganization.of(each, tenants.counts(tx, each.id)) for each in organizations], total)

    @router.get("/operator/organizations/{organization_id}", scope=Scope.OPERATOR)
    def read_tenant(tx: Tx, caller: Caller, organization_id: int) -> OperatorOrganizationDetail:
        """Return an organization with its resources and its metered usage of this month."""
        return _tenant(tx, organization_id)

    @router.patch("/operator/organizations/{organization_id}", scope=Scope.OPERATOR)
    def update_tenant(
        tx: Tx, caller: Caller, organization_id: int, body: UpdateTenantInput
    ) -> OperatorOrganizationDetail:
        """Suspend an organization, lift that, or set its plan or card status.

        Requests to a suspended organization get 403. Its apps, sites and functions keep running.
        """
        sent, actor = body.sent(), caller.as_actor
        tenants.get(tx, organization_id)
        if "suspended" in sent:
            commands.suspend_organization(tx, organization_id, actor, suspended=body.suspended)
        if "plan" in sent:
            commands.set_plan(tx, organization_id, body.plan, actor)
        if "card_verified" in sent:
            commands.set_card(tx, organization_id, actor, verified=body.card_verified)
        return _tenant(tx, organization_id)


def _tenant(tx: Tx, org_id: int) -> OperatorOrganizationDetail:
    return OperatorOrganizationDetail.of(
        tenants.get(tx, org_id), tenants.counts(tx, org_id), tenants.metered(tx, org_id)
    )


def _add_users(router: Router) -> None:
    @router.get("/operator/users", scope=Scope.OPERATOR)
    def list_users(tx: Tx, caller: Caller, query: UsersQuery) -> Page[OperatorUser]:
        """List the users of the platform, newest first; `status=pending` are those that await approval."""
        users, total = tenants.users_page(tx, query.search, query.status, skip=query.offset, most=query.page_size)
        return Page([_user(tx, each) for each in users], total)

    @router.patch("/operator/users/{user_id}", scope=Scope.OPERATOR)
    def update_user(tx: Tx, caller: Caller, user_id: int, body: UpdateUserInput) -> OperatorUser:
        """Approve a user, suspend one, or lift that. Operators cannot be suspended."""
        user, sent = users.get(tx, user_id), body.sent()
        if "approved" in sent:
            commands.approve(tx, user, caller.as_actor)
        if "suspended" in sent:
            if body.suspended and operator_role.is_operator(tx, user):
                raise Conflict("An operator cannot be suspended; run on the host: moorage admin revoke-operator EMAIL")
            commands.suspend(tx, user, caller.as_actor, suspended=body.suspended)
        return _user(tx, users.get(tx, user_id))


def _user(tx: Tx, user: User) -> OperatorUser:
    return OperatorUser.of(user, is_operator=operator_role.is_operator(tx, user))
