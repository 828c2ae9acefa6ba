"""Deployments: asked for, started, finished, failed; and which one is live.

A deployment is a row and a job in one transaction. What is live is one column of the project: the row decides, and the
gateway's links follow. Only then is the deployment said to have succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane
from moorage.core.kit.clock import HOUR_MS
from moorage.core.kit.ids import new_uuid
from moorage.errors import Conflict, NotFound
from moorage.products.projects import service, tables
from moorage.products.projects.deployments import followers
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.states import DEPLOYMENT, DeploymentStatus
from moorage.products.projects.deployments.tables import Deployment, Line, Shown
from moorage.products.projects.tables import Preview, Project
from moorage.runtime.builds.ports import Plan

Kind = Literal["deploy", "rebuild", "restart", "rollback", "upload"]
# They publish what is stored already, so they do not wait behind a build.
WITHOUT_BUILD = frozenset(("rollback", "restart", "upload"))
TRIES = 3  # of a build whose process died, once such ends count
# A build that dies with the platform says nothing about the commit. For so long after the push it is tried again
# without counting. After that each end counts, so that a build which is itself the cause does not go on for ever.
UNCOUNTED_MS = 2 * HOUR_MS
SUPERSEDED = "A newer deployment of this project was asked for before this one started"
OVERTAKEN = "A newer deployment went live before this one was ready"


FOLLOWS = "This is the live release now; the gateway could not be told at once, and follows by itself"


class Ended(Exception):
    """A deployment ended while somebody was still at work on it; what they do has no use any more."""


class BuildDeployment(msgspec.Struct, frozen=True, tag="projects.build"):
    """Fetch, build and publish."""

    org_id: int
    deployment_id: int


class PublishDeployment(msgspec.Struct, frozen=True, tag="projects.publish"):
    """Publish an artifact that is there already."""

    org_id: int
    deployment_id: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What a deployment is to be made of."""

    kind: Kind = "deploy"
    commit_sha: str | None = None
    branch: str | None = None
    user_id: int | None = None  # null for a push by webhook
    digest: str | None = None  # of an artifact, where nothing is built
    file_count: int | None = None
    preview: Preview | None = None
    plan: str | None = None  # of an app that is built already
    is_app: bool = False


