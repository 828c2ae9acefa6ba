"""Projects: made, found, renamed, changed, switched off and on, deleted; and their secrets.

What happens to a project's releases is in `deployments`; here is what a project is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, Target
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.clock import DAY_MS
from moorage.core.vault import service as vault
from moorage.errors import Conflict, Forbidden, NotFound
from moorage.products.projects import compute, tables
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.names import is_available, preview_name
from moorage.products.projects.tables import FormerName, Project
from moorage.settings import Settings

MOVED_MS = DAY_MS  # An old address leads to the new one for so long.

# Removes the data of other products that belongs to a project: takes the organization's id and the project's.
REMOVE: Hook[[Tx, int, int], None] = Hook("project.remove")


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project as it is asked for."""

    name: str
    slug: str | None
    is_auto: bool = False
    source: str = "git"
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
    """Return the public address of a host of this platform."""
    if settings.is_production or settings.https_port:
        port = settings.https_port or 443
        return f"https://{host}" if port == 443 else f"https://{host}:{port}"
    port = settings.gateway_port
    return f"http://{host}" if port == 80 else f"http://{host}:{port}"


def resource_of(project_id: int) -> str:
    """Return what the vault calls a project."""
    return f"project:{project_id}"


def target_of(project: Project) -> Target:
    return Target("project", project.name)


def find(tx: Tx, org_id: int, name: str) -> Project | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Project:
    found = find(tx, org_id, name)
    if found is None:
        raise no_project()
    return found


def find_by_id(tx: Tx, org_id: int, project_id: int) -> Project | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=project_id)


def get_by_id(tx: Tx, org_id: int, project_id: int) -> Project:
    found = find_by_id(tx, org_id, project_id)
    if found is None:
        raise no_project()
    return found


def lock(tx: Tx, org_id: int, name: str) -> Project:
    """Return a project for who is about to change it."""
    found = tx.find(tables.LOCK, org_id=org_id, name=name)
    if found is None:
        raise no_project()
    return found


def page(tx: Tx, org_id: int, *, before: int, most: int, slug: str | None) -> list[Project]:
    """Return the projects that were made before one, newest first."""
    if slug is None:
        return tx.all(tables.PAGE, org_id=org_id, before=before, most=most)
    return tx.all(tables.PAGE_OF_SLUG, org_id=org_id, before=before, most=most, slug=slug)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def check_may_create(tx: Tx, org_id: int, name: str, standing: Standing) -> None:
    """Raise what keeps a project from being made."""
    if not is_available(tx, org_id, name):
        raise _taken(name)
    plans.check_room(tx, org_id, standing, "projects")


