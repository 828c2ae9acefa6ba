"""Create, find, rename, update and delete projects, and manage their secrets.

Releases of a project are handled in `deployments`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.ids import MAX_ID
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, Forbidden, NotFound
from moorage.products.projects import compute, tables
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.states import PreviewStatus
from moorage.products.projects.names import MAX_NAME_CHARS, is_available, preview_name
from moorage.products.projects.tables import FormerName, Preview, Project
from moorage.products.repositories.names import key_of
from moorage.runtime.images.building import cache as layer_cache
from moorage.settings import Settings

MOVED_MS = DAY_MS  # how long the former address of a renamed project redirects to the new one

# Returns why a project cannot run now, such as a missing machine; None if it can.
ABSENCE: Hook[[Tx, int, Project], str | None] = Hook("project.absence")
# Removes the data of other products that belongs to a project: takes the organization's id and the project's.
REMOVE: Hook[[Tx, int, int], None] = Hook("project.remove")


@dataclass(frozen=True, slots=True)
class NewProject:
    """Fields of a project that is about to be created."""

    name: str
    slug: str | None
    is_auto: bool = False
    source: str = "git"
    public_image: str | None = None
    repository_name: str | None = None
    branch: str | None = None
    region: str | None = None
    language: str | None = None
    base_dir: str = "./"
    build_dir: str | None = None
    build_cmd: str | None = None
    start_cmd: str | None = None
    entry_point: str | None = None
    health_check_path: str | None = None
    docker_file_path: str | None = None
    docker_build_context_dir: str | None = None
    docker_build_args: str | None = None
    docker_build_target: str | None = None
    tier: str | None = None
    disk: int | None = None
    auto_scaling: str | None = None
    is_public: bool = True
    enable_analytics: bool = False
    auto_deploy: bool = False
    pr_preview: bool = False
    env: str = "[]"


def host_of(settings: Settings, name: str) -> str:
    return f"{name}.{settings.domain}"


def url_of(settings: Settings, host: str) -> str:
    """Return the public URL of a host of this platform."""
    if settings.is_production or settings.https_port:
        port = settings.https_port or 443
        return f"https://{host}" if port == 443 else f"https://{host}:{port}"
    port = settings.gateway_port
    return f"http://{host}" if port == 80 else f"http://{host}:{port}"


def resource_of(project_id: int) -> str:
    """Return the resource name of a project in the vault."""
    return f"project:{project_id}"


def cache_of(project: Project) -> str:
    """Return the name of a project's build cache.

    It contains the time of creation, because after a restore of the database ids are assigned again.
    """
    return f"project-{project.org_id}-{project.id}-{project.created_at}"


def target_of(project: Project) -> AuditTarget:
    return target_named(project.name)


def target_named(name: str) -> AuditTarget:
    return AuditTarget("project", name)


def find(tx: Tx, org_id: int, name: str) -> Project | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Project:
    project = find(tx, org_id, name)
    if project is None:
        raise no_project()
    return project


def find_by_id(tx: Tx, org_id: int, project_id: int) -> Project | None:
    if project_id > MAX_ID:  # The number of a request body; no column holds it.
        return None
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=project_id)


def find_preview(tx: Tx, org_id: int, preview_id: int | None) -> Preview | None:
    """Return the preview of a deployment; None where the deployment is not of a preview."""
    return tx.find(tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=preview_id) if preview_id is not None else None


def get_by_id(tx: Tx, org_id: int, project_id: int) -> Project:
    project = find_by_id(tx, org_id, project_id)
    if project is None:
        raise no_project()
    return project


def lock(tx: Tx, org_id: int, name: str) -> Project:
    """Return a project and lock its row until the transaction ends."""
    project = tx.find(tables.LOCK, org_id=org_id, name=name)
    if project is None:
        raise no_project()
    return project


def page(tx: Tx, org_id: int, *, before: int, most: int, slug: str | None) -> list[Project]:
    """Return the projects with an id below `before`, newest first."""
    if slug is None:
        return tx.all(tables.PAGE, org_id=org_id, before=before, most=most)
    return tx.all(tables.PAGE_OF_SLUG, org_id=org_id, before=before, most=most, slug=slug)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def check_may_create(tx: Tx, org_id: int, name: str, standing: Standing) -> None:
    """Raise Conflict for an unavailable name, QuotaExceeded at the plan's limit."""
    if not is_available(tx, org_id, name):
        raise _taken(name)
    plans.check_room(tx, org_id, standing, "projects")


