"""Create the database that the first deployment of an app needs, and record that the project has had one.

The audit log, which is never shortened, is that record: a database that the user deleted is not created again.
"""

from __future__ import annotations

import msgspec

from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import BY_NAME, Role
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.tx import Tx
from moorage.core.kit.envvars import read_env
from moorage.core.vault import service as vault
from moorage.errors import MoorageError
from moorage.products.apps.linked.creating import Created
from moorage.products.apps.linked.databases import LinkedDatabase
from moorage.products.databases import linking, service, tables
from moorage.products.databases.service import NewDatabase
from moorage.products.databases.states import CHANGING, DatabaseStatus
from moorage.products.projects import pushed
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Project
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog
from moorage.runtime.database_servers.software.releases import VERSIONS

SWITCH = "MOORAGE_AUTO_DATABASE"  # variable of a project; also the setting of the instance
OFF = frozenset({"off", "false", "no", "0"})
TIER = "free"
MAX_NAME_CHARS = 63
MAX_NUMBER = 99  # of names that are tried


def create(tx: Tx, org_id: int, deployment: Deployment, engine: str, catalog: SoftwareCatalog) -> Created:
    """Create a database of the free tier for a project and link them, if the rules of decision 72 allow it."""
    project = projects.get_by_id(tx, org_id, deployment.project_id)
    if not _is_wanted(tx, org_id, deployment, project) or not _may_create(tx, org_id, deployment.actor_user_id):
        return Created()
    organization = orgs.get(tx, org_id)
    new = NewDatabase(
        name=_free_name(tx, org_id, project.name),
        type=engine,
        version=VERSIONS[engine][0],
        instance_type=TIER,
        visibility="private",
        project_id=project.id,
    )
    try:
        with tx.savepoint():
            database = service.create(tx, org_id, THE_PLATFORM, organization.standing, catalog, new)
    except MoorageError as error:
        return Created(reason=f"no database was created: {error}")
    audit.record(tx, org_id, THE_PLATFORM, pushed.DATABASE_CREATED, projects.target_of(project), database=database.name)
    return Created(name=database.name)


def is_ready(tx: Tx, org_id: int, name: str) -> bool | None:
    """Return whether a database accepts connections; None once it cannot any more."""
    database = service.find(tx, org_id, name)
    if database is None or (database.status not in CHANGING and database.status != DatabaseStatus.RUNNING):
        return None
    return database.status == DatabaseStatus.RUNNING


def created_of(tx: Tx, org_id: int, project: Project) -> frozenset[str]:
    """Return the names of the databases that deployments of a project created, deleted ones included."""
    names = {project.name, *(each.name for each in tx.all(project_tables.NAMES, org_id=org_id, project_id=project.id))}
    rows = [
        row
        for name in sorted(names)
        for row in audit.all_of(tx, org_id, projects.target_named(name), pushed.DATABASE_CREATED)
        if row.at >= project.created_at  # Older rows are of a former project of that name.
    ]
    return frozenset(msgspec.json.decode(row.details)["database"] for row in rows)


def linked(tx: Tx, org_id: int, project_id: int) -> list[LinkedDatabase]:
    """Return the linked databases of a project, oldest first."""
    databases = tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id)
    if not databases:
        return []
    created = created_of(tx, org_id, projects.get_by_id(tx, org_id, project_id))
    found = (linking.linked(tx, org_id, each, is_created=each.name in created) for each in databases)
    return [each for each in found if each is not None]


def has_chosen(tx: Tx, org_id: int, project_id: int) -> bool:
    """Return whether a project has a linked database that a user created."""
    databases = tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id)
    created = created_of(tx, org_id, projects.get_by_id(tx, org_id, project_id)) if databases else frozenset()
    return any(each.name not in created for each in databases)


def give_way(tx: Tx, org_id: int, project: Project) -> None:
    """Delete the databases that deployments created, of a project that gives way to one that a client creates."""
    created = created_of(tx, org_id, project)
    for database in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project.id):
        if database.name in created and database.status != DatabaseStatus.DELETING:
            audit.record(tx, org_id, THE_PLATFORM, "database.deleted", service.target_of(database))
            service.begin_delete(tx, org_id, database)


def _is_wanted(tx: Tx, org_id: int, deployment: Deployment, project: Project) -> bool:
    """Return whether this is the first release of a project without a database, and neither switch is off."""
    own = {each.name: each.value for each in read_env(project.env)}
    given = {*own, *vault.names(tx, org_id, projects.resource_of(project.id))}
    return (
        tx.env.settings.auto_database
        and tx.env.settings.offers_databases
        and own.get(SWITCH, "").strip().lower() not in OFF
        and deployment.preview_id is None
        and project.current_deployment_id is None
        and linking.SECRET not in given
        and not tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project.id)
        and not created_of(tx, org_id, project)
    )


def _may_create(tx: Tx, org_id: int, user_id: int | None) -> bool:
    """Return whether the user who deployed may create databases; a push by webhook has no user."""
    member = members.find(tx, org_id, user_id) if user_id is not None else None
    return member is not None and BY_NAME[member.role].reaches(Role.MEMBER)


def _free_name(tx: Tx, org_id: int, project: str) -> str:
    stem = f"{project[: MAX_NAME_CHARS - 6].rstrip('-')}-db"
    names = (stem, *(f"{stem}-{number}" for number in range(2, MAX_NUMBER + 1)))
    return next((each for each in names if service.find(tx, org_id, each) is None), stem)
