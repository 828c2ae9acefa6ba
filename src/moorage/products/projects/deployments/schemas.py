"""Response bodies of deployments and previews."""

from __future__ import annotations

from moorage.core.http.models import Output
from moorage.core.kit.clock import to_wire
from moorage.core.kit.decoding import decoder_of
from moorage.products.projects import service
from moorage.products.projects.deployments.states import DEPLOYMENT
from moorage.products.projects.deployments.tables import Deployment, Line, Shown
from moorage.products.projects.schemas import LatestDeployment
from moorage.products.projects.tables import Preview, Project
from moorage.settings import Settings

COMMIT_ID_CHARS = 12


def commit_id(sha: str | None) -> str | None:
    return sha[:COMMIT_ID_CHARS] if sha else None


def latest_of(deployment: Deployment | None) -> LatestDeployment | None:
    if deployment is None:
        return None
    return LatestDeployment(deployment.status, commit_id(deployment.commit_sha), to_wire(deployment.created_at))


class LogLine(Output, frozen=True):
    message: str
    timestamp: str
    stream: str

    @classmethod
    def of(cls, line: Line) -> LogLine:
        return cls(line.message, to_wire(line.at), line.stream)


class StatusNow(Output, frozen=True):
    status: str


class DeploymentActor(Output, frozen=True):
    user_id: int | None
    name: str | None
    username: str | None


class SwapOut(Output, frozen=True):
    """Requests to the public address while an app replaced its predecessor."""

    requests: int
    failed: int
    longest_gap_ms: int


_read_swap = decoder_of(SwapOut).decode


class DeploymentOut(Output, frozen=True):
    id: int
    deployment_uuid: str
    status: str
    commit_id: str | None
    commit_sha: str | None
    branch: str | None
    enable: bool  # the deployment is live
    actor: DeploymentActor
    created_at: str
    updated_at: str
    kind: str
    reason: str | None
    file_count: int | None
    duration_ms: int | None
    preview: bool
    swap: SwapOut | None

    @classmethod
    def of(cls, shown: Shown, project: Project) -> DeploymentOut:
        row = shown.deployment
        duration_ms = row.ended_at - row.started_at if row.ended_at is not None and row.started_at is not None else None
        return cls(
            id=row.id,
            deployment_uuid=row.uuid,
            status=row.status,
            commit_id=commit_id(row.commit_sha),
            commit_sha=row.commit_sha,
            branch=row.branch,
            enable=row.id == project.current_deployment_id,
            actor=DeploymentActor(row.actor_user_id, shown.name, shown.username),
            created_at=to_wire(row.created_at),
            updated_at=to_wire(row.updated_at),
            kind=row.kind,
            reason=row.reason,
            file_count=row.file_count,
            duration_ms=duration_ms,
            preview=row.preview_id is not None,
            swap=_read_swap(row.swap) if row.swap else None,
        )


class DeploymentStatusInfo(Output, frozen=True):
    deployment_uuid: str
    status: str
    terminal: bool
    commit_id: str | None
    branch: str | None
    created_at: str | None
    updated_at: str | None
    project_name: str | None
    repository_name: str | None
    project_url: str | None
    reason: str | None
    queue_position: int | None

    @classmethod
    def of(
        cls, row: Deployment, project: Project, preview: Preview | None, position: int | None, settings: Settings
    ) -> DeploymentStatusInfo:
        host = service.host_of(settings, preview.name if preview is not None else project.name)
        return cls(
            deployment_uuid=row.uuid,
            status=row.status,
            terminal=row.status in DEPLOYMENT.terminal,
            commit_id=commit_id(row.commit_sha),
            branch=row.branch,
            created_at=to_wire(row.created_at),
            updated_at=to_wire(row.updated_at),
            project_name=project.name,
            repository_name=row.repository_name,
            project_url=service.url_of(settings, host),
            reason=row.reason,
            queue_position=position,
        )


class PreviewOut(Output, frozen=True):
    number: int
    status: str
    url: str
    title: str
    branch: str
    commit_id: str | None
    commit_sha: str
    fork: bool
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, preview: Preview, settings: Settings) -> PreviewOut:
        return cls(
            number=preview.number,
            status=preview.status,
            url=service.url_of(settings, service.host_of(settings, preview.name)),
            title=preview.title,
            branch=preview.branch,
            commit_id=commit_id(preview.commit_sha),
            commit_sha=preview.commit_sha,
            fork=preview.is_fork,
            created_at=to_wire(preview.created_at),
            updated_at=to_wire(preview.updated_at),
        )
