"""Models of the group projects. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import List, Model
from moorage.client.models.functions import EnvOut


class ProjectListItem(Model, kw_only=True):
    id: int
    name: str
    slug: str | None
    branch: str | None
    repository_name: str | None
    organization_id: str
    project_url: str
    enabled: bool
    latest_deployment: LatestDeployment | None
    updated_at: str


class LatestDeployment(Model, kw_only=True):
    status: str
    commit_id: str | None
    created_at: str


class NameAvailability(Model, kw_only=True):
    name: str
    available: bool


class ProjectDetail(Model, kw_only=True):
    id: int
    name: str
    slug: str | None
    branch: str | None
    repository_name: str | None
    organization_id: str
    project_url: str
    enabled: bool
    is_public: bool
    language: str | None
    runtime: str | None
    region: str | None
    base_dir: str | None
    build_dir: str | None
    build_cmd: str | None
    start_cmd: str | None
    health_check_path: str | None
    docker_file_path: str | None
    tier: TierDetail | None
    disk: int | None
    auto_scaling: AutoScaling | None
    enable_analytics: bool
    auto_deploy: bool
    env: List[EnvOut]
    total_deployments: int
    success_deployments: int
    failed_deployments: int
    latest_deployment: LatestDeployment | None
    created_at: str
    updated_at: str
    pr_preview: bool
    entry_point: str | None
    docker_build_context_dir: str | None
    docker_build_args: dict[str, str] | None
    docker_build_target: str | None
    deploy_guard: bool
    public_image: str | None
    triggered_deployment_uuid: str | None = None
    status: str | None = None
    status_reason: str | None = None


class TierDetail(Model, kw_only=True):
    key: str
    name: str
    cpu: float
    memory: float
    disk: int
    paid: bool


class AutoScaling(Model, kw_only=True):
    enabled: bool
    min_replicas: int
    max_replicas: int
    target_cpu_percent: int


class CreateProjectResult(Model, kw_only=True):
    project_id: int
    name: str
    deployment_id: int
    deployment_uuid: str
    status: str | None = None


class DeletedProject(Model, kw_only=True):
    deleted: bool
    slug: str | None
    async_: bool


class UploadResult(Model, kw_only=True):
    project_id: int
    name: str
    deployment_id: int
    upload_id: str
    live_url: str
    file_count: int
    status: str | None = None


class DetectedPlan(Model, kw_only=True):
    """Empty strings stand for commands that are not needed."""

    commit_id: str
    commit_message: str
    kind: str | None
    language: str
    framework: str
    install: str
    build: str
    start: str
    output_dir: str
    base_dir: str
    notes: List[str]
    reasons: List[str]
    problem: str | None


class ProjectAnalytics(Model, kw_only=True):
    enabled: bool
    range: str
    totals: AnalyticsTotals
    series: List[AnalyticsBucket]
    top_paths: List[TopPath]
    top_referrers: List[TopReferrer]


class AnalyticsTotals(Model, kw_only=True):
    requests: int
    visitors: int
    bytes: int
    statuses: dict[str, int]


class AnalyticsBucket(Model, kw_only=True):
    t: str
    requests: int
    visitors: int
    bytes: int


class TopPath(Model, kw_only=True):
    path: str
    requests: int


class TopReferrer(Model, kw_only=True):
    referrer: str
    requests: int


class RepositoryItem(Model, kw_only=True):
    name: str
    default_branch: str
    size_bytes: int
    url: str
    created_at: str
    pushed_at: str


class AppLogLines(Model, kw_only=True):
    items: List[AppLogLine]


class AppLogLine(Model, kw_only=True):
    timestamp: str
    stream: str
    replica: str
    message: str


class ProjectMetrics(Model, kw_only=True):
    range: str
    bucket_seconds: int
    items: List[MetricsItem]
    totals: MetricsTotals


class MetricsItem(Model, kw_only=True):
    at: str
    cpu_percent: float | None
    cpu_milli: int
    memory_mi_b: float
    replicas: int
    requests: int
    p50_ms: float | None
    p95_ms: float | None
    statuses: dict[str, int]


class MetricsTotals(Model, kw_only=True):
    requests: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None


class CommandResult(Model, kw_only=True):
    """Exit code of a command, and the last megabyte of each of its streams."""

    exit_code: int
    reason: str | None
    stdout: str
    stderr: str
    truncated: bool


class AutoInput(Model, kw_only=True):
    name: str
    # `owner/repo`.
    repository_name: str
    branch: str | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    is_public: bool | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    pr_preview: bool | msgspec.UnsetType = msgspec.UNSET
    enable_analytics: bool | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    secrets: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    slug: Literal["auto"] = "auto"
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET
    build_dir: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET
    tier: TierInput | msgspec.UnsetType = msgspec.UNSET
    # GB.
    disk: int | msgspec.UnsetType = msgspec.UNSET
    auto_scaling: AutoScalingInput | msgspec.UnsetType = msgspec.UNSET


class AutoScalingInput(Model, kw_only=True):
    enabled: bool
    min_replicas: int | msgspec.UnsetType = msgspec.UNSET
    # Default: `minReplicas`.
    max_replicas: int | msgspec.UnsetType = msgspec.UNSET
    target_cpu_percent: int | msgspec.UnsetType = msgspec.UNSET


class ContainerInput(Model, kw_only=True):
    name: str
    # `owner/repo`.
    repository_name: str | msgspec.UnsetType = msgspec.UNSET
    branch: str | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    is_public: bool | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    pr_preview: bool | msgspec.UnsetType = msgspec.UNSET
    enable_analytics: bool | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    secrets: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    slug: Literal["container"] = "container"
    # A ready image such as `nginx:1.27`, instead of `repositoryName` and `language`.
    public_image: str | msgspec.UnsetType = msgspec.UNSET
    language: Literal["auto", "nodejs", "python", "go", "docker"] | msgspec.UnsetType = msgspec.UNSET
    region: str | msgspec.UnsetType = msgspec.UNSET
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET
    entry_point: str | msgspec.UnsetType = msgspec.UNSET
    # At `/`, the default, any status below 500 is healthy; another path has to answer 2xx or 3xx.
    health_check_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_file_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_build_context_dir: str | msgspec.UnsetType = msgspec.UNSET
    # Values of ARG in the Dockerfile.
    docker_build_args: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # Stage of the Dockerfile to build; empty for the last.
    docker_build_target: str | msgspec.UnsetType = msgspec.UNSET
    tier: TierInput | msgspec.UnsetType = msgspec.UNSET
    # GB.
    disk: int | msgspec.UnsetType = msgspec.UNSET
    auto_scaling: AutoScalingInput | msgspec.UnsetType = msgspec.UNSET


class EnvVar(Model, kw_only=True):
    name: str
    value: str


class StaticInput(Model, kw_only=True):
    name: str
    # `owner/repo`.
    repository_name: str
    branch: str | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    is_public: bool | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    pr_preview: bool | msgspec.UnsetType = msgspec.UNSET
    enable_analytics: bool | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    # Never returned.
    secrets: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    slug: Literal["static"] = "static"
    build_dir: str | msgspec.UnsetType = msgspec.UNSET
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET


class TierInput(Model, kw_only=True):
    # A tier's key.
    key: str


class RenameInput(Model, kw_only=True):
    name: str


class SecretUpsert(Model, kw_only=True):
    """A secret to set; without a value it keeps the stored one."""

    name: str
    value: str | msgspec.UnsetType = msgspec.UNSET


class UpdateProjectInput(Model, kw_only=True):
    # For projects that were created with one.
    public_image: str | msgspec.UnsetType = msgspec.UNSET
    build_cmd: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    build_dir: str | msgspec.UnsetType = msgspec.UNSET
    # At `/`, the default, any status below 500 is healthy; another path has to answer 2xx or 3xx.
    health_check_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_file_path: str | msgspec.UnsetType = msgspec.UNSET
    docker_build_context_dir: str | msgspec.UnsetType = msgspec.UNSET
    # Values of ARG in the Dockerfile.
    docker_build_args: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # Stage of the Dockerfile to build; empty for the last.
    docker_build_target: str | msgspec.UnsetType = msgspec.UNSET
    # GB.
    disk: int | msgspec.UnsetType = msgspec.UNSET
    tier: TierInput | msgspec.UnsetType = msgspec.UNSET
    auto_scaling: AutoScalingInput | msgspec.UnsetType = msgspec.UNSET
    enable_analytics: bool | msgspec.UnsetType = msgspec.UNSET
    auto_deploy: bool | msgspec.UnsetType = msgspec.UNSET
    # Roll back automatically where a release does far worse than the one before.
    deploy_guard: bool | msgspec.UnsetType = msgspec.UNSET
    env: List[EnvVar] | msgspec.UnsetType = msgspec.UNSET
    secrets: List[SecretUpsert] | msgspec.UnsetType = msgspec.UNSET


class ToggleInput(Model, kw_only=True):
    enable: bool


class UploadForm(Model, kw_only=True):
    name: str


class DetectInput(Model, kw_only=True):
    # `owner/repo`.
    repository_name: str
    branch: str | msgspec.UnsetType = msgspec.UNSET
    slug: Literal["auto", "static", "container"] | msgspec.UnsetType = msgspec.UNSET
    base_dir: str | msgspec.UnsetType = msgspec.UNSET
    start_cmd: str | msgspec.UnsetType = msgspec.UNSET


class RunCommandInput(Model, kw_only=True):
    command: str
    timeout_seconds: int | msgspec.UnsetType = msgspec.UNSET


CreateProjectInput = StaticInput | ContainerInput | AutoInput