def start(tx: Tx, org_id: int, project: Project, asked: Asked) -> Deployment:
    """Record a deployment and ask for its job. One of the same project that still waits is superseded."""
    if not project.enabled:
        raise Conflict(f"The project {project.name!r} is disabled; enable it first")
    preview = asked.preview
    for waiting in tx.all(rows.QUEUED, org_id=org_id, project_id=project.id, preview_id=preview.id if preview else 0):
        fail(tx, org_id, waiting, SUPERSEDED)
    deployment_id = tx.one(
        rows.ADD,
        uuid=new_uuid(),
        org_id=org_id,
        project_id=project.id,
        preview_id=preview.id if preview else None,
        status=DeploymentStatus.QUEUED,
        kind=asked.kind,
        repository_name=preview.repository_name if preview else project.repository_name,
        branch=asked.branch,
        commit_sha=asked.commit_sha,
        actor_user_id=asked.user_id,
        digest=asked.digest,
        file_count=asked.file_count,
        plan=_as_now(project, asked),
        is_app=asked.is_app,
        swap=None,
        reason=None,
        started_at=None,
        ended_at=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if asked.digest is not None:
        artifacts.refer(tx, org_id, asked.digest, service.owner_of(deployment_id))
    tx.run(tables.COUNT_NEW, org_id=org_id, id=project.id, deployment_id=deployment_id, now=tx.now)
    if asked.kind in WITHOUT_BUILD:
        publish(tx, org_id, _get(tx, org_id, deployment_id))
    else:
        key = f"build:{project.id}:{preview.number if preview else 0}"
        jobs.add(tx, BuildDeployment(org_id, deployment_id), key=key, lane=Lane.HEAVY, max_attempts=TRIES)
    return _get(tx, org_id, deployment_id)


def publish(tx: Tx, org_id: int, deployment: Deployment) -> None:
    """Ask for a deployment whose artifact is stored to go live."""
    lane = Lane.APPS if deployment.is_app else Lane.SWIFT
    key = f"publish:{deployment.project_id}:{deployment.preview_id or 0}"
    jobs.add(tx, PublishDeployment(org_id, deployment.id), key=key, lane=lane)


def deploy(
    tx: Tx, org_id: int, actor: Actor, name: str, operation: Literal["deploy", "rebuild", "restart"], commit: str | None
) -> Deployment:
    """Deploy what was asked for: a commit or the head of the branch, anew without caches, or what is live once more."""
    project = service.lock(tx, org_id, name)
    live = _live(tx, org_id, project)
    if operation == "restart" or project.source == "upload":
        if live is None or live.digest is None:
            raise Conflict("Nothing of this project is live yet, so there is nothing to start again")
        asked = _again(live, "restart", actor)
    else:
        asked = Asked(operation, commit, project.branch, actor.user_id)
    made = start(tx, org_id, project, asked)
    audit.record(
        tx, org_id, actor, "project.deployed", service.target_of(project), deployment=made.uuid, kind=made.kind
    )
    return made


def start_again(tx: Tx, org_id: int, actor: Actor, project: Project) -> Deployment:
    """Start the live release anew, with the settings of now; where nothing is live, build it."""
    live = _live(tx, org_id, project)
    if live is not None and live.digest is not None:
        return start(tx, org_id, project, _again(live, "restart", actor))
    return start(tx, org_id, project, Asked(branch=project.branch, user_id=actor.user_id))


def redeploy(tx: Tx, org_id: int, actor: Actor, name: str) -> Deployment:
    """Build the commit of the live release again; before there is one, the head of the branch."""
    project = service.lock(tx, org_id, name)
    live = _live(tx, org_id, project)
    if project.source == "upload":
        if live is None or live.digest is None:
            raise Conflict("Nothing of this project is live yet, so there is nothing to deploy again")
        asked = _again(live, "restart", actor)
    else:
        branch = (live.branch if live else None) or project.branch
        asked = Asked("deploy", live.commit_sha if live else None, branch, actor.user_id)
    made = start(tx, org_id, project, asked)
    audit.record(tx, org_id, actor, "project.redeployed", service.target_of(project), deployment=made.uuid)
    return made


def rollback(tx: Tx, org_id: int, actor: Actor, name: str, uuid: str) -> Deployment:
    """Make a new deployment of what an earlier one published."""
    project = service.lock(tx, org_id, name)
    target = tx.find(rows.FIND_BY_UUID, org_id=org_id, uuid=uuid)
    if target is None or target.project_id != project.id:
        raise NotFound("This project has no such deployment")
    if target.status != DeploymentStatus.SUCCEEDED or target.preview_id is not None:
        raise Conflict("Only a deployment of this project that succeeded can be rolled back to")
    if target.digest is None:
        raise Conflict("The release of this deployment is not kept any more; deploy its commit instead")
    made = start(tx, org_id, project, _again(target, "rollback", actor))
    audit.record(
        tx, org_id, actor, "project.rolled_back", service.target_of(project), deployment=made.uuid, to=target.uuid
    )
    return made


def find(tx: Tx, org_id: int, deployment_id: int) -> Deployment | None:
    return tx.find(rows.FIND, org_id=org_id, id=deployment_id)


def get_by_uuid(tx: Tx, org_id: int, uuid: str) -> Deployment:
    found = tx.find(rows.FIND_BY_UUID, org_id=org_id, uuid=uuid)
    if found is None:
        raise NotFound("There is no such deployment")
    return found


def page(tx: Tx, org_id: int, project: Project, *, before: int, most: int) -> list[Shown]:
    return tx.all(rows.PAGE, org_id=org_id, project_id=project.id, before=before, most=most)


@across_organizations("equal sites have one folder, whoever publishes them")
def is_published(tx: Tx, digest: str) -> bool:
    """Tell whether any deployment publishes a release, or could again."""
    return tx.find(rows.IS_PUBLISHED, digest=digest) is not None


@across_organizations("builds of all organizations wait in one line")
def position(tx: Tx, deployment: Deployment) -> int | None:
    """Return how many deployments are ahead of one that waits, plus one; None for any other."""
    return tx.one(rows.AHEAD, id=deployment.id) + 1 if deployment.status == DeploymentStatus.QUEUED else None


def begin(tx: Tx, org_id: int, deployment: Deployment) -> None:
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.RUNNING, started_at=tx.now)
    followers.tell_after(tx, deployment.id)


