"""Routes of cronjobs, their runs and the logs of their builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.paging import Page, PageQuery
from moorage.core.http.route import Router, Uuid
from moorage.core.http.waiting import Progress
from moorage.products.cronjobs import building, service
from moorage.products.cronjobs.schemas import (
    BuildLogs,
    CreateCronjobInput,
    CronjobDetail,
    CronjobExecution,
    CronjobListItem,
    CronjobMutationResult,
    TriggerCronjobResult,
    UpdateCronjobInput,
)
from moorage.products.cronjobs.states import BUILD, EXECUTION, CronjobStatus
from moorage.products.projects import pushed
from moorage.products.projects.deployments.schemas import LogLine

_SWITCHES = "POST /v1/cronjobs/{name}/pause or POST /v1/cronjobs/{name}/resume"
_CHANGED_BY = (("isActive", _SWITCHES), ("status", _SWITCHES))


def make_router(wake: Callable[[], None]) -> Router:
    """Return the routes; `wake` starts a round of the run reconciler."""
    router = Router("Cronjobs")
    _add_reads(router)
    _add_writes(router, wake)
    _add_switches(router, wake)
    return router


def _follow_build(tx: Tx, caller: Caller, answer: CronjobMutationResult, path: Mapping[str, Any]) -> Progress:
    """Follow the build of a cronjob, if a change started one."""
    cronjob = service.get_by_id(tx, caller.org_id, answer.id)
    if answer.deployment_uuid is None:
        return Progress(msgspec.structs.replace(answer, status=cronjob.status), True)
    build = building.get_by_uuid(tx, caller.org_id, cronjob, answer.deployment_uuid)
    return Progress(CronjobMutationResult.of(cronjob, build), build.status in BUILD.terminal)


def _follow_execution(tx: Tx, caller: Caller, answer: TriggerCronjobResult, path: Mapping[str, Any]) -> Progress:
    execution = service.get_execution_by_uuid(tx, caller.org_id, answer.execution_uuid)
    return Progress(TriggerCronjobResult(execution.uuid, execution.status), execution.status in EXECUTION.terminal)


def _follow_delete(tx: Tx, caller: Caller, answer: None, path: Mapping[str, Any]) -> Progress:
    cronjob = service.find(tx, caller.org_id, path["name"])
    return Progress(answer, cronjob is None or cronjob.status != CronjobStatus.DELETING)


def _add_reads(router: Router) -> None:
    @router.get("/cronjobs", paid=True)
    def list_cronjobs(tx: Tx, caller: Caller, query: PageQuery) -> Page[CronjobListItem]:
        """List the organization's cronjobs, newest first."""
        cronjobs = service.page(tx, caller.org_id, skip=query.offset, most=query.page_size)
        items = [CronjobListItem.of(each, service.next_run_at(tx, caller.org_id, each)) for each in cronjobs]
        return Page(items, service.count(tx, caller.org_id))

    @router.get("/cronjobs/{name}", paid=True)
    def read_cronjob(tx: Tx, caller: Caller, name: str) -> CronjobDetail:
        """Return a cronjob with its settings; secrets are never part of it."""
        cronjob = service.get(tx, caller.org_id, name)
        return CronjobDetail.of(cronjob, service.next_run_at(tx, caller.org_id, cronjob))

    @router.get("/cronjobs/{name}/executions", paid=True)
    def list_executions(tx: Tx, caller: Caller, name: str, query: PageQuery) -> Page[CronjobExecution]:
        """List the runs of a cronjob, newest first."""
        cronjob = service.get(tx, caller.org_id, name)
        rows = service.executions(tx, caller.org_id, cronjob, skip=query.offset, most=query.page_size)
        total = service.count_executions(tx, caller.org_id, cronjob)
        return Page([CronjobExecution.of(each) for each in rows], total)

    @router.get("/cronjobs/{name}/builds/{uuid}/logs", paid=True)
    def read_build_logs(tx: Tx, caller: Caller, name: str, uuid: Uuid) -> BuildLogs:
        """Return the log and the status of a cronjob's build, by its `deploymentUuid`."""
        cronjob = service.get(tx, caller.org_id, name)
        build = building.get_by_uuid(tx, caller.org_id, cronjob, uuid)
        lines = building.lines(tx, caller.org_id, build)
        text = "".join(f"{line.message}\n" for line in lines)
        return BuildLogs(build.uuid, build.status, build.commit_sha, text, [LogLine.of(line) for line in lines])


