"""Request and response bodies of the routes of projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, RootModel, ValidationInfo, field_validator

from moorage.accounts.plans import tiers
from moorage.accounts.plans.schemas import TierKey
from moorage.core.http.envvars import Env, SecretSet
from moorage.core.http.models import Input, Output, QueryInput, QueryInt, optional
from moorage.core.http.paging import CursorQuery
from moorage.core.http.waiting import ONLY_IN_WRITES, WaitedStatus
from moorage.core.kit.clock import to_wire
from moorage.core.kit.decoding import decoder_of
from moorage.core.kit.envvars import EnvOut, env_text, read_env
from moorage.products.projects import service
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.products.repositories.names import is_branch
from moorage.runtime.builds.ports import DEFAULT_CMD, DEFAULT_DIR, args_text, read_args
from moorage.runtime.images import references
from moorage.settings import Settings

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ARG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_ARG_CHARS = 8_192
REPOSITORY = r"^[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$"


def _branch(name: str) -> str:
    if not is_branch(name):
        raise ValueError("is not a branch name that git knows")
    return name


def _inside(path: str) -> str:
    if ".." in path.replace("\\", "/").split("/"):
        raise ValueError("must not leave the repository")
    return path


Name = Annotated[str, Field(min_length=1, max_length=63, pattern=NAME)]
Repository = Annotated[str, Field(max_length=200, pattern=REPOSITORY, description="`owner/repo`.")]
Branch = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_branch)]
Command = Annotated[str, Field(max_length=2000)]
Folder = Annotated[str, Field(max_length=500), AfterValidator(_inside)]
Line = Annotated[str, Field(max_length=500)]
HealthPath = Annotated[
    Line,
    Field(description="At `/`, the default, any status below 500 is healthy; another path has to answer 2xx or 3xx."),
]
Language = Literal["auto", "nodejs", "python", "go", "docker"]


def _are_args(args: dict[str, str]) -> dict[str, str]:
    for name, value in args.items():
        if not ARG_NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of an argument")
        if len(value) > MAX_ARG_CHARS or "\0" in value:
            raise ValueError(f"the value of {name} should have at most {MAX_ARG_CHARS:,} characters")
    return args


BuildArgs = Annotated[
    dict[str, str], Field(max_length=100, description="Values of ARG in the Dockerfile."), AfterValidator(_are_args)
]
BuildTarget = Annotated[str, Field(max_length=128, description="Stage of the Dockerfile to build; empty for the last.")]


def _image(text: str) -> str:
    references.parse(text)
    return text


ImageText = Annotated[str, Field(min_length=1, max_length=references.MAX_NAME), AfterValidator(_image)]


class TierInput(Input):
    key: TierKey


class AutoScalingInput(Input):
    enabled: bool
    min_replicas: Annotated[int, Field(ge=1, le=50)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=100)] = optional(description="Default: `minReplicas`.")
    target_cpu_percent: Annotated[int, Field(ge=1, le=100)] = 80

    @field_validator("max_replicas")
    @classmethod
    def _is_a_range(cls, most: int, info: ValidationInfo) -> int:
        if most < info.data.get("min_replicas", 1):
            raise ValueError("should not be below minReplicas")
        return most

    def text(self) -> str:
        most = self.max_replicas if "max_replicas" in self.model_fields_set else self.min_replicas
        return self.model_copy(update={"max_replicas": most}).model_dump_json(by_alias=True)


class CommonInput(Input):
    """Fields that all kinds of projects share."""

    name: Name
    repository_name: Repository
    branch: Branch = "main"
    base_dir: Folder = "./"
    is_public: bool = True
    auto_deploy: bool = False
    pr_preview: bool = False
    enable_analytics: bool = False
    env: Annotated[Env, Field(default_factory=list)]
    secrets: Annotated[Env, Field(default_factory=list, description="Never returned.")]

    def common(self) -> dict[str, Any]:
        columns = ("name", "repository_name", "branch", "base_dir", "is_public", "auto_deploy", "pr_preview")
        return {name: getattr(self, name) for name in (*columns, "enable_analytics")} | {"env": env_text(self.env)}

    def hidden(self) -> dict[str, str]:
        return {each.name: each.value for each in self.secrets}


class StaticInput(CommonInput):
    slug: Literal["static"]
    build_dir: Folder = DEFAULT_DIR
    build_cmd: Command = DEFAULT_CMD

    def as_new(self) -> NewProject:
        return NewProject(**self.common(), slug="static", build_dir=self.build_dir, build_cmd=self.build_cmd)


class ContainerInput(CommonInput):
    slug: Literal["container"]
    repository_name: Repository = optional()
    public_image: ImageText = optional(
        description="A ready image such as `nginx:1.27`, instead of `repositoryName` and `language`."
    )
    language: Language = optional()
    region: Annotated[str, Field(min_length=1, max_length=64)] = "us"
    build_cmd: Command = ""
    start_cmd: Command = ""
    entry_point: Line = ""
    health_check_path: HealthPath = "/"
    docker_file_path: Folder = "./Dockerfile"
    docker_build_context_dir: Folder = "./"
    docker_build_args: Annotated[BuildArgs, Field(default_factory=dict)]
    docker_build_target: BuildTarget = ""
    tier: TierInput = optional()
    disk: Annotated[int, Field(ge=0, le=100, description="GB.")] = 0
    auto_scaling: AutoScalingInput = optional()

    @property
    def is_image(self) -> bool:
        return "public_image" in self.model_fields_set

    @classmethod
    def related_problems(cls, sent: Mapping[str, Any]) -> dict[str, str]:
        """Require exactly one source: a repository with its language, or an image."""
        if "publicImage" not in sent:
            return {name: "is required" for name in ("repositoryName", "language") if name not in sent}
        return {"repositoryName": "must not be given together with publicImage"} if "repositoryName" in sent else {}

    def as_new(self) -> NewProject:
        columns = (
            "language", "region", "build_cmd", "start_cmd", "entry_point", "health_check_path", "docker_file_path",
            "docker_build_context_dir", "docker_build_target", "disk",
        )  # fmt: skip
        own = {name: getattr(self, name) for name in columns}
        own["docker_build_args"] = args_text(self.docker_build_args)
        common = self.common()
        if self.is_image:
            common |= {"source": "image", "public_image": self.public_image, "branch": None}
            own["language"] = "docker"
        return NewProject(**common, **own, **_compute(self), slug="container")


class AutoInput(CommonInput):
    slug: Literal["auto"]
    build_cmd: Command = optional()
    build_dir: Folder = optional()
    start_cmd: Command = optional()
    tier: TierInput = optional()
    disk: Annotated[int, Field(ge=0, le=100, description="GB.")] = optional()
    auto_scaling: AutoScalingInput = optional()

    def as_new(self) -> NewProject:
        own = {name: getattr(self, name) for name in ("build_cmd", "build_dir", "start_cmd", "disk")}
        return NewProject(**self.common(), **own, **_compute(self), slug=None, is_auto=True)


class CreateProjectInput(RootModel[StaticInput | ContainerInput | AutoInput]):
    """A new project; `slug` selects the kind."""

    root: Annotated[StaticInput | ContainerInput | AutoInput, Field(discriminator="slug")]

    @classmethod
    def related_problems(cls, sent: Mapping[str, Any]) -> dict[str, str]:
        return ContainerInput.related_problems(sent) if sent.get("slug") == "container" else {}


def _compute(body: ContainerInput | AutoInput) -> dict[str, Any]:
    return {
        "tier": body.tier.key if body.tier is not None else None,
        "auto_scaling": body.auto_scaling.text() if body.auto_scaling is not None else None,
    }


class UpdateProjectInput(Input):
    public_image: ImageText = optional(description="For projects that were created with one.")
    build_cmd: Command = optional()
    start_cmd: Command = optional()
    base_dir: Folder = optional()
    build_dir: Folder = optional()
    health_check_path: HealthPath = optional()
    docker_file_path: Folder = optional()
    docker_build_context_dir: Folder = optional()
    docker_build_args: BuildArgs = optional()
    docker_build_target: BuildTarget = optional()
    disk: Annotated[int, Field(ge=0, le=1000, description="GB.")] = optional()
    tier: TierInput = optional()
    auto_scaling: AutoScalingInput = optional()
    enable_analytics: bool = optional()
    auto_deploy: bool = optional()
    deploy_guard: Annotated[
        bool, Field(description="Roll back automatically where a release does far worse than the one before.")
    ] = optional()
    env: Env = optional()
    secrets: SecretSet = optional()

    def changes(self) -> dict[str, Any]:
        """Return the fields of the request by column name, without the secrets."""
        columns = self.sent()
        columns.pop("secrets", None)
        if "env" in columns:
            columns["env"] = env_text(self.env)
        if "docker_build_args" in columns:
            columns["docker_build_args"] = args_text(self.docker_build_args)
        if "tier" in columns:
            columns["tier"] = self.tier.key
        if "auto_scaling" in columns:
            columns["auto_scaling"] = self.auto_scaling.text()
        return columns

    def wanted_secrets(self) -> list[tuple[str, str | None]] | None:
        """Return the complete new set of secrets, or None where the request has none."""
        if "secrets" not in self.model_fields_set:
            return None
        return [(each.name, each.value if "value" in each.model_fields_set else None) for each in self.secrets]


class RenameInput(Input):
    name: Name


class NameQuery(QueryInput):
    name: Name


class ToggleInput(Input):
    enable: bool


class RollbackInput(Input):
    deployment_uuid: str


class DeployInput(Input):
    operation: Literal["deploy", "restart", "rebuild"] = "deploy"
    # An unknown commit is accepted; its deployment fails and the log names the reason.
    commit_sha: Annotated[str, Field(max_length=100, pattern=r"^[0-9A-Za-z][0-9A-Za-z._/-]*$")] = optional()


class ApprovePreviewInput(Input):
    commit_sha: Annotated[str, Field(pattern=r"^([0-9a-fA-F]{12}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64})$")] = optional()


class UploadForm(QueryInput):
    name: Name


class DetectInput(Input):
    repository_name: Repository
    branch: Branch = "main"
    slug: Literal["auto", "static", "container"] = "auto"
    base_dir: Folder = "./"
    start_cmd: Command = ""


class ProjectsQuery(CursorQuery):
    slug: Literal["static", "container"] | None = None


class DeploymentsQuery(CursorQuery):
    limit: Annotated[QueryInt, Field(ge=1, le=100)] = 20


class LatestDeployment(Output, frozen=True):
    status: str
    commit_id: str | None
    created_at: str


class TierDetail(Output, frozen=True):
    key: str
    name: str
    cpu: float
    memory: float
    disk: int
    paid: bool


class AutoScaling(Output, frozen=True):
    enabled: bool
    min_replicas: int
    max_replicas: int
    target_cpu_percent: int


class ProjectListItem(Output, frozen=True):
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

    @classmethod
    def of(cls, project: Project, settings: Settings, latest: LatestDeployment | None) -> ProjectListItem:
        return cls(
            id=project.id,
            name=project.name,
            slug=project.slug,
            branch=project.branch,
            repository_name=project.repository_name,
            organization_id=str(project.org_id),
            project_url=service.url_of(settings, service.host_of(settings, project.name)),
            enabled=project.enabled,
            latest_deployment=latest,
            updated_at=to_wire(project.updated_at),
        )


class ProjectDetail(Output, frozen=True, omit_defaults=False):
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
    env: list[EnvOut]
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
    triggered_deployment_uuid: Annotated[str | msgspec.UnsetType, ONLY_IN_WRITES] = msgspec.UNSET
    status: WaitedStatus = msgspec.UNSET  # of the triggered deployment
    status_reason: str | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(
        cls,
        project: Project,
        settings: Settings,
        latest: LatestDeployment | None,
        triggered: str | None = None,
        absence: str | None = None,
    ) -> ProjectDetail:
        same = (
            "id", "name", "slug", "branch", "repository_name", "enabled", "is_public", "language", "runtime", "region",
            "base_dir", "build_dir", "build_cmd", "start_cmd", "health_check_path", "docker_file_path", "disk",
            "enable_analytics", "auto_deploy", "total_deployments", "success_deployments", "failed_deployments",
            "pr_preview", "entry_point", "docker_build_context_dir", "deploy_guard", "public_image",
        )  # fmt: skip
        return cls(
            **{name: getattr(project, name) for name in same},
            organization_id=str(project.org_id),
            project_url=service.url_of(settings, service.host_of(settings, project.name)),
            tier=_tier(project),
            auto_scaling=_read_scaling(project.auto_scaling) if project.auto_scaling else None,
            env=read_env(project.env),
            docker_build_args=(read_args(project.docker_build_args) or None) if project.docker_build_args else None,
            docker_build_target=project.docker_build_target or None,
            latest_deployment=latest,
            created_at=to_wire(project.created_at),
            updated_at=to_wire(project.updated_at),
            triggered_deployment_uuid=triggered if triggered is not None else msgspec.UNSET,
            status_reason=absence if absence is not None else msgspec.UNSET,
        )


_read_scaling = decoder_of(AutoScaling).decode


def _tier(project: Project) -> TierDetail | None:
    """Return the tier of an app; sites have one only where it was asked for, and it has no effect."""
    key = project.tier or (tiers.DEFAULT_OF_APPS if project.slug == "container" else "")
    tier = tiers.find_tier(key)
    return TierDetail(tier.key, tier.name, tier.cpu, tier.memory, tier.disk, tier.paid) if tier else None


class CreateProjectResult(Output, frozen=True):
    project_id: int
    name: str
    deployment_id: int
    deployment_uuid: str
    status: WaitedStatus = msgspec.UNSET


class UploadResult(Output, frozen=True):
    project_id: int
    name: str
    deployment_id: int
    upload_id: str
    live_url: str
    file_count: int
    status: WaitedStatus = msgspec.UNSET


class DetectedPlan(Output, frozen=True):
    """Empty strings stand for commands that are not needed."""

    commit_id: str
    commit_message: str
    kind: str | None  # `static` or `container`
    language: str
    framework: str
    install: str
    build: str
    start: str
    output_dir: str
    base_dir: str
    notes: list[str]
    reasons: list[str]
    problem: str | None


class NameAvailability(Output, frozen=True):
    name: str
    available: bool


class DeletedProject(Output, frozen=True, rename={"is_async": "async"}):
    deleted: bool
    slug: str | None
    is_async: bool


class DeploymentRef(Output, frozen=True):
    deployment_uuid: str
    status: WaitedStatus = msgspec.UNSET


class DeploymentStarted(Output, frozen=True):
    deployment_id: int
    deployment_uuid: str
    project_id: int
    status: WaitedStatus = msgspec.UNSET
