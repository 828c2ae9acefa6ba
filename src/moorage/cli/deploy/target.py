"""The project that a folder is deployed to: found by its name, or created with the first deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from moorage.cli.manifest import Manifest, project_input
from moorage.client import Client, Conflict, NotFound
from moorage.client.models import AutoInput, EnvVar, ProjectDetail, SecretUpsert


class NameTaken(Exception):
    """The name belongs to a project of another organization; `free` is one that does not."""

    def __init__(self, name: str, free: str) -> None:
        super().__init__(f"the name {name} is taken by another organization; choose one with --name, such as {free}")
        self.free = free


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the command that are written to the project before it is deployed."""

    branch: str = "main"
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    file: Manifest | None = None  # moorage.toml of the folder


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    project: ProjectDetail | None  # None: it is created
    owner: str  # of the repository

    @property
    def repository(self) -> str:
        known = self.project.repository_name if self.project is not None else None
        return known or f"{self.owner}/{self.name}"

    @property
    def is_upload(self) -> bool:
        return self.project is not None and not self.project.repository_name


def find(client: Client, name: str) -> Target:
    """Return the target of a name; raises NameTaken."""
    org_id = client.identity.whoami().org_id
    organization = client.organizations.read(org_id)
    try:
        return Target(name, client.projects.read(name), organization.slug)
    except NotFound:
        pass
    if not client.projects.check_name(name=name).available:
        raise NameTaken(name, _free_name(client, name, organization.slug))
    return Target(name, None, organization.slug)


def _free_name(client: Client, name: str, slug: str) -> str:
    candidates = [f"{name}-{slug}"[:63].strip("-"), *(f"{name[:60]}-{number}" for number in range(2, 10))]
    return next((each for each in candidates if client.projects.check_name(name=each).available), f"{name}-app")


def create(client: Client, target: Target, settings: Settings) -> str:
    """Create the project on its pushed repository, and return the uuid of its first deployment."""
    if settings.file is not None and settings.file.project is not None:
        repository = target.repository
        body = project_input(settings.file, repository_name=repository, env=settings.env, secrets=settings.secrets)
        body.name = target.name
    else:
        env, secrets = _variables(settings.env), _variables(settings.secrets)
        body = AutoInput(name=target.name, repository_name=target.repository, env=env, secrets=secrets)
    if body.branch is UNSET:
        body.branch = settings.branch
    if body.auto_deploy is UNSET:
        body.auto_deploy = True
    return client.projects.create(body=body).deployment_uuid


def update(client: Client, target: Target, settings: Settings) -> None:
    """Write variables and secrets of the command to an existing project; others stay as they are."""
    project = target.project
    assert project is not None
    now = {each.name: each.value for each in project.env}
    changes: dict[str, object] = {}
    if any(now.get(name) != value for name, value in settings.env.items()):
        changes["env"] = _variables({**now, **settings.env})
    if settings.secrets:
        kept = [each.name for each in client.projects.list_secrets(target.name) if each.name not in settings.secrets]
        changes["secrets"] = [
            *(SecretUpsert(name=name) for name in kept),
            *(SecretUpsert(name=name, value=value) for name, value in settings.secrets.items()),
        ]
    if changes:
        client.projects.update(target.name, **changes)  # type: ignore[arg-type]


def deploy(client: Client, target: Target, commit: str) -> str:
    """Start a deployment of a commit, and return its uuid."""
    try:
        return client.deployments.deploy_project(target.name, commit_sha=commit).deployment_uuid
    except Conflict as error:
        raise Conflict(
            error.status, f"{error.message} (project {target.name})", error.fields, error.trace_id
        ) from error


def _variables(values: Mapping[str, str]) -> list[EnvVar]:
    return [EnvVar(name=name, value=value) for name, value in values.items()]
