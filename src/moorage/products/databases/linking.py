"""Links a database to a project: its app gets the URL and an egress rule."""

from __future__ import annotations

from moorage.core.audit.service import Actor
from moorage.core.db.tx import Tx
from moorage.core.kit.envvars import read_env
from moorage.core.vault import service as vault
from moorage.products.apps.linked.databases import LinkedDatabase
from moorage.products.databases import tables, urls
from moorage.products.databases.servers import PASSWORD
from moorage.products.databases.tables import Database
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.tables import Project
from moorage.runtime.engines.ports import Egress

SECRET = "DATABASE_URL"  # noqa: S105 - the name of one
PLATFORM = Actor(None, "Moorage", None)


def find_project(tx: Tx, org_id: int, project_id: int | None) -> Project | None:
    """Return the project to link; raises NotFound if the organization does not own it."""
    return None if project_id is None else projects.get_by_id(tx, org_id, project_id)


def link(tx: Tx, org_id: int, database: Database, project: Project) -> Database:
    """Link a database to a project; picks a free secret name."""
    taken = {each.name for each in read_env(project.env)}
    taken.update(vault.names(tx, org_id, projects.resource_of(project.id)))
    own = f"{SECRET}_{database.name.upper().replace('-', '_')}"
    name = next(each for each in (SECRET, own, *(f"{own}_{number}" for number in range(2, 1000))) if each not in taken)
    tx.run(tables.SET["project_id"], org_id=org_id, id=database.id, new=project.id, now=tx.now)
    tx.run(tables.SET["secret_name"], org_id=org_id, id=database.id, new=name, now=tx.now)
    linked = tx.find(tables.FIND_BY_ID, org_id=org_id, id=database.id)
    assert linked is not None
    update_secret(tx, org_id, linked)
    return linked


def update_secret(tx: Tx, org_id: int, database: Database) -> None:
    """Write the current URL into the project's secret, unless a user replaced it."""
    password = vault.find(tx, org_id, database.resource, PASSWORD)
    if database.project_id is None or database.secret_name is None or password is None:
        return
    resource = projects.resource_of(database.project_id)
    if database.secret_name in vault.names(tx, org_id, resource) and not _is_linked(tx, org_id, database):
        return
    value = urls.make(database, database.address.host, password)
    vault.put(tx, org_id, resource, database.secret_name, value, origin=database.resource)


def _is_linked(tx: Tx, org_id: int, database: Database) -> bool:
    """Tell whether the link still owns the project's secret."""
    assert database.project_id is not None
    assert database.secret_name is not None
    resource = projects.resource_of(database.project_id)
    return vault.find_origin(tx, org_id, resource, database.secret_name) == database.resource


def restart(tx: Tx, org_id: int, database: Database) -> None:
    """Restart the running app of a linked project, so that it gets the new URL."""
    project = projects.find_by_id(tx, org_id, database.project_id or 0)
    if project is None or not project.enabled:
        return
    live = deployments.find(tx, org_id, project.current_deployment_id or 0)
    if live is not None and live.is_app:
        deployments.start_again(tx, org_id, PLATFORM, project)


def unlink(tx: Tx, org_id: int, database: Database) -> None:
    """Remove the project's secret, if the link still owns it."""
    if database.project_id is None or database.secret_name is None or not _is_linked(tx, org_id, database):
        return
    resource = projects.resource_of(database.project_id)
    # The migration that added origins also marked secrets that a user had replaced.
    stored = vault.find(tx, org_id, resource, database.secret_name)
    if stored is not None and f"@{database.address}/" in stored:
        vault.remove(tx, org_id, resource, database.secret_name)


def leave_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Unlink the databases of a deleted project."""
    for database in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id):
        tx.run(tables.SET["project_id"], org_id=org_id, id=database.id, new=None, now=tx.now)


def linked(tx: Tx, org_id: int, database: Database, *, is_created: bool) -> LinkedDatabase | None:
    """Return the parts of the address of a database; None where its link does not own the project's secret."""
    password = vault.find(tx, org_id, database.resource, PASSWORD)
    if password is None or database.secret_name is None or not _is_linked(tx, org_id, database):
        return None
    parts = {
        "host": database.address.host,
        "port": str(database.port),
        "user": database.username,
        "password": password,
        "name": database.db_name,
        "url": urls.make(database, database.address.host, password),
    }
    return LinkedDatabase(database.engine, database.secret_name, parts, is_created)


def egress_rules(tx: Tx, org_id: int, project_id: int) -> list[Egress]:
    """Return the rules for the linked databases of a project."""
    return [each.egress for each in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id)]
