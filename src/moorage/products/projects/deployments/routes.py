"""Routes of deployments and previews."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.paging import CursorPage, cut, read_cursor
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Uuid
from moorage.core.http.waiting import Progress
from moorage.core.kit.ids import MAX_ID, parse_id, parse_uuid
from moorage.products.projects import previews, service, tables
from moorage.products.projects.deployments import logs
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.schemas import DeploymentOut, DeploymentStatusInfo, PreviewOut
from moorage.products.projects.deployments.states import DEPLOYMENT
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.schemas import (
    ApprovePreviewInput,
    CreateProjectResult,
    DeployInput,
    DeploymentRef,
    DeploymentsQuery,
    DeploymentStarted,
    RollbackInput,
    UploadResult,
)

# Link of the OpenAPI document from a response to its deployment.
_DEPLOYMENT = (("/v1/deployments/{uuid}", "deploymentUuid"),)


def make_router(db: Database, followers: Followers) -> Router:
    router = Router("Deployments")
    _add_writes(router)
    _add_reads(router, db, followers)
    _add_previews(router)
    return router


def follow_deployment(
    tx: Tx,
    caller: Caller,
    answer: CreateProjectResult | DeploymentRef | DeploymentStarted | UploadResult,
    path: Mapping[str, Any],
) -> Progress:
    """Follow the deployment that an answer names."""
    uuid = answer.upload_id if isinstance(answer, UploadResult) else answer.deployment_uuid
    deployment = deployments.get_by_uuid(tx, caller.org_id, uuid)
    is_terminal = deployment.status in DEPLOYMENT.terminal
    return Progress(msgspec.structs.replace(answer, status=deployment.status), is_terminal)


def follow_preview(tx: Tx, caller: Caller, answer: PreviewOut, path: Mapping[str, Any]) -> Progress:
    """Follow the deployments of a preview."""
    project = service.get(tx, caller.org_id, path["name"])
    preview = previews.get(tx, caller.org_id, project, answer.number)
    has_ended = all(
        each.status in DEPLOYMENT.terminal
        for each in tx.all(rows.OF_PREVIEW, org_id=caller.org_id, preview_id=preview.id)
    )
    return Progress(PreviewOut.of(preview, tx.env.settings), has_ended)


def _started(deployment: Deployment) -> DeploymentStarted:
    return DeploymentStarted(deployment.id, deployment.uuid, deployment.project_id)


def _add_writes(router: Router) -> None:
    @router.post(
        "/projects/{name}/deploy",
        min_role=Role.MEMBER,
        status=202,
        body_optional=True,
        identifies=_DEPLOYMENT,
        follow=follow_deployment,
    )
    def deploy_project(tx: Tx, caller: Caller, name: str, body: DeployInput) -> DeploymentStarted:
        """Deploy a commit, or the head of the tracked branch.

        `operation` is `deploy`, `rebuild` (without caches) or `restart` (publish the live release again).
        """
        actor = caller.as_actor
        return _started(deployments.deploy(tx, caller.org_id, actor, name, body.operation, body.commit_sha))

    @router.post(
        "/projects/{name}/redeploy",
        min_role=Role.MEMBER,
        status=202,
        identifies=_DEPLOYMENT,
        follow=follow_deployment,
    )
    def redeploy_project(tx: Tx, caller: Caller, name: str) -> DeploymentStarted:
        """Build the commit of the live release again."""
        return _started(deployments.redeploy(tx, caller.org_id, caller.as_actor, name))

    @router.post("/projects/{name}/rollback", min_role=Role.MEMBER, identifies=_DEPLOYMENT, follow=follow_deployment)
    def roll_project_back(tx: Tx, caller: Caller, name: str, body: RollbackInput) -> DeploymentRef:
        """Publish an earlier release again as a new deployment, without a build."""
        uuid = parse_uuid(body.deployment_uuid) or ""
        return DeploymentRef(deployments.rollback(tx, caller.org_id, caller.as_actor, name, uuid).uuid)


def _add_reads(router: Router, db: Database, followers: Followers) -> None:
    @router.get("/projects/{name}/deployments")
    def list_deployments(tx: Tx, caller: Caller, name: str, query: DeploymentsQuery) -> CursorPage[DeploymentOut]:
        """List a project's deployments, newest first. `enable` is true for the live one."""
        project = service.get(tx, caller.org_id, name)
        place, key = f"deployments:{caller.org_id}:{project.id}", tx.env.cursor_key
        position = read_cursor(key, place, query.cursor)
        before = position[0] if position else MAX_ID
        rows = deployments.page(tx, caller.org_id, project, before=before, most=query.limit + 1)
        page, more = cut(key, place, rows, query.limit, lambda shown: shown.deployment.id)
        return CursorPage([DeploymentOut.of(each, project) for each in page], more)

    @router.get("/deployments/{uuid}/status")
    def read_deployment_status(tx: Tx, caller: Caller, uuid: Uuid) -> DeploymentStatusInfo:
        """Return the status of a deployment; `queuePosition` counts from 1."""
        deployment = deployments.get_by_uuid(tx, caller.org_id, uuid)
        project = service.get_by_id(tx, caller.org_id, deployment.project_id)
        preview = service.find_preview(tx, caller.org_id, deployment.preview_id)
        return DeploymentStatusInfo.of(
            deployment, project, preview, deployments.position(tx, deployment), tx.env.settings
        )

    @router.get("/deployments/{uuid}/logs/stream", events=True)
    async def follow_deployment(caller: Caller, uuid: Uuid, request: Request) -> Stream:
        """Follow a deployment as server-sent events: `log`, `status`, and finally `done`.

        The stream starts with the first line. A client that reconnects with `Last-Event-ID`, as browsers do, gets the
        lines after that event.
        """
        deployment = await db.read(partial(deployments.get_by_uuid, org_id=caller.org_id, uuid=uuid))
        seen = parse_id(request.header(b"last-event-id") or "-") or 0
        return sse.stream(logs.follow(db, followers, caller.org_id, deployment.id, seen))


def _add_previews(router: Router) -> None:
    @router.get("/projects/{name}/previews")
    def list_previews(tx: Tx, caller: Caller, name: str) -> list[PreviewOut]:
        """List the previews of a project's pull requests."""
        project = service.get(tx, caller.org_id, name)
        rows = tx.all(tables.PREVIEWS, org_id=caller.org_id, project_id=project.id)
        return [PreviewOut.of(each, tx.env.settings) for each in rows]

    @router.post(
        "/projects/{name}/previews/{number}/approve", min_role=Role.MEMBER, body_optional=True, follow=follow_preview
    )
    def approve_preview(tx: Tx, caller: Caller, name: str, number: int, body: ApprovePreviewInput) -> PreviewOut:
        """Approve a build of a fork's commit, without the project's secrets.

        `commitSha` is the reviewed commit: its full id, or the 12 characters of `commitId`. If the pull request has
        another commit by now, the response is 409 and nothing is built.
        """
        approved = previews.approve(tx, caller.org_id, caller.as_actor, name, number, commit_sha=body.commit_sha)
        return PreviewOut.of(approved, tx.env.settings)