def set_source(tx: Tx, org_id: int, deployment: Deployment, sha: str, branch: str) -> None:
    tx.run(rows.SET_SOURCE, org_id=org_id, id=deployment.id, commit_sha=sha, branch=branch, now=tx.now)


def set_built(tx: Tx, org_id: int, deployment: Deployment, *, digest: str, file_count: int, plan: Plan) -> None:
    """Note what a deployment will publish, and hold on to it."""
    artifacts.refer(tx, org_id, digest, service.owner_of(deployment.id))
    tx.run(
        rows.SET_BUILT,
        org_id=org_id,
        id=deployment.id,
        digest=digest,
        file_count=file_count,
        plan=msgspec.json.encode(plan).decode(),
        is_app=plan.kind == "container",
        now=tx.now,
    )


def set_swap(tx: Tx, org_id: int, deployment: Deployment, measured: msgspec.Struct) -> None:
    tx.run(rows.SET_SWAP, org_id=org_id, id=deployment.id, swap=msgspec.json.encode(measured).decode(), now=tx.now)


def go_live(tx: Tx, org_id: int, deployment: Deployment) -> bool:
    """Make a deployment the live one; return False where a newer one is."""
    project = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=deployment.project_id)
    if project is None:
        raise service.no_project()
    if deployment.preview_id is not None:
        preview = tx.find(tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=deployment.preview_id)
        if preview is None or (preview.current_deployment_id or 0) > deployment.id:
            return False
        tx.run(tables.PREVIEW_LIVE, org_id=org_id, id=preview.id, deployment_id=deployment.id, now=tx.now)
        return True
    if (project.current_deployment_id or 0) > deployment.id:
        return False
    tx.run(tables.GO_LIVE, org_id=org_id, id=project.id, deployment_id=deployment.id, now=tx.now)
    return True


def succeed(tx: Tx, org_id: int, deployment: Deployment, said: str) -> None:
    add_line(tx, org_id, deployment.id, said)
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.SUCCEEDED, ended_at=tx.now)
    _count(tx, org_id, deployment, succeeded=1)


def fail(tx: Tx, org_id: int, deployment: Deployment, reason: str) -> None:
    """End a deployment that did not work out. What is live stays."""
    add_line(tx, org_id, deployment.id, reason)
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.FAILED, reason=reason, ended_at=tx.now)
    let_go(tx, org_id, deployment)
    _count(tx, org_id, deployment, failed=1)


def let_go(tx: Tx, org_id: int, deployment: Deployment) -> None:
    """Do not keep what a deployment published."""
    artifacts.unrefer(tx, org_id, service.owner_of(deployment.id))
    tx.run(rows.DROP_DIGEST, org_id=org_id, id=deployment.id, now=tx.now)


def fail_if_open(tx: Tx, org_id: int, deployment_id: int, reason: str) -> None:
    """End a deployment as failed, unless it has ended or gone.

    One that the store has made the live one already has not failed, whatever came after: the gateway follows the store.
    """
    found = find(tx, org_id, deployment_id)
    if found is None or found.status in DEPLOYMENT.terminal:
        return
    if is_live(tx, org_id, found):
        succeed(tx, org_id, found, FOLLOWS)
    else:
        fail(tx, org_id, found, reason)


