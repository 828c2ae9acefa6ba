"""Request and response bodies of the cronjob routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from moorage.core.http.envvars import Env, SecretSet
from moorage.core.http.models import Input, Output, optional
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.cron import MAX_EXPRESSION_CHARS, BadCron, Cron
from moorage.core.kit.envvars import EnvOut, env_text, read_env
from moorage.products.cronjobs.service import NewCronjob
from moorage.products.cronjobs.tables import Build, Cronjob, Execution
from moorage.products.projects.deployments.schemas import LogLine
from moorage.products.projects.schemas import Branch, BuildArgs, BuildTarget, Command, Folder, ImageText, Repository
from moorage.runtime.builds.ports import args_text, read_args

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def _cron(text: str) -> str:
    try:
        Cron.parse(text)
    except BadCron as error:
        raise ValueError(str(error)) from None
    return text


CronText = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_CHARS), AfterValidator(_cron)]
InstanceType = Literal["micro", "mini", "large", "xlarge"]
Language = Literal["nodejs", "python", "go", "docker"]


class CreateCronjobInput(Input):
    name: Annotated[str, Field(min_length=1, max_length=52, pattern=NAME)]
    image_source: Literal["codehost", "github", "public_image"] = "codehost"
    cron_schedule: CronText
    region: Annotated[str, Field(min_length=1, max_length=64)] = "us"
    instance_type: InstanceType = "micro"
    repository_name: Repository = optional()
    branch: Branch = "main"
    is_public: bool = True
    language: Language = "nodejs"
    base_dir: Folder = "./"
    build_cmd: Command = ""
    start_cmd: Command = ""
    command: Command = ""
    dockerfile_path: Folder = "./Dockerfile"
    docker_build_context_dir: Folder = "./"
    docker_build_args: Annotated[BuildArgs, Field(default_factory=dict)]
    docker_build_target: BuildTarget = ""
    auto_deploy: bool = False
    public_image: ImageText = optional(description="An image reference, such as `alpine:3.20`.")
    env: Annotated[Env, Field(default_factory=list)]
    secrets: Annotated[Env, Field(default_factory=list, description="Never returned.")]

    @classmethod
    def related_problems(cls, sent: Mapping[str, Any]) -> dict[str, str]:
        """Require the source that `imageSource` names; the other source is ignored."""
        source = sent.get("imageSource", "codehost")
        needed = "publicImage" if source == "public_image" else "repositoryName"
        if needed in sent:
            return {}
        hint = "; publicImage needs imageSource public_image" if "publicImage" in sent else ""
        return {needed: f"is required where imageSource is {source}{hint}"}

    @property
    def is_image(self) -> bool:
        return self.image_source == "public_image"

    def new(self) -> NewCronjob:
        """Return the columns of the new cronjob, with the settings of a build also for a public image."""
        copied = (
            "name", "cron_schedule", "region", "instance_type", "branch", "is_public", "language", "base_dir",
            "build_cmd", "start_cmd", "command", "dockerfile_path", "docker_build_context_dir", "docker_build_target",
            "auto_deploy",
        )  # fmt: skip
        return NewCronjob(
            **{name: getattr(self, name) for name in copied},
            image_source="public_image" if self.is_image else "codehost",
            repository_name=None if self.is_image else self.repository_name,
            public_image=self.public_image if self.is_image else None,
            docker_build_args=args_text(self.docker_build_args),
            env=env_text(self.env),
        )

    def hidden(self) -> dict[str, str]:
        return {each.name: each.value for each in self.secrets}


class UpdateCronjobInput(Input):
    cron_schedule: CronText = optional()
    instance_type: InstanceType = optional()
    branch: Branch = optional()
    language: Language = optional()
    base_dir: Folder = optional()
    build_cmd: Command = optional()
    start_cmd: Command = optional()
    dockerfile_path: Folder = optional()
    docker_build_context_dir: Folder = optional()
    docker_build_args: BuildArgs = optional()
    docker_build_target: BuildTarget = optional()
    auto_deploy: bool = optional()
    public_image: ImageText = optional()
    command: Command = optional()
    env: Env = optional()
    secrets: SecretSet = optional(description="Replaces all; one without a value keeps the one it has.")

    def changes(self) -> dict[str, Any]:
        sent = {name: value for name, value in self.sent().items() if name != "secrets"}
        if "docker_build_args" in sent:
            sent["docker_build_args"] = args_text(self.docker_build_args)
        return sent | ({"env": env_text(sent["env"])} if "env" in sent else {})

    def hidden(self) -> list[tuple[str, str | None]] | None:
        if "secrets" not in self.model_fields_set:
            return None
        return [(each.name, each.value) for each in self.secrets]


class RunStats(Output, frozen=True):
    total_runs: int
    successful_runs: int
    failed_runs: int
    skipped_runs: int
    last_run_at: str | None
    next_run_at: str | None

    @classmethod
    def of(cls, cronjob: Cronjob, next_run_at: int | None) -> RunStats:
        return cls(
            total_runs=cronjob.total_runs,
            successful_runs=cronjob.successful_runs,
            failed_runs=cronjob.failed_runs,
            skipped_runs=cronjob.skipped_runs,
            last_run_at=to_wire_or_none(cronjob.last_run_at),
            next_run_at=to_wire_or_none(next_run_at),
        )


class CronjobListItem(Output, frozen=True):
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

    @classmethod
    def of(cls, cronjob: Cronjob, next_run_at: int | None) -> CronjobListItem:
        return cls(
            id=cronjob.id,
            name=cronjob.name,
            cron_schedule=cronjob.cron_schedule,
            region=cronjob.region,
            instance_type=cronjob.instance_type,
            language=cronjob.language,
            image_source=cronjob.image_source,
            status=cronjob.status,
            is_active=cronjob.is_active,
            run_stats=RunStats.of(cronjob, next_run_at),
            created_at=to_wire(cronjob.created_at),
            updated_at=to_wire(cronjob.updated_at),
        )


class CronjobDetail(Output, frozen=True):
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
    env: list[EnvOut]
    run_stats: RunStats
    created_at: str | None
    updated_at: str | None

    @classmethod
    def of(cls, cronjob: Cronjob, next_run_at: int | None) -> CronjobDetail:
        copied = (
            "id", "name", "repository_name", "branch", "is_public", "auto_deploy", "base_dir", "language", "build_cmd",
            "start_cmd", "command", "region", "cron_schedule", "instance_type", "image_source", "public_image",
            "docker_build_context_dir", "dockerfile_path", "status", "is_active",
        )  # fmt: skip
        return cls(
            **{name: getattr(cronjob, name) for name in copied},
            organization_id=str(cronjob.org_id),
            docker_build_args=(read_args(cronjob.docker_build_args) or None) if cronjob.docker_build_args else None,
            docker_build_target=cronjob.docker_build_target or None,
            env=read_env(cronjob.env),
            run_stats=RunStats.of(cronjob, next_run_at),
            created_at=to_wire(cronjob.created_at),
            updated_at=to_wire(cronjob.updated_at),
        )


class CronjobMutationResult(Output, frozen=True):
    id: int
    name: str
    status: str
    deployment_uuid: str | None

    @classmethod
    def of(cls, cronjob: Cronjob, build: Build | None = None) -> CronjobMutationResult:
        return cls(cronjob.id, cronjob.name, cronjob.status, build.uuid if build else None)


class TriggerCronjobResult(Output, frozen=True):
    execution_uuid: str
    status: str


class CronjobExecution(Output, frozen=True):
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

    @classmethod
    def of(cls, execution: Execution) -> CronjobExecution:
        return cls(
            id=execution.id,
            cronjob_id=execution.cronjob_id,
            execution_uuid=execution.uuid,
            status=execution.status,
            scheduled_for=to_wire_or_none(execution.scheduled_for),
            started_at=to_wire_or_none(execution.started_at),
            completed_at=to_wire_or_none(execution.completed_at),
            exit_code=execution.exit_code,
            error_message=execution.error_message,
            created_at=to_wire(execution.created_at),
            updated_at=to_wire(execution.updated_at),
        )


class ExecutionLogs(Output, frozen=True):
    logs: str
    lines: list[LogLine]


class BuildLogs(Output, frozen=True):
    deployment_uuid: str
    status: str
    commit_sha: str | None
    logs: str
    lines: list[LogLine]