def create(
    tx: Tx,
    org_id: int,
    actor: Actor,
    standing: Standing,
    new: NewProject,
    secrets: Mapping[str, str] = {},
    cause: str | None = None,
) -> Project:
    """Create a project; the caller starts its first deployment in the transaction."""
    check_may_create(tx, org_id, new.name, standing)
    values = {name: getattr(new, name) for name in NewProject.__slots__}
    values |= compute.within_plan(tx, org_id, standing, new.slug, {name: values[name] for name in compute.COLUMNS})
    project_id = tx.find(
        tables.ADD,
        org_id=org_id,
        **values,
        repository_key=key_of(new.repository_name) if new.repository_name else None,
        runtime=None,
        enabled=True,
        replicas=1,
        asleep=False,
        deploy_guard=False,
        current_deployment_id=None,
        latest_deployment_id=None,
        total_deployments=0,
        success_deployments=0,
        failed_deployments=0,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if project_id is None:
        raise _taken(new.name)
    tx.one(tables.ADD_NAME, org_id=org_id, project_id=project_id, name=new.name, since=tx.now, until=None)
    for name, value in secrets.items():
        vault.put(tx, org_id, resource_of(project_id), name, value)
    project = get_by_id(tx, org_id, project_id)
    details: dict[str, Any] = {"slug": new.slug or "auto", "secrets": sorted(secrets)}
    audit.record(
        tx, org_id, actor, "project.created", target_of(project), **details, **({"cause": cause} if cause else {})
    )
    return project


def rename(tx: Tx, org_id: int, actor: Actor, name: str, new_name: str) -> Project:
    """Rename a project and its previews.

    The former address redirects to the new one for a day, unless the organization uses that name again.
    """
    project = lock(tx, org_id, name)
    if new_name == name:
        return project
    previews = tx.all(tables.PREVIEWS, org_id=org_id, project_id=project.id)
    for each in previews:
        if each.status != PreviewStatus.CLOSED and len(preview_name(new_name, each.number)) > MAX_NAME_CHARS:
            raise Conflict(f"The name is too long for the address of the preview of pull request {each.number}")
    for candidate in (new_name, *(preview_name(new_name, each.number) for each in previews)):
        if not is_available(tx, org_id, candidate):
            raise _taken(candidate)
    freed_names.reserve(tx, org_id, NameKind.PROJECT, name)
    tx.run(tables.RENAME, org_id=org_id, id=project.id, new_name=new_name, now=tx.now)
    tx.run(tables.END_NAME, org_id=org_id, project_id=project.id, now=tx.now)
    tx.one(tables.ADD_NAME, org_id=org_id, project_id=project.id, name=new_name, since=tx.now, until=None)
    for each in previews:
        renamed_to = preview_name(new_name, each.number)
        tx.run(tables.RENAME_PREVIEW, org_id=org_id, id=each.id, new_name=renamed_to, now=tx.now)
    renamed = get_by_id(tx, org_id, project.id)
    audit.record(tx, org_id, actor, "project.renamed", target_of(renamed), before=name)
    return renamed


def update(tx: Tx, org_id: int, actor: Actor, project: Project, changes: dict[str, Any]) -> Project:
    """Store the changed columns of a locked project; no-op without changes."""
    changed = {name: value for name, value in changes.items() if getattr(project, name) != value}
    if not changed:
        return project
    if changed.keys() & set(compute.COLUMNS):
        changed["paid_compute"] = None  # A choice of the user replaces the compute from before a downgrade.
    set_columns(tx, org_id, project, changed)
    audit.record(
        tx, org_id, actor, "project.updated", target_of(project), changed=sorted(changed.keys() - {"paid_compute"})
    )
    return get_by_id(tx, org_id, project.id)


def set_columns(tx: Tx, org_id: int, project: Project, changes: Mapping[str, Any]) -> None:
    wanted = {f"new_{column}": changes.get(column, getattr(project, column)) for column in tables.SETTINGS}
    tx.run(tables.UPDATE, org_id=org_id, id=project.id, now=tx.now, **wanted)


def toggle(tx: Tx, org_id: int, actor: Actor, name: str, *, enable: bool) -> Project:
    project = lock(tx, org_id, name)
    if project.enabled == enable:
        return project
    set_columns(tx, org_id, project, {"enabled": enable})
    audit.record(tx, org_id, actor, "project.enabled" if enable else "project.disabled", target_of(project))
    return get_by_id(tx, org_id, project.id)


def set_secrets(tx: Tx, org_id: int, actor: Actor, project: Project, wanted: Sequence[tuple[str, str | None]]) -> bool:
    """Replace all secrets; None keeps a stored value. Return whether any changed."""
    put, removed = vault.replace_all(tx, org_id, resource_of(project.id), wanted)
    if removed or put:
        audit.record(tx, org_id, actor, "project.secrets_changed", target_of(project), set=put, removed=removed)
    return bool(removed or put)


def reveal(tx: Tx, org_id: int, actor: Actor, name: str, secret: str, *, is_admin: bool) -> str:
    """Return a secret and audit the read; a linked secret needs the role admin."""
    project = get(tx, org_id, name)
    resource = resource_of(project.id)
    # Reading a database's password needs admin, and a linked secret contains it.
    if not is_admin and vault.find_origin(tx, org_id, resource, secret) is not None:
        raise Forbidden(f"The secret {secret} was made by a database link; revealing it needs the role admin")
    value = vault.find(tx, org_id, resource, secret)
    if value is None:
        raise NotFound("There is no secret of that name")
    audit.record(tx, org_id, actor, "project.secret_revealed", target_of(project), secret=secret)
    return value


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> tuple[Project, list[str]]:
    """Delete a project; return it and the digests of its releases."""
    project = lock(tx, org_id, name)
    audit.record(tx, org_id, actor, "project.deleted", target_of(project))
    return project, remove(tx, org_id, project)


def remove(tx: Tx, org_id: int, project: Project) -> list[str]:
    tx.env.hooks.call(REMOVE, tx, org_id, project.id)
    key: dict[str, Any] = {"org_id": org_id, "project_id": project.id}
    digests = sorted(tx.all(deployment_tables.DIGESTS_OF, **key))
    for deployment in tx.all(deployment_tables.ALL_OF, **key):
        artifacts.unrefer(tx, org_id, owner_of(deployment.id))
    vault.remove_all(tx, org_id, resource_of(project.id))
    layer_cache.drop(tx, org_id, cache_of(project))
    tx.run(deployment_tables.DELETE_LINES_OF, **key)
    tx.run(deployment_tables.DELETE_OF, **key)
    tx.run(tables.DELETE_PREVIEWS, **key)
    tx.run(tables.DELETE_NAMES, **key)
    tx.run(tables.DELETE, org_id=org_id, id=project.id)
    freed_names.reserve(tx, org_id, NameKind.PROJECT, project.name)
    return digests


def delete_all(tx: Tx, org_id: int) -> list[str]:
    """Delete all projects of a deleted organization; return their releases' digests."""
    return [digest for each in tx.all(tables.ALL_OF, org_id=org_id) for digest in remove(tx, org_id, each)]


def names_of(tx: Tx, org_id: int, project: Project) -> list[FormerName]:
    """Return the current and former names of a project, newest first."""
    return tx.all(tables.NAMES, org_id=org_id, project_id=project.id)


def owner_of(deployment_id: int) -> str:
    """Return the owner name under which a deployment refers to its artifact."""
    return f"deployment:{deployment_id}"


def no_project() -> NotFound:
    return NotFound("There is no such project")


def _taken(name: str) -> Conflict:
    return Conflict(f"The name {name!r} is taken or reserved")
