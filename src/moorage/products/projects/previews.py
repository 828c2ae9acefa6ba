"""Previews: every pull request of a project that wants them has an address of its own.

A fork's code is built only after a member says so, and never sees a secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor
from moorage.core.db.tx import Tx, move
from moorage.errors import Conflict, NotFound
from moorage.products.projects import names, service, tables
from moorage.products.projects import route_sync as settling
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.service import Asked
from moorage.products.projects.deployments.states import DEPLOYMENT, PREVIEW, PreviewStatus
from moorage.products.projects.tables import Preview, Project

LONGEST_NAME = 63
CLOSED = "The pull request was closed"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What a code host says of a pull request."""

    number: int
    title: str
    repository: str  # where its commits are
    branch: str
    sha: str
    is_fork: bool


def update(tx: Tx, org_id: int, project: Project, pull: PullRequest) -> Preview | None:
    """Deploy the newest commit of a pull request, or wait for approval; None where its address cannot be had."""
    found = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=pull.number)
    if found is None:
        return _open(tx, org_id, project, pull)
    if found.status == PreviewStatus.CLOSED and not names.is_available(tx, org_id, found.name):
        return None  # Somebody took its address meanwhile.
    tx.run(
        tables.SET_PREVIEW,
        org_id=org_id,
        id=found.id,
        title=pull.title,
        repository_name=pull.repository,
        branch=pull.branch,
        commit_sha=pull.sha,
        now=tx.now,
    )
    if found.status == PreviewStatus.CLOSED:
        move(tx, PREVIEW, found, to=PreviewStatus.WAITING if found.is_fork else PreviewStatus.ACTIVE)
    current = _get(tx, org_id, found.id)
    if current.status == PreviewStatus.ACTIVE and current.is_fork and current.commit_sha != found.commit_sha:
        # What was approved was one commit, and this is another.
        move(tx, PREVIEW, current, to=PreviewStatus.CLOSED)
        move(tx, PREVIEW, current, to=PreviewStatus.WAITING)
        return _get(tx, org_id, found.id)
    _deploy(tx, org_id, project, current, user_id=None)
    return current


def approve(tx: Tx, org_id: int, actor: Actor, name: str, number: int) -> Preview:
    project = service.lock(tx, org_id, name)
    found = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=min(number, 2**31 - 1))
    if found is None:
        raise NotFound("There is no preview of that pull request")
    if found.status != PreviewStatus.WAITING:
        raise Conflict("This preview does not wait for approval")
    move(tx, PREVIEW, found, to=PreviewStatus.ACTIVE)
    audit.record(
        tx,
        org_id,
        actor,
        "project.preview_approved",
        service.target_of(project),
        number=number,
        commit=found.commit_sha,
    )
    approved = _get(tx, org_id, found.id)
    _deploy(tx, org_id, project, approved, user_id=actor.user_id)
    return approved


def close(tx: Tx, org_id: int, project: Project, number: int) -> None:
    """Take a preview down; what it published is not kept."""
    found = tx.find(tables.FIND_PREVIEW, org_id=org_id, project_id=project.id, number=number)
    if found is None or found.status == PreviewStatus.CLOSED:
        return
    move(tx, PREVIEW, found, to=PreviewStatus.CLOSED)
    tx.run(tables.PREVIEW_LIVE, org_id=org_id, id=found.id, deployment_id=None, now=tx.now)
    settling.ask(tx)
    for its in tx.all(rows.OF_PREVIEW, org_id=org_id, preview_id=found.id):
        if its.status not in DEPLOYMENT.terminal:
            deployments.fail(tx, org_id, its, CLOSED)
        elif its.digest is not None:
            deployments.let_go(tx, org_id, its)
    audit.record(tx, org_id, THE_PLATFORM, "project.preview_closed", service.target_of(project), number=number)


def _open(tx: Tx, org_id: int, project: Project, pull: PullRequest) -> Preview | None:
    name = names.preview_name(project.name, pull.number)
    if len(name) > LONGEST_NAME or not names.is_available(tx, org_id, name):
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
    made = _get(tx, org_id, preview_id)
    audit.record(tx, org_id, THE_PLATFORM, "project.preview_opened", service.target_of(project), number=pull.number)
    if made.status == PreviewStatus.ACTIVE:
        _deploy(tx, org_id, project, made, user_id=None)
    return made


def _deploy(tx: Tx, org_id: int, project: Project, preview: Preview, user_id: int | None) -> None:
    if preview.status == PreviewStatus.ACTIVE and project.enabled:
        asked = Asked(commit_sha=preview.commit_sha, branch=preview.branch, user_id=user_id, preview=preview)
        deployments.start(tx, org_id, project, asked)


def _get(tx: Tx, org_id: int, preview_id: int) -> Preview:
    found = tx.find(tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=preview_id)
    assert found is not None
    return found