def is_live(tx: Tx, org_id: int, deployment: Deployment) -> bool:
    if deployment.preview_id is not None:
        preview = tx.find(tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=deployment.preview_id)
        return preview is not None and preview.current_deployment_id == deployment.id
    project = service.find_by_id(tx, org_id, deployment.project_id)
    return project is not None and project.current_deployment_id == deployment.id


def check_runs(tx: Tx, org_id: int, deployment_id: int) -> None:
    """Raise Ended where a deployment is not under way any more: its project or pull request went, or it was failed."""
    found = find(tx, org_id, deployment_id)
    if found is None or found.status != DeploymentStatus.RUNNING:
        raise Ended(f"deployment {deployment_id} is not under way any more")


def abandon(tx: Tx, org_id: int, deployment_id: int) -> None:
    """Take back what a deployment stored that ended while it was under way, unless it went live."""
    found = find(tx, org_id, deployment_id)
    if found is None or found.status == DeploymentStatus.FAILED:
        artifacts.unrefer(tx, org_id, service.owner_of(deployment_id))


def trim(tx: Tx, org_id: int, project: Project) -> list[str]:
    """Let go of the releases that are too old to roll back to; return their digests."""
    stored = [each for each in tx.all(rows.SUCCEEDED, org_id=org_id, project_id=project.id) if each.digest]
    # Rollbacks publish the same release again, and must not push the others out.
    newest = list(dict.fromkeys(each.digest for each in stored))[: tx.env.settings.releases_to_keep]
    live = {each.digest for each in stored if each.id == project.current_deployment_id}
    dropped = [each for each in stored if each.digest not in live.union(newest)]
    for each in dropped:
        let_go(tx, org_id, each)
    return [each.digest for each in dropped if each.digest]


def add_line(tx: Tx, org_id: int, deployment_id: int, message: str) -> None:
    """Add a line of the platform's own to a log that nobody else writes to at this moment."""
    seq = tx.one(rows.LAST_SEQ, org_id=org_id, deployment_id=deployment_id) + 1
    add_lines(tx, org_id, deployment_id, [Line(seq, tx.now, "system", message)])


def add_lines(tx: Tx, org_id: int, deployment_id: int, lines: list[Line]) -> None:
    tx.run_many(
        rows.ADD_LINE,
        [
            {
                "org_id": org_id,
                "deployment_id": deployment_id,
                "seq": line.seq,
                "at": line.at,
                "stream": line.stream,
                "message": line.message,
            }
            for line in lines
        ],
    )


def lines_after(tx: Tx, org_id: int, deployment_id: int, seq: int, most: int) -> list[Line]:
    return tx.all(rows.LINES, org_id=org_id, deployment_id=deployment_id, after=seq, most=most)


def _again(target: Deployment, kind: Kind, actor: Actor) -> Asked:
    return Asked(
        kind,
        target.commit_sha,
        target.branch,
        actor.user_id,
        target.digest,
        target.file_count,
        plan=target.plan,
        is_app=target.is_app,
    )


def _as_now(project: Project, asked: Asked) -> str | None:
    """Return the plan of what is built already. What starts anew starts as its user says now."""
    command = (project.start_cmd or "").strip()
    if asked.kind != "restart" or not asked.is_app or asked.plan is None or not command:
        return asked.plan
    return msgspec.json.encode(replace(msgspec.json.decode(asked.plan, type=Plan), start=command)).decode()


def _live(tx: Tx, org_id: int, project: Project) -> Deployment | None:
    if project.current_deployment_id is None:
        return None
    return find(tx, org_id, project.current_deployment_id)


def _count(tx: Tx, org_id: int, deployment: Deployment, *, succeeded: int = 0, failed: int = 0) -> None:
    followers.tell_after(tx, deployment.id)
    tx.run(tables.COUNT_ENDED, org_id=org_id, id=deployment.project_id, succeeded=succeeded, failed=failed, now=tx.now)


def _get(tx: Tx, org_id: int, deployment_id: int) -> Deployment:
    found = find(tx, org_id, deployment_id)
    assert found is not None
    return found
