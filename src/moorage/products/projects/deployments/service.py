"""Start and end deployments, and record the live one.

A deployment is a row and a job, added in one transaction. A column of the project names the live deployment; the
gateway's routes are then synced with it, and only after that does the deployment succeed.
"""

from __future__ import annotations

from dataclasses import replace
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
from moorage.core.kit.decoding import decode
from moorage.core.kit.ids import new_uuid
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import one_line
from moorage.errors import Conflict, NotFound
from moorage.products.projects import route_sync, service, tables
from moorage.products.projects.deployments import followers
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.states import DEPLOYMENT, DeploymentStatus
from moorage.products.projects.deployments.tables import Deployment, Line, Shown
from moorage.products.projects.tables import Preview, Project
from moorage.runtime.builds.ports import Plan

Kind = Literal["deploy", "rebuild", "restart", "rollback", "upload"]
# These kinds publish a stored artifact, so they do not wait behind a build.
WITHOUT_BUILD = frozenset(("rollback", "restart", "upload"))
MAX_BUILD_ATTEMPTS = 3  # counted after UNCOUNTED_MS
# A build that dies with the platform does not prove a fault of the commit: during this time after the push, attempts
# are not counted. After it they are, so that a build which crashes the platform is not retried for ever.
UNCOUNTED_MS = 2 * HOUR_MS
SUPERSEDED = "A newer deployment of this project was requested before this one started"
OVERTAKEN = "A newer deployment went live before this one was ready"
LIVE_AFTER_SYNC = "This is the live release; the gateway could not be updated yet and will be, automatically"


class DeploymentEnded(Exception):
    """The deployment ended while its job ran; the job's result is discarded."""


class BuildDeployment(msgspec.Struct, frozen=True, tag="projects.build"):
    """Fetch, build and publish a deployment."""

    org_id: int
    deployment_id: int


class PublishDeployment(msgspec.Struct, frozen=True, tag="projects.publish"):
    """Publish the stored artifact of a deployment."""

    org_id: int
    deployment_id: int


@dataclass(frozen=True, slots=True)
class DeploymentRequest:
    """Parameters of a new deployment."""

    kind: Kind = "deploy"
    commit_sha: str | None = None
    branch: str | None = None
    user_id: int | None = None  # null for a push by webhook
    digest: str | None = None  # of the stored artifact, where nothing is built
    file_count: int | None = None
    preview: Preview | None = None
    plan: str | None = None  # JSON: build plan of the stored artifact
    is_app: bool = False
    release_of: int | None = None  # deployment whose artifacts are published again


