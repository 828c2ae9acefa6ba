"""Routes of projects, without deployments (`deployments.routes`) and uploads.

A route that changes the gateway's routes answers after the gateway has applied the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.schemas import ActivityOut
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.envvars import RevealedSecret, RevealInput, SecretName
from moorage.core.http.idempotency.once import Write
from moorage.core.http.paging import CursorPage, CursorQuery, cut, read_cursor
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.core.kit.ids import MAX_ID
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import bad_field
from moorage.products.projects import compute, pushed, service
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.routes import follow_deployment
from moorage.products.projects.deployments.schemas import latest_of
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.deployments.states import DEPLOYMENT
from moorage.products.projects.route_sync import SyncRoutes
from moorage.products.projects.schemas import (
    CreateProjectInput,
    CreateProjectResult,
    DeletedProject,
    NameAvailability,
    NameQuery,
    ProjectDetail,
    ProjectListItem,
    ProjectsQuery,
    RenameInput,
    ToggleInput,
    UpdateProjectInput,
)
from moorage.products.projects.tables import Project

_CHANGED_BY = (("enabled", "POST /v1/projects/{name}/toggle"),)


@dataclass(frozen=True)
class RouteServices:
    """Services that the routes of projects use."""

    db: Database
    remove_unused: Callable[[Iterable[str]], Awaitable[None]]  # deletes unused releases by digest
    sync_routes: SyncRoutes


def make_router(services: RouteServices) -> Router:
    router = Router("Projects")
    _add_reads(router)
    _add_writes(router, services)
    _add_secrets(router)
    return router


def detail(tx: Tx, org_id: int, project: Project, triggered: str | None = None) -> ProjectDetail:
    latest = deployments.find(tx, org_id, project.latest_deployment_id or 0)
    absences = [why for why in tx.env.hooks.call(service.ABSENCE, tx, org_id, project) if why is not None]
    return ProjectDetail.of(project, tx.env.settings, latest_of(latest), triggered, next(iter(absences), None))


def _follow_update(tx: Tx, caller: Caller, answer: ProjectDetail, path: Mapping[str, Any]) -> Progress:
    """Follow the deployment that a change of settings started, if any."""
    uuid = answer.triggered_deployment_uuid
    if isinstance(uuid, msgspec.UnsetType):
        return Progress(answer, True)
    deployment = deployments.get_by_uuid(tx, caller.org_id, uuid)
    project = service.get_by_id(tx, caller.org_id, answer.id)
    current = msgspec.structs.replace(detail(tx, caller.org_id, project, uuid), status=deployment.status)
    return Progress(current, deployment.status in DEPLOYMENT.terminal)


def _add_reads(router: Router) -> None:
    @router.get("/projects")
    def list_projects(tx: Tx, caller: Caller, query: ProjectsQuery) -> CursorPage[ProjectListItem]:
        """List the organization's projects, newest first."""
        place, key = f"projects:{caller.org_id}:{query.slug}", tx.env.cursor_key
        position = read_cursor(key, place, query.cursor)
        before = position[0] if position else MAX_ID
        rows = service.page(tx, caller.org_id, before=before, most=query.limit + 1, slug=query.slug)
        page, more = cut(key, place, rows, query.limit, lambda project: project.id)
        latest = [deployments.find(tx, caller.org_id, each.latest_deployment_id or 0) for each in page]
        items = [
            ProjectListItem.of(each, tx.env.settings, latest_of(newest))
            for each, newest in zip(page, latest, strict=True)
        ]
        return CursorPage(items, more)

    @router.get("/projects/check-name", point=True)
    def check_name(tx: Tx, caller: Caller, query: NameQuery) -> NameAvailability:
        """Return whether a name is available; names are unique on the whole platform."""
        return NameAvailability(query.name, pushed.is_available(tx, caller.org_id, query.name))

    @router.get("/projects/{name}", point=True)
    def read_project(tx: Tx, caller: Caller, name: str) -> ProjectDetail:
        """Return a project with its settings, without its secrets."""
        return detail(tx, caller.org_id, service.get(tx, caller.org_id, name))

    @router.get("/projects/{name}/audit-log")
    def read_audit_log(tx: Tx, caller: Caller, name: str, query: CursorQuery) -> CursorPage[ActivityOut]:
        """Return the audit log of a project, newest first, including its former names."""
        project = service.get(tx, caller.org_id, name)
        place, key = f"audit:{caller.org_id}:{project.id}", tx.env.cursor_key
        position = read_cursor(key, place, query.cursor)
        before = position[0] if position else None
        # By number: the periods of a name that a project got back within a millisecond overlap.
        rows = {
            row.seq: row
            for former in service.names_of(tx, caller.org_id, project)
            for row in audit.latest_of(
                tx,
                caller.org_id,
                AuditTarget("project", former.name),
                before=before,
                most=query.limit + 1,
                since=former.since,
                until=former.until,
            )
        }
        newest_first = sorted(rows.values(), key=lambda row: -row.seq)
        page, more = cut(key, place, newest_first, query.limit, lambda row: row.seq)
        return CursorPage([ActivityOut.of(row) for row in page], more)


