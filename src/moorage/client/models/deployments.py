"""Models of the group deployments. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import Model


class DeploymentStarted(Model, kw_only=True):
    deployment_id: int
    deployment_uuid: str
    project_id: int
    status: str | None = None


class DeploymentRef(Model, kw_only=True):
    deployment_uuid: str
    status: str | None = None


class DeploymentOut(Model, kw_only=True):
    id: int
    deployment_uuid: str
    status: str
    commit_id: str | None
    commit_sha: str | None
    branch: str | None
    enable: bool
    actor: DeploymentActor
    created_at: str
    updated_at: str
    kind: str
    reason: str | None
    file_count: int | None
    duration_ms: int | None
    preview: bool
    swap: SwapOut | None


class DeploymentActor(Model, kw_only=True):
    user_id: int | None
    name: str | None
    username: str | None


class SwapOut(Model, kw_only=True):
    """Requests to the public address while an app replaced its predecessor."""

    requests: int
    failed: int
    longest_gap_ms: int


class DeploymentStatusInfo(Model, kw_only=True):
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


class PreviewOut(Model, kw_only=True):
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


class DeployInput(Model, kw_only=True):
    operation: Literal["deploy", "restart", "rebuild"] | msgspec.UnsetType = msgspec.UNSET
    commit_sha: str | msgspec.UnsetType = msgspec.UNSET


class RollbackInput(Model, kw_only=True):
    deployment_uuid: str


class ApprovePreviewInput(Model, kw_only=True):
    commit_sha: str | msgspec.UnsetType = msgspec.UNSET