def _add_writes(router: Router, wake: Callable[[], None]) -> None:
    @router.post(
        "/cronjobs",
        min_role=Role.MEMBER,
        paid=True,
        identifies=(("/v1/cronjobs/{name}/builds/{uuid}", "deploymentUuid"),),
        follow=_follow_build,
    )
    def create_cronjob(tx: Tx, caller: Caller, body: CreateCronjobInput) -> CronjobMutationResult:
        """Create a cronjob from a repository or a public image.

        A repository is built first; `deploymentUuid` names that build. `cronSchedule` is a cron expression of five
        fields or a name such as `@hourly`, in UTC.
        """
        assert caller.standing is not None
        new, actor = body.new(), caller.as_actor
        pushed.make_way(tx, caller.org_id, actor, repository=new.repository_name, branch=new.branch)
        cronjob, build = service.create(tx, caller.org_id, actor, caller.standing, new, body.hidden())
        return CronjobMutationResult.of(cronjob, build)

    @router.patch("/cronjobs/{name}", min_role=Role.MEMBER, paid=True, changed_by=_CHANGED_BY, follow=_follow_build)
    def update_cronjob(tx: Tx, caller: Caller, name: str, body: UpdateCronjobInput) -> CronjobMutationResult:
        """Change a cronjob; a change of its source or build settings starts a build.

        Runs use the previous build until the new one succeeds. `env` replaces all variables and `secrets` all secrets;
        a secret without a value keeps its value.
        """
        cronjob, build = service.update(tx, caller.org_id, caller.as_actor, name, body.changes(), body.hidden())
        return CronjobMutationResult.of(cronjob, build)

    @router.delete("/cronjobs/{name}", min_role=Role.MEMBER, paid=True, follow=_follow_delete)
    def delete_cronjob(tx: Tx, caller: Caller, name: str) -> None:
        """Delete a cronjob with its runs and their logs. A running run is stopped."""
        service.delete(tx, caller.org_id, caller.as_actor, name)
        tx.after_commit(wake)


def _add_switches(router: Router, wake: Callable[[], None]) -> None:
    @router.post("/cronjobs/{name}/pause", min_role=Role.MEMBER, paid=True)
    def pause_cronjob(tx: Tx, caller: Caller, name: str) -> CronjobMutationResult:
        """Stop scheduled runs. A running run continues, and `trigger` still works."""
        return CronjobMutationResult.of(service.pause(tx, caller.org_id, caller.as_actor, name))

    @router.post("/cronjobs/{name}/resume", min_role=Role.MEMBER, paid=True)
    def resume_cronjob(tx: Tx, caller: Caller, name: str) -> CronjobMutationResult:
        """Start scheduled runs again, from now on."""
        return CronjobMutationResult.of(service.resume(tx, caller.org_id, caller.as_actor, name))

    @router.post(
        "/cronjobs/{name}/trigger",
        min_role=Role.MEMBER,
        paid=True,
        identifies=(("/v1/cronjobs/executions/{uuid}", "executionUuid"),),
        follow=_follow_execution,
    )
    def trigger_cronjob(tx: Tx, caller: Caller, name: str) -> TriggerCronjobResult:
        """Run a cronjob now. The next scheduled run does not change."""
        execution = service.trigger(tx, caller.org_id, caller.as_actor, name)
        tx.after_commit(wake)
        return TriggerCronjobResult(execution.uuid, execution.status)
