"""Models of the group cronjobs. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import List, Model
from moorage.client.models.functions import EnvOut
from moorage.client.models.projects import EnvVar, SecretUpsert


class CronjobListItem(Model, kw_only=True):
    id: int
    name: str | None
    cron_schedule: str | None
    region: str | None
    instance_type: str | None
    language: str | None
    image_source: str | None
    status: str | None
    is_active: bool
    run_stats: RunStats
    created_at: str | None
    updated_at: str | None


class RunStats(Model, kw_only=True):
    total_runs: int
    successful_runs: int
    failed_runs: int
    skipped_runs: int
    last_run_at: str | None
    next_run_at: str | None


class CronjobDetail(Model, kw_only=True):
    id: int
    name: str | None
    repository_name: str | None
    branch: str | None
    organization_id: str
    is_public: bool
    auto_deploy: bool
    base_dir: str | None
    language: str | None
    build_cmd: str | None
    start_cmd: str | None
    command: str | None
    region: str | None
    cron_schedule: str | None
    instance_type: str | None
    image_source: str | None
    public_image: str | None
    docker_build_context_dir: str | None
    dockerfile_path: str | None
    docker_build_args: dict[str, str] | None
    docker_build_target: str | None
    status: str | None
    is_active: bool
    env: List[EnvOut]
    run_stats: RunStats
    created_at: str | None
    updated_at: str | None


class CronjobExecution(Model, kw_only=True):
    id: int
    cronjob_id: int | None
    execution_uuid: str
    status: str
    scheduled_for: str | None
    started_at: str | None
    completed_at: str | None
    exit_code: int | None
    error_message: str | None
    created_at: str | None
    updated_at: str | None


class BuildLogs(Model, kw_only=True):
    deployment_uuid: str
    status: str
    commit_sha: str | None
    logs: str
    lines: List[LogLine]


class LogLine(Model, kw_only=True):
    message: str
    timestamp: str
    stream: str


class CronjobMutationResult(Model, kw_only=True):
    id: int
    name: str
    status: str
    deployment_uuid: str | None


class TriggerCronjobResult(Model, kw_only=True):
    execution_uuid: str
    status: str


class ExecutionLogs(Model, kw_only=True):
    logs: str
    lines: List[LogLine]


class CreateCronjobInput(Model, kw_only=True):
    name: str
    image_source: Literal["codehost", "github", "public_image"] | msgspec.UnsetType = msgspec.UNSET
    cron_schedule: str
    region: str | msgspec.UnsetType = msgspec.UNSET
    instance_type: Literal["micro", "mini", "large", "xlarge"] | msgspec.UnsetType = msgspec.UNSET
    # `owner/repo`.
    repository_name: str | msgspec.UnsetType = msgspec.UNSET
    branch: str | msgspec.UnsetType = msgspec.UNSET
    is_public: bool | msgspec.UnsetType = msgspec.UNSET
    language: Literal["nodejs", "python", "go", "docker"] | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET
    command: str | msgspec.UnsetType = msgspec.UNSET
    dockerfile_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_build_context_dir: str | msgspec.UnsetType = msgspec.UNSET
    # Values of ARG in the Dockerfile.
    docker_build_args: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # Stage of the Dockerfile to build; empty for the last.
    docker_build_target: str | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    # An image reference, such as `alpine:3.20`.
    public_image: str | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    secrets: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET


class UpdateCronjobInput(Model, kw_only=True):
    cron_schedule: str | msgspec.UnsetType = msgspec.UNSET
    instance_type: Literal["micro", "mini", "large", "xlarge"] | msgspec.UnsetType = msgspec.UNSET
    branch: str | msgspec.UnsetType = msgspec.UNSET
    language: Literal["nodejs", "python", "go", "docker"] | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET
    dockerfile_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_build_context_dir: str | msgspec.UnsetType = msgspec.UNSET
    # Values of ARG in the Dockerfile.
    docker_build_args: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # Stage of the Dockerfile to build; empty for the last.
    docker_build_target: str | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    public_image: str | msgspec.UnsetType = msgspec.UNSET
    command: str | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    # Replaces all; one without a value keeps the one it has.
    secrets: List[SecretUpsert] | msgspec.UnsetType = msgspec.UNSET