def start(tx: Tx, org_id: int, project: Project, request: DeploymentRequest) -> Deployment:
    """Add a deployment and its job; supersedes queued ones of the project or preview."""
    if not project.enabled:
        raise Conflict(f"The project {project.name!r} is disabled; enable it first")
    preview = request.preview
    for waiting in tx.all(rows.QUEUED, org_id=org_id, project_id=project.id, preview_id=preview.id if preview else 0):
        fail(tx, org_id, waiting, SUPERSEDED)
    deployment_id = tx.one(
        rows.ADD,
        uuid=new_uuid(),
        org_id=org_id,
        project_id=project.id,
        preview_id=preview.id if preview else None,
        status=DeploymentStatus.QUEUED,
        kind=request.kind,
        repository_name=preview.repository_name if preview else project.repository_name,
        branch=request.branch,
        commit_sha=request.commit_sha,
        actor_user_id=request.user_id,
        digest=request.digest,
        file_count=request.file_count,
        plan=_current_plan(project, request),
        is_app=request.is_app,
        swap=None,
        reason=None,
        started_at=None,
        ended_at=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if request.digest is not None:
        artifacts.refer(tx, org_id, request.digest, service.owner_of(deployment_id))
    if request.release_of is not None:
        artifacts.share(tx, org_id, service.owner_of(request.release_of), service.owner_of(deployment_id))
    tx.run(tables.COUNT_NEW, org_id=org_id, id=project.id, deployment_id=deployment_id, now=tx.now)
    if request.kind in WITHOUT_BUILD:
        publish(tx, org_id, _get(tx, org_id, deployment_id))
    else:
        key = f"build:{project.id}:{preview.number if preview else 0}"
        jobs.add(tx, BuildDeployment(org_id, deployment_id), key=key, lane=Lane.HEAVY, max_attempts=MAX_BUILD_ATTEMPTS)
        if preview is None and project.current_deployment_id is None:
            route_sync.request(tx)  # Its address answers "being built" from now on.
    return _get(tx, org_id, deployment_id)


def publish(tx: Tx, org_id: int, deployment: Deployment) -> None:
    """Add the job that publishes the stored artifact of a deployment."""
    lane = Lane.APPS if deployment.is_app else Lane.INTERACTIVE
    key = f"publish:{deployment.project_id}:{deployment.preview_id or 0}"
    jobs.add(tx, PublishDeployment(org_id, deployment.id), key=key, lane=lane)


def deploy(
    tx: Tx, org_id: int, actor: Actor, name: str, operation: Literal["deploy", "rebuild", "restart"], commit: str | None
) -> Deployment:
    """Deploy a commit or the head of the branch, or restart the live release.

    `rebuild` ignores caches. An uploaded project has no repository, so every operation restarts it.
    """
    project = service.lock(tx, org_id, name)
    live = _live(tx, org_id, project)
    if operation == "restart" or project.source == "upload":
        if live is None or live.digest is None:
            raise Conflict("Nothing of this project is live yet, so there is nothing to start again")
        request = _from_release(live, "restart", actor)
    elif project.source == "image" and commit is not None:
        raise Conflict("This project runs an image and has no commits: change publicImage, or push the image")
    else:
        request = DeploymentRequest(operation, commit, project.branch, actor.user_id)
    started = start(tx, org_id, project, request)
    target = service.target_of(project)
    audit.record(tx, org_id, actor, "project.deployed", target, deployment=started.uuid, kind=started.kind)
    return started


def image_of(deployment: Deployment) -> str:
    """Return the digest of the image that a deployment runs; "" for other releases."""
    return decode(deployment.plan, Plan).image if deployment.plan and deployment.is_app else ""


def start_again(tx: Tx, org_id: int, actor: Actor, project: Project) -> Deployment:
    """Restart the live release with current settings; build if nothing is live."""
    live = _live(tx, org_id, project)
    if live is not None and live.digest is not None:
        return start(tx, org_id, project, _from_release(live, "restart", actor))
    return start(tx, org_id, project, DeploymentRequest(branch=project.branch, user_id=actor.user_id))


def redeploy(tx: Tx, org_id: int, actor: Actor, name: str) -> Deployment:
    """Build the live commit again, or the head of the branch if nothing is live."""
    project = service.lock(tx, org_id, name)
    live = _live(tx, org_id, project)
    if project.source == "upload":
        if live is None or live.digest is None:
            raise Conflict("Nothing of this project is live yet, so there is nothing to deploy again")
        request = _from_release(live, "restart", actor)
    else:
        branch = (live.branch if live else None) or project.branch
        request = DeploymentRequest("deploy", live.commit_sha if live else None, branch, actor.user_id)
    started = start(tx, org_id, project, request)
    audit.record(tx, org_id, actor, "project.redeployed", service.target_of(project), deployment=started.uuid)
    return started


def rollback(tx: Tx, org_id: int, actor: Actor, name: str, uuid: str) -> Deployment:
    """Start a new deployment that publishes the release of an earlier one."""
    project = service.lock(tx, org_id, name)
    target = tx.find(rows.FIND_BY_UUID, org_id=org_id, uuid=uuid)
    if target is None or target.project_id != project.id:
        raise NotFound("This project has no such deployment")
    if target.status != DeploymentStatus.SUCCEEDED or target.preview_id is not None:
        raise Conflict("Only a deployment of this project that succeeded can be rolled back to")
    if target.digest is None:
        raise Conflict("The release of this deployment is not kept any more; deploy its commit instead")
    started = start(tx, org_id, project, _from_release(target, "rollback", actor))
    audit.record(
        tx, org_id, actor, "project.rolled_back", service.target_of(project), deployment=started.uuid, to=target.uuid
    )
    return started


def find(tx: Tx, org_id: int, deployment_id: int) -> Deployment | None:
    return tx.find(rows.FIND, org_id=org_id, id=deployment_id)


def get_by_uuid(tx: Tx, org_id: int, uuid: str) -> Deployment:
    deployment = tx.find(rows.FIND_BY_UUID, org_id=org_id, uuid=uuid)
    if deployment is None:
        raise NotFound("There is no such deployment")
    return deployment


def page(tx: Tx, org_id: int, project: Project, *, before: int, most: int) -> list[Shown]:
    return tx.all(rows.PAGE, org_id=org_id, project_id=project.id, before=before, most=most)


@across_organizations("organizations share the folder of equal sites")
def is_published(tx: Tx, digest: str) -> bool:
    """Return whether any deployment publishes a release, or may be rolled back to it."""
    return tx.find(rows.IS_PUBLISHED, digest=digest) is not None


@across_organizations("builds of all organizations share one queue")
def position(tx: Tx, deployment: Deployment) -> int | None:
    """Return the place in the queue, from 1; None for a deployment that is not queued."""
    return tx.one(rows.AHEAD, id=deployment.id) + 1 if deployment.status == DeploymentStatus.QUEUED else None


def begin(tx: Tx, org_id: int, deployment: Deployment) -> None:
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.RUNNING, started_at=tx.now)
    followers.notify_after_commit(tx, deployment.id)