def create(
    tx: Tx, org_id: int, actor: Actor, standing: Standing, new: NewProject, secrets: Mapping[str, str] = {}
) -> Project:
    """Make a project. Its first deployment is asked for by whoever calls this, in the same transaction."""
    check_may_create(tx, org_id, new.name, standing)
    given = {name: getattr(new, name) for name in NewProject.__slots__}
    given |= compute.within_plan(tx, org_id, standing, new.slug, {name: given[name] for name in compute.COLUMNS})
    project_id = tx.find(
        tables.ADD,
        org_id=org_id,
        **given,
        repository_key=new.repository_name.lower() if new.repository_name else None,
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
    made = get_by_id(tx, org_id, project_id)
    audit.record(
        tx, org_id, actor, "project.created", target_of(made), slug=new.slug or "auto", secrets=sorted(secrets)
    )
    return made


def rename(tx: Tx, org_id: int, actor: Actor, name: str, new_name: str) -> Project:
    """Give a project another name. Its old address leads to the new one for a day, unless its organization takes it."""
    found = lock(tx, org_id, name)
    if new_name == name:
        return found
    previews = tx.all(tables.PREVIEWS, org_id=org_id, project_id=found.id)
    for taken in (new_name, *(preview_name(new_name, each.number) for each in previews)):
        if not is_available(tx, org_id, taken):
            raise _taken(taken)
    freed_names.reserve(tx, org_id, NameKind.PROJECT, name)
    tx.run(tables.RENAME, org_id=org_id, id=found.id, new_name=new_name, now=tx.now)
    tx.run(tables.END_NAME, org_id=org_id, project_id=found.id, now=tx.now)
    tx.one(tables.ADD_NAME, org_id=org_id, project_id=found.id, name=new_name, since=tx.now, until=None)
    for each in previews:
        renamed_to = preview_name(new_name, each.number)
        tx.run(tables.RENAME_PREVIEW, org_id=org_id, id=each.id, new_name=renamed_to, now=tx.now)
    renamed = get_by_id(tx, org_id, found.id)
    audit.record(tx, org_id, actor, "project.renamed", target_of(renamed), before=name)
    return renamed


def update(tx: Tx, org_id: int, actor: Actor, found: Project, changes: dict[str, Any]) -> Project:
    """Change columns of a project that was locked; without any, nothing happens."""
    changed = {name: value for name, value in changes.items() if getattr(found, name) != value}
    if not changed:
        return found
    if changed.keys() & set(compute.COLUMNS):
        changed["paid_compute"] = None  # A choice of the user replaces the compute from before a downgrade.
    set_columns(tx, org_id, found, changed)
    audit.record(
        tx, org_id, actor, "project.updated", target_of(found), changed=sorted(changed.keys() - {"paid_compute"})
    )
    return get_by_id(tx, org_id, found.id)


def set_columns(tx: Tx, org_id: int, project: Project, changes: Mapping[str, Any]) -> None:
    wanted = {f"new_{column}": changes.get(column, getattr(project, column)) for column in tables.SETTINGS}
    tx.run(tables.UPDATE, org_id=org_id, id=project.id, now=tx.now, **wanted)


def toggle(tx: Tx, org_id: int, actor: Actor, name: str, *, enable: bool) -> Project:
    found = lock(tx, org_id, name)
    if found.enabled == enable:
        return found
    set_columns(tx, org_id, found, {"enabled": enable})
    audit.record(tx, org_id, actor, "project.enabled" if enable else "project.disabled", target_of(found))
    return get_by_id(tx, org_id, found.id)


def set_secrets(tx: Tx, org_id: int, actor: Actor, project: Project, wanted: Sequence[tuple[str, str | None]]) -> bool:
    """Replace all secrets; one without a value keeps the one that is stored. Return whether anything changed."""
    put, removed = vault.replace_all(tx, org_id, resource_of(project.id), wanted)
    if removed or put:
        audit.record(tx, org_id, actor, "project.secrets_changed", target_of(project), set=put, removed=removed)
    return bool(removed or put)


def reveal(tx: Tx, org_id: int, actor: Actor, name: str, secret: str, *, is_admin: bool) -> str:
    """Return a secret's value and record the caller; raises Forbidden for a linked secret below `admin`."""
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
    """Delete a project with everything it has. Return it, and the releases that it had."""
    found = lock(tx, org_id, name)
    audit.record(tx, org_id, actor, "project.deleted", target_of(found))
    return found, remove(tx, org_id, found)


def remove(tx: Tx, org_id: int, project: Project) -> list[str]:
    tx.env.hooks.call(REMOVE, tx, org_id, project.id)
    its: dict[str, Any] = {"org_id": org_id, "project_id": project.id}
    digests = sorted(tx.all(deployment_tables.DIGESTS_OF, **its))
    for deployment in tx.all(deployment_tables.ALL_OF, **its):
        artifacts.unrefer(tx, org_id, owner_of(deployment.id))
    vault.remove_all(tx, org_id, resource_of(project.id))
    tx.run(deployment_tables.DELETE_LINES_OF, **its)
    tx.run(deployment_tables.DELETE_OF, **its)
    tx.run(tables.DELETE_PREVIEWS, **its)
    tx.run(tables.DELETE_NAMES, **its)
    tx.run(tables.DELETE, org_id=org_id, id=project.id)
    freed_names.reserve(tx, org_id, NameKind.PROJECT, project.name)
    return digests


def delete_all(tx: Tx, org_id: int) -> list[str]:
    """Delete every project of an organization that is gone itself."""
    return [digest for each in tx.all(tables.ALL_OF, org_id=org_id) for digest in remove(tx, org_id, each)]


def names_of(tx: Tx, org_id: int, project: Project) -> list[FormerName]:
    """Return every name a project had, with when, newest first."""
    return tx.all(tables.NAMES, org_id=org_id, project_id=project.id)


def owner_of(deployment_id: int) -> str:
    """Return what holds the reference to a deployment's artifact."""
    return f"deployment:{deployment_id}"


def no_project() -> NotFound:
    return NotFound("There is no such project")


def _taken(name: str) -> Conflict:
    return Conflict(f"The name {name!r} is taken or reserved")