def _add_writes(router: Router, services: RouteServices) -> None:
    @router.post(
        "/projects",
        min_role=Role.MEMBER,
        identifies=(("/v1/deployments/{uuid}", "deploymentUuid"),),
        follow=follow_deployment,
    )
    def create_project(tx: Tx, caller: Caller, body: CreateProjectInput) -> CreateProjectResult:
        """Create a project from a repository or an image and start its first deployment."""
        return _create(tx, caller, body)

    @router.patch("/projects/{name}/name", min_role=Role.MEMBER, changed_by=_CHANGED_BY)
    async def rename_project(caller: Caller, name: str, body: RenameInput, write: Write) -> ProjectDetail:
        """Rename a project. The former address redirects for a day, unless it is reused."""

        def unit(tx: Tx) -> ProjectDetail:
            renamed = service.rename(tx, caller.org_id, caller.as_actor, name, body.name)
            return detail(tx, caller.org_id, renamed)

        renamed = await write(unit)
        await services.sync_routes()
        return renamed

    @router.patch("/projects/{name}", min_role=Role.MEMBER, changed_by=_CHANGED_BY, follow=_follow_update)
    async def update_project(caller: Caller, name: str, body: UpdateProjectInput, write: Write) -> ProjectDetail:
        """Change settings of a project.

        `env` replaces all variables and `secrets` all secrets; a secret without a value keeps its stored value. A
        container app is deployed again where its variables, secrets or compute change; other changes take effect with
        the next deployment.
        """
        updated = await write(partial(_update, caller=caller, name=name, body=body))
        if body.model_fields_set.intersection(("enable_analytics", "auto_scaling")):
            await services.sync_routes()
        return updated

    @router.post("/projects/{name}/toggle", min_role=Role.MEMBER)
    async def toggle_project(caller: Caller, name: str, body: ToggleInput, write: Write) -> ProjectDetail:
        """Disable or enable a project. The address of a disabled project answers 503."""

        def unit(tx: Tx) -> ProjectDetail:
            toggled = service.toggle(tx, caller.org_id, caller.as_actor, name, enable=body.enable)
            return detail(tx, caller.org_id, toggled)

        toggled = await write(unit)
        await services.sync_routes()
        return toggled

    @router.delete("/projects/{name}", min_role=Role.ADMIN)
    async def delete_project(caller: Caller, name: str, write: Write) -> DeletedProject:
        """Delete a project with its deployments, domains, rules and secrets."""
        remove = partial(service.delete, org_id=caller.org_id, actor=caller.as_actor, name=name)
        deleted, digests = await write(remove, answer=lambda result: _deleted(result[0]))
        await services.sync_routes()
        await services.remove_unused(digests)
        return _deleted(deleted)


def _create(tx: Tx, caller: Caller, body: CreateProjectInput) -> CreateProjectResult:
    new, actor = body.root, caller.as_actor
    assert caller.standing is not None
    pushed.make_way(tx, caller.org_id, actor, name=new.name, repository=new.repository_name, branch=new.branch)
    project = service.create(tx, caller.org_id, actor, caller.standing, new.as_new(), new.hidden())
    request = DeploymentRequest(branch=project.branch, user_id=caller.user_id)
    first = deployments.start(tx, caller.org_id, project, request)
    return CreateProjectResult(project.id, project.name, first.id, first.uuid)


def _deleted(project: Project) -> DeletedProject:
    return DeletedProject(True, project.slug, project.slug == "container")


def _update(tx: Tx, caller: Caller, name: str, body: UpdateProjectInput) -> ProjectDetail:
    org_id, actor = caller.org_id, caller.as_actor
    project = service.lock(tx, org_id, name)
    changes = body.changes()
    if "public_image" in changes and project.source != "image":
        raise bad_field("publicImage", "can only be set on a project that was created with an image")
    assert caller.standing is not None
    compute.check(tx, org_id, caller.standing, changes)
    secrets = body.wanted_secrets()
    has_new_secrets = secrets is not None and service.set_secrets(tx, org_id, actor, project, secrets)
    updated = service.update(tx, org_id, actor, project, changes)
    before, after = compute.run_with(project), compute.run_with(updated)
    must_restart = has_new_secrets or before != after
    if not (must_restart and updated.slug == "container" and updated.enabled):
        return detail(tx, org_id, updated)
    started = deployments.start_again(tx, org_id, actor, updated)
    return detail(tx, org_id, service.get_by_id(tx, org_id, updated.id), started.uuid)


def _add_secrets(router: Router) -> None:
    @router.get("/projects/{name}/secrets", min_role=Role.MEMBER)
    def list_secrets(tx: Tx, caller: Caller, name: str) -> list[SecretName]:
        """List the names of a project's secrets."""
        project = service.get(tx, caller.org_id, name)
        return [SecretName(each) for each in vault.names(tx, caller.org_id, service.resource_of(project.id))]

    @router.post("/projects/{name}/secrets/reveal", min_role=Role.MEMBER, secret=True)
    def reveal_secret(tx: Tx, caller: Caller, name: str, body: RevealInput) -> RevealedSecret:
        """Return the value of one secret and record the caller in the project's audit log.

        A secret of a database link contains the database's password; only admins may read it (else 403).
        """
        is_admin = caller.role.reaches(Role.ADMIN)
        value = service.reveal(tx, caller.org_id, caller.as_actor, name, body.name, is_admin=is_admin)
        return RevealedSecret(body.name, value)