def set_source(tx: Tx, org_id: int, deployment: Deployment, sha: str, branch: str) -> None:
    tx.run(rows.SET_SOURCE, org_id=org_id, id=deployment.id, commit_sha=sha, branch=branch, now=tx.now)


def set_built(tx: Tx, org_id: int, deployment: Deployment, *, digest: str, file_count: int, plan: Plan) -> None:
    """Record the artifact of a deployment and add a reference that keeps it."""
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


def set_swap(tx: Tx, org_id: int, deployment: Deployment, swap: msgspec.Struct) -> None:
    tx.run(rows.SET_SWAP, org_id=org_id, id=deployment.id, swap=msgspec.json.encode(swap).decode(), now=tx.now)


def go_live(tx: Tx, org_id: int, deployment: Deployment) -> bool:
    """Make a deployment the live one; return False where a newer deployment is live."""
    project = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=deployment.project_id)
    if project is None:
        raise service.no_project()
    if deployment.preview_id is not None:
        preview = service.find_preview(tx, org_id, deployment.preview_id)
        if preview is None or (preview.current_deployment_id or 0) > deployment.id:
            return False
        tx.run(tables.PREVIEW_LIVE, org_id=org_id, id=preview.id, deployment_id=deployment.id, now=tx.now)
        return True
    if (project.current_deployment_id or 0) > deployment.id:
        return False
    tx.run(tables.GO_LIVE, org_id=org_id, id=project.id, deployment_id=deployment.id, now=tx.now)
    return True


def succeed(tx: Tx, org_id: int, deployment: Deployment, message: str) -> None:
    add_line(tx, org_id, deployment.id, message)
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.SUCCEEDED, ended_at=tx.now)
    _count_ended(tx, org_id, deployment, succeeded=1)


def fail(tx: Tx, org_id: int, deployment: Deployment, reason: str) -> None:
    """Mark a deployment as failed and drop its artifact; the live release stays."""
    reason = one_line(reason)  # It may quote output of the build, and names of files.
    add_line(tx, org_id, deployment.id, reason)
    move(tx, DEPLOYMENT, deployment, to=DeploymentStatus.FAILED, reason=reason, ended_at=tx.now)
    let_go(tx, org_id, deployment)
    _count_ended(tx, org_id, deployment, failed=1)
    project = service.find_by_id(tx, org_id, deployment.project_id)
    if deployment.preview_id is None and project is not None and project.current_deployment_id is None:
        route_sync.request(tx)  # Its address no longer answers "being built".


