"""A database that is linked to a project: the project's app gets its address as a secret, and may connect to it."""

from __future__ import annotations

from moorage.core.audit.service import Actor
from moorage.core.db.tx import Tx
from moorage.core.http.envvars import read_env
from moorage.core.vault import service as vault
from moorage.products.databases import tables, urls
from moorage.products.databases.servers import PASSWORD
from moorage.products.databases.tables import Database
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.tables import Project

SECRET = "DATABASE_URL"  # noqa: S105 - the name of one
PLATFORM = Actor(None, "Moorage", None)


def find_project(tx: Tx, org_id: int, project_id: int | None) -> Project | None:
    """Return the project that a database is to be linked to; raises NotFound where it is not the organization's."""
    return None if project_id is None else projects.get_by_id(tx, org_id, project_id)


def link(tx: Tx, org_id: int, found: Database, project: Project) -> Database:
    """Give a project the address of a database. What has the usual name already keeps it."""
    taken = {each.name for each in read_env(project.env)}
    taken.update(vault.names(tx, org_id, projects.resource_of(project.id)))
    own = f"{SECRET}_{found.name.upper().replace('-', '_')}"
    name = next(each for each in (SECRET, own, *(f"{own}_{number}" for number in range(2, 1000))) if each not in taken)
    tx.run(tables.SET["project_id"], org_id=org_id, id=found.id, new=project.id, now=tx.now)
    tx.run(tables.SET["secret_name"], org_id=org_id, id=found.id, new=name, now=tx.now)
    linked = tx.find(tables.FIND_BY_ID, org_id=org_id, id=found.id)
    assert linked is not None
    tell(tx, org_id, linked)
    return linked


def tell(tx: Tx, org_id: int, found: Database) -> None:
    """Write the URL with the current password into the project's secret, unless a user replaced that secret."""
    password = vault.find(tx, org_id, found.resource, PASSWORD)
    if found.project_id is None or found.secret_name is None or password is None:
        return
    resource = projects.resource_of(found.project_id)
    if found.secret_name in vault.names(tx, org_id, resource) and not _is_linked(tx, org_id, found):
        return
    value = urls.make(found, urls.HERE, password)
    vault.put(tx, org_id, resource, found.secret_name, value, origin=found.resource)


def _is_linked(tx: Tx, org_id: int, found: Database) -> bool:
    """Tell whether the project's secret is still the one that this link made."""
    assert found.project_id is not None
    assert found.secret_name is not None
    resource = projects.resource_of(found.project_id)
    return vault.find_origin(tx, org_id, resource, found.secret_name) == found.resource


def restart(tx: Tx, org_id: int, found: Database) -> None:
    """Start the app of a linked project again, so that it gets the address; one that does not run gets it later."""
    project = projects.find_by_id(tx, org_id, found.project_id or 0)
    if project is None or not project.enabled:
        return
    live = deployments.find(tx, org_id, project.current_deployment_id or 0)
    if live is not None and live.is_app:
        deployments.start_again(tx, org_id, PLATFORM, project)


def unlink(tx: Tx, org_id: int, found: Database) -> None:
    """Remove the project's secret, if it is still the one that the link made."""
    if found.project_id is None or found.secret_name is None or not _is_linked(tx, org_id, found):
        return
    resource = projects.resource_of(found.project_id)
    # The migration that added origins also marked values that a user had set in place of the linked one.
    stored = vault.find(tx, org_id, resource, found.secret_name)
    if stored is not None and f"@{urls.HERE}:{found.port}/" in stored:
        vault.remove(tx, org_id, resource, found.secret_name)


def leave_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Part with a project that is deleted; the database stays."""
    for found in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id):
        tx.run(tables.SET["project_id"], org_id=org_id, id=found.id, new=None, now=tx.now)


def doors(tx: Tx, org_id: int, project_id: int) -> list[str]:
    """Return where the app of a project may connect to on this machine."""
    return [f"{urls.HERE}:{found.port}" for found in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id)]
