"""Previews: deploy each pull request at its own address.

Projects opt in with `prPreview`. Code of a fork is built only after a member approved the commit, and gets no secrets.
"""

from __future__ import annotations

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor
from moorage.core.db.tx import Tx, move
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, NotFound
from moorage.products.projects import names, route_sync, service, tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.deployments.states import DEPLOYMENT, PREVIEW, PreviewStatus
from moorage.products.projects.tables import Preview, Project

CLOSED = "The pull request was closed"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Pull request as reported by the code host."""

    number: int
    title: str
    repository: str  # that contains the commits: the fork's, for a fork
    branch: str
    sha: str
    is_fork: bool


def update(tx: Tx, org_id: int, project: Project, pull: PullRequest) -> Preview | None:
    """Deploy or hold the newest commit; None if the name is not available."""
    preview = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=pull.number)
    if preview is None:
        return _open(tx, org_id, project, pull)
    if preview.status == PreviewStatus.CLOSED and not names.is_available(tx, org_id, preview.name):
        return None
    # A repository that was deleted and created again numbers its pull requests from 1, so the same number may come from
    # a fork later.
    is_fork = preview.is_fork or pull.is_fork
    tx.run(
        tables.SET_PREVIEW,
        org_id=org_id,
        id=preview.id,
        is_fork=is_fork,
        title=pull.title,
        repository_name=pull.repository,
        branch=pull.branch,
        commit_sha=pull.sha,
        now=tx.now,
    )
    if preview.status == PreviewStatus.CLOSED:
        move(tx, PREVIEW, preview, to=PreviewStatus.WAITING if is_fork else PreviewStatus.ACTIVE)
    current = _get(tx, org_id, preview.id)
    is_approved = preview.is_fork and current.commit_sha == preview.commit_sha
    if current.status == PreviewStatus.ACTIVE and is_fork and not is_approved:
        # The approval was for one commit only.
        move(tx, PREVIEW, current, to=PreviewStatus.CLOSED)
        move(tx, PREVIEW, current, to=PreviewStatus.WAITING)
        return _get(tx, org_id, preview.id)
    _deploy(tx, org_id, project, current, user_id=None)
    return current


def get(tx: Tx, org_id: int, project: Project, number: int) -> Preview:
    preview = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=min(number, 2**31 - 1))
    if preview is None:
        raise NotFound("There is no preview of that pull request")
    return preview


def approve(tx: Tx, org_id: int, actor: Actor, name: str, number: int, *, commit_sha: str | None = None) -> Preview:
    """Deploy the commit of a fork; raises Conflict if it is not `commit_sha`, which may be a prefix."""
    project = service.lock(tx, org_id, name)
    preview = get(tx, org_id, project, number)
    if preview.status != PreviewStatus.WAITING:
        raise Conflict("This preview does not wait for approval")
    move(tx, PREVIEW, preview, to=PreviewStatus.ACTIVE)
    # Read after the change of the status, which locks the row: an event of the code host may have set another commit.
    approved = _get(tx, org_id, preview.id)
    if commit_sha is not None and not approved.commit_sha.lower().startswith(commit_sha.lower()):
        raise Conflict(
            f"cannot approve {commit_sha}: pull request {number} is at {approved.commit_sha} now; "
            "review that commit first"
        )
    audit.record(
        tx,
        org_id,
        actor,
        "project.preview_approved",
        service.target_of(project),
        number=number,
        commit=approved.commit_sha,
    )
    _deploy(tx, org_id, project, approved, user_id=actor.user_id)
    return approved


def close(tx: Tx, org_id: int, project: Project, number: int) -> None:
    """Take a preview offline and release its artifacts."""
    preview = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=number)
    if preview is None or preview.status == PreviewStatus.CLOSED:
        return
    move(tx, PREVIEW, preview, to=PreviewStatus.CLOSED)
    tx.run(tables.PREVIEW_LIVE, org_id=org_id, id=preview.id, deployment_id=None, now=tx.now)
    route_sync.request(tx)
    for deployment in tx.all(rows.OF_PREVIEW, org_id=org_id, preview_id=preview.id):
        if deployment.status not in DEPLOYMENT.terminal:
            deployments.fail(tx, org_id, deployment, CLOSED)
        elif deployment.digest is not None:
            deployments.let_go(tx, org_id, deployment)
    audit.record(tx, org_id, THE_PLATFORM, "project.preview_closed", service.target_of(project), number=number)


def _open(tx: Tx, org_id: int, project: Project, pull: PullRequest) -> Preview | None:
    name = names.preview_name(project.name, pull.number)
    if len(name) > names.MAX_NAME_CHARS or not names.is_available(tx, org_id, name):
        return None
    preview_id = tx.find(
        tables.ADD_PREVIEW,
        org_id=org_id,
        project_id=project.id,
        number=pull.number,
        name=name,
        status=PreviewStatus.WAITING if pull.is_fork else PreviewStatus.ACTIVE,
        is_fork=pull.is_fork,
        title=pull.title,
        repository_name=pull.repository,
        branch=pull.branch,
        commit_sha=pull.sha,
        current_deployment_id=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if preview_id is None:
        return None
    preview = _get(tx, org_id, preview_id)
    audit.record(tx, org_id, THE_PLATFORM, "project.preview_opened", service.target_of(project), number=pull.number)
    if preview.status == PreviewStatus.ACTIVE:
        _deploy(tx, org_id, project, preview, user_id=None)
    return preview


def _deploy(tx: Tx, org_id: int, project: Project, preview: Preview, user_id: int | None) -> None:
    if preview.status == PreviewStatus.ACTIVE and project.enabled:
        request = DeploymentRequest(
            commit_sha=preview.commit_sha, branch=preview.branch, user_id=user_id, preview=preview
        )
        deployments.start(tx, org_id, project, request)


def _get(tx: Tx, org_id: int, preview_id: int) -> Preview:
    preview = service.find_preview(tx, org_id, preview_id)
    assert preview is not None
    return preview