def let_go(tx: Tx, org_id: int, deployment: Deployment) -> None:
    """Drop a deployment's reference to its artifact."""
    artifacts.unrefer(tx, org_id, service.owner_of(deployment.id))
    tx.run(rows.DROP_DIGEST, org_id=org_id, id=deployment.id, now=tx.now)


def fail_if_open(tx: Tx, org_id: int, deployment_id: int, reason: str) -> None:
    """Mark a deployment as failed, unless it has ended or was deleted.

    A deployment that the database names as live succeeds, because the gateway is synced with the database.
    """
    deployment = find(tx, org_id, deployment_id)
    if deployment is None or deployment.status in DEPLOYMENT.terminal:
        return
    if is_live(tx, org_id, deployment):
        succeed(tx, org_id, deployment, LIVE_AFTER_SYNC)
    else:
        fail(tx, org_id, deployment, reason)


def is_live(tx: Tx, org_id: int, deployment: Deployment) -> bool:
    if deployment.preview_id is not None:
        preview = service.find_preview(tx, org_id, deployment.preview_id)
        return preview is not None and preview.current_deployment_id == deployment.id
    project = service.find_by_id(tx, org_id, deployment.project_id)
    return project is not None and project.current_deployment_id == deployment.id


def check_runs(tx: Tx, org_id: int, deployment_id: int) -> None:
    """Raise DeploymentEnded unless the deployment is running."""
    deployment = find(tx, org_id, deployment_id)
    if deployment is None or deployment.status != DeploymentStatus.RUNNING:
        raise DeploymentEnded(f"deployment {deployment_id} is not running")


def abandon(tx: Tx, org_id: int, deployment_id: int) -> None:
    """Drop the artifact of a deployment that failed or was deleted meanwhile."""
    deployment = find(tx, org_id, deployment_id)
    if deployment is None or deployment.status == DeploymentStatus.FAILED:
        artifacts.unrefer(tx, org_id, service.owner_of(deployment_id))


def trim(tx: Tx, org_id: int, project: Project) -> list[str]:
    """Drop the artifacts that are too old to roll back to; return their digests."""
    stored = [each for each in tx.all(rows.SUCCEEDED, org_id=org_id, project_id=project.id) if each.digest]
    # Counted by digest: rollbacks publish the same release again and must not displace others.
    newest = list(dict.fromkeys(each.digest for each in stored))[: tx.env.settings.releases_to_keep]
    live = {each.digest for each in stored if each.id == project.current_deployment_id}
    dropped = [each for each in stored if each.digest not in live.union(newest)]
    for each in dropped:
        let_go(tx, org_id, each)
    return [each.digest for each in dropped if each.digest]


def add_line(tx: Tx, org_id: int, deployment_id: int, message: str) -> None:
    """Add a line to a log that has no other writer at the moment."""
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


def _from_release(target: Deployment, kind: Kind, actor: Actor) -> DeploymentRequest:
    return DeploymentRequest(
        kind,
        target.commit_sha,
        target.branch,
        actor.user_id,
        target.digest,
        target.file_count,
        plan=target.plan,
        is_app=target.is_app,
        release_of=target.id,
    )


def _current_plan(project: Project, request: DeploymentRequest) -> str | None:
    """Return the plan of a stored artifact; a restart takes the current start command."""
    command = (project.start_cmd or "").strip()
    if request.kind != "restart" or not request.is_app or request.plan is None or not command:
        return request.plan
    return msgspec.json.encode(replace(decode(request.plan, Plan), start=command)).decode()


def _live(tx: Tx, org_id: int, project: Project) -> Deployment | None:
    if project.current_deployment_id is None:
        return None
    return find(tx, org_id, project.current_deployment_id)


def _count_ended(tx: Tx, org_id: int, deployment: Deployment, *, succeeded: int = 0, failed: int = 0) -> None:
    followers.notify_after_commit(tx, deployment.id)
    tx.run(tables.COUNT_ENDED, org_id=org_id, id=deployment.project_id, succeeded=succeeded, failed=failed, now=tx.now)


def _get(tx: Tx, org_id: int, deployment_id: int) -> Deployment:
    deployment = find(tx, org_id, deployment_id)
    assert deployment is not None
    return deployment
