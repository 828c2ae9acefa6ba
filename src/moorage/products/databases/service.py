"""Service of databases: checks requests, writes rows and adds jobs."""

from __future__ import annotations

import random
import secrets
import socket
import string
from dataclasses import replace
from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans import tiers
from moorage.accounts.plans.service import Standing
from moorage.accounts.plans.tiers import Tier
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, UniqueClash, move
from moorage.core.jobs import Lane
from moorage.core.kit.records import dataclass
from moorage.core.machines import placement
from moorage.core.vault import service as vault
from moorage.errors import Conflict, IllegalMove, NotFound, QuotaExceeded, bad_field
from moorage.products.databases import linking, tables
from moorage.products.databases.servers import ADMIN_PASSWORD, PASSWORD, REPLICA_PASSWORD
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.ports import NotInstalled
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog
from moorage.runtime.engines.ports import Agents

PORTS = range(13_000, 20_000)  # below the ports of apps and the kernel's ephemeral ports
GB = 2**30
MB_OF_GB = 1024
PASSWORD_CHARS = string.ascii_letters + string.digits
PASSWORD_LENGTH = 32
# Databases that the servers use themselves.
RESERVED_DATABASES = frozenset(
    ("postgres", "template0", "template1", "mysql", "information_schema", "performance_schema", "sys")
)
BACKUP_CRON = "0 3 * * *"
BACKUP_DAYS = 7
BACKUPS_TO_KEEP = 7
NOT_OFFERED = (
    "This platform runs apps in a cluster, and its operator has named no image for databases there "
    "(MOORAGE_KUBERNETES_DATABASE_IMAGE): set the URL of a database elsewhere as a secret of the project"
)
NO_PUBLIC = "should be private: this platform runs databases in a cluster, where only its own apps and jobs reach them"
NO_REPLICAS = "should be standalone: this platform runs databases in a cluster, which restarts a server by itself"
NEXT_PASSWORD = "next_password"  # noqa: S105 - a name in the vault


class CreateDatabase(msgspec.Struct, frozen=True, tag="databases.create"):
    """Create and start the server of a new database."""

    org_id: int
    database_id: int


class ChangeTier(msgspec.Struct, frozen=True, tag="databases.change_tier"):
    """Restart a database with another tier, or return to the previous one."""

    org_id: int
    database_id: int
    before: str
    after: str


class RotatePassword(msgspec.Struct, frozen=True, tag="databases.rotate_password"):
    """Set the password that is stored as NEXT_PASSWORD."""

    org_id: int
    database_id: int


class DeleteDatabase(msgspec.Struct, frozen=True, tag="databases.delete"):
    """Stop a database and move its data to the trash."""

    org_id: int
    database_id: int


@dataclass(frozen=True, slots=True)
class NewDatabase:
    name: str
    type: str
    version: str
    instance_type: str
    visibility: str | None = None  # None for the default of the platform
    username: str | None = None
    db_name: str | None = None
    password: str | None = None
    region: str = "us"
    backup: bool = False
    architecture: str = "standalone"
    project_id: int | None = None


def find(tx: Tx, org_id: int, name: str) -> Database | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Database:
    database = find(tx, org_id, name)
    if database is None:
        raise no_database()
    return database


def lock(tx: Tx, org_id: int, name: str) -> Database:
    """Return a database and lock its row for an update."""
    database = tx.find(tables.LOCK, org_id=org_id, name=name)
    if database is None:
        raise no_database()
    return database


def find_by_id(tx: Tx, org_id: int, database_id: int) -> Database | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=database_id)


def get_by_id(tx: Tx, org_id: int, database_id: int) -> Database:
    database = find_by_id(tx, org_id, database_id)
    if database is None:
        raise no_database()
    return database


def page(tx: Tx, org_id: int, *, skip: int, most: int) -> list[Database]:
    """Return a page of databases, newest first."""
    return tx.all(tables.PAGE, org_id=org_id, skip=skip, most=most)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def target_of(database: Database) -> AuditTarget:
    return AuditTarget("database", database.name)


def set_column(tx: Tx, org_id: int, database: Database, name: str, value: Any) -> None:
    tx.run(tables.SET[name], org_id=org_id, id=database.id, new=value, now=tx.now)


def check_paid(tx: Tx, org_id: int, standing: Standing, database: Database, feature: str) -> None:
    """Raise QuotaExceeded unless the tier and the organization's plan are paid."""
    if not database.tier.paid or not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded(f"{feature} of a database needs a paid tier and a paid plan")


def check_tier(tx: Tx, org_id: int, standing: Standing, key: str) -> Tier:
    """Return a tier; raises QuotaExceeded if the organization may not use it."""
    tier = tiers.find_tier(key)
    if tier is None:
        raise bad_field("instanceType", f"is not a tier; there is {', '.join(each.key for each in tiers.CATALOG)}")
    if tier.paid and not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded(f"The tier {tier.key} needs a paid plan")
    return tier


def create(
    tx: Tx,
    org_id: int,
    actor: Actor,
    standing: Standing,
    catalog: SoftwareCatalog,
    new: NewDatabase,
    agents: Agents | None = None,
) -> Database:
    """Add a database and the job that creates its server; `agents` has the names of servers in a cluster."""
    if not tx.env.settings.offers_databases:
        raise Conflict(NOT_OFFERED)
    if agents is not None:
        _check_for_agents(new)
    tier = check_tier(tx, org_id, standing, new.instance_type)
    try:
        choice = catalog.choose(new.type, new.version, tx.env.settings.substitution)
    except NotInstalled as error:
        raise bad_field("version", str(error)) from None
    if new.backup and not (tier.paid and plans.counts_as_paid(tx.env.settings, standing)):
        raise QuotaExceeded("Backups need a paid tier and a paid plan")
    plans.check_room(tx, org_id, standing, "databases")
    project = linking.find_project(tx, org_id, new.project_id)
    if find(tx, org_id, new.name) is not None:
        raise _name_taken(new.name)
    new = replace(new, visibility=new.visibility or ("public" if agents is None else "private"))
    database = _add(tx, org_id, new, choice.release.name)
    if agents is not None:
        set_column(tx, org_id, database, "host", agents.host_name(org_id, database.workload))
        database = get_by_id(tx, org_id, database.id)
    for name, value in ((PASSWORD, new.password), (ADMIN_PASSWORD, None), (REPLICA_PASSWORD, None)):
        vault.put(tx, org_id, database.resource, name, value or new_password())
    if project is not None:
        database = linking.link(tx, org_id, database, project)
    audit.record(
        tx, org_id, actor, "database.created", target_of(database), type=new.type, version=new.version, tier=tier.key
    )
    add_job(tx, org_id, database, CreateDatabase(org_id, database.id))
    return database


def _check_for_agents(new: NewDatabase) -> None:
    """Refuse what servers behind agents do not have."""
    if new.visibility == "public":
        raise bad_field("visibility", NO_PUBLIC)
    if new.architecture != "standalone":
        raise bad_field("architecture", NO_REPLICAS)


def _default_db_name(name: str) -> str:
    db_name = name.replace("-", "_")
    return f"{db_name}_db" if db_name in RESERVED_DATABASES else db_name


def _add(tx: Tx, org_id: int, new: NewDatabase, software: str) -> Database:
    tier = tiers.find_tier(new.instance_type)
    values: dict[str, Any] = dict.fromkeys(
        ("secret_name", "engine_version", "engine_exact", "engine_note", "status_reason", "running_since",
         "verified_at", "deleted_at", "project_id", "host")
    )  # fmt: skip
    values |= {
        "org_id": org_id,
        "name": new.name,
        "type": new.type.upper(),
        "version": new.version,
        "software": software,
        "status": DatabaseStatus.PENDING,
        "visibility": new.visibility,
        "instance_type": new.instance_type,
        "region": new.region,
        "architecture": new.architecture,
        "username": new.username or f"u_{secrets.token_hex(5)}",
        "db_name": new.db_name or _default_db_name(new.name),
        "port": free_port(tx),
        "backup": new.backup,
        "backup_method": "logical",
        "backup_cron": BACKUP_CRON,
        "backup_days": BACKUP_DAYS,
        "backups_to_keep": BACKUPS_TO_KEEP if new.backup else None,
        "is_full": False,
        "disk_bytes": 0,
        "created_at": tx.now,
        "updated_at": tx.now,
        "machine_id": placement.choose(tx, int(tier.memory * MB_OF_GB) if tier is not None else 0),
    }
    try:
        with tx.savepoint():
            return get_by_id(tx, org_id, tx.one(tables.ADD, **values))
    except UniqueClash:
        raise _name_taken(new.name) from None


@across_organizations("a port of this machine is one database's")
def free_port(tx: Tx) -> int:
    """Return a port that no database has and no process listens on."""
    used = set(tx.all(tables.PORTS))
    start = random.randrange(len(PORTS))  # noqa: S311 - a predictable port is harmless
    for number in range(len(PORTS)):
        port = PORTS[(start + number) % len(PORTS)]
        if port not in used and _is_free(port):
            return port
    raise Conflict("All ports for databases are in use on this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def new_password() -> str:
    return "".join(secrets.choice(PASSWORD_CHARS) for _ in range(PASSWORD_LENGTH))


def change_tier(
    tx: Tx,
    org_id: int,
    actor: Actor,
    standing: Standing,
    name: str,
    after: str,
    *,
    expected: str | None,
    may_be_free: bool,
) -> Database:
    """Request another tier."""
    database = lock(tx, org_id, name)
    tier = check_tier(tx, org_id, standing, after)
    if expected is not None and expected != database.instance_type:
        raise Conflict(f"The tier is {database.instance_type} by now, not {expected}")
    if after == database.instance_type:
        raise Conflict(f"The tier is {after} already")
    if not tier.paid and database.tier.paid and not may_be_free:
        raise bad_field("confirmDowngradeToFree", "should be true: the free tier has no backups and no engine metrics")
    if database.disk_bytes > tier.disk * GB:
        raise Conflict(f"It holds {database.disk_bytes / GB:.1f} GB, and the tier {after} has {tier.disk} GB")
    begin_update(tx, org_id, database)
    audit.record(
        tx, org_id, actor, "database.tier_changed", target_of(database), before=database.instance_type, after=after
    )
    add_job(tx, org_id, database, ChangeTier(org_id, database.id, database.instance_type, after))
    return get_by_id(tx, org_id, database.id)


def begin_update(tx: Tx, org_id: int, database: Database) -> None:
    """Move a database to `updating`; raises Conflict unless it is running."""
    if database.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {database.status}; this needs one that is running")
    try:
        move(tx, DATABASE, database, to=DatabaseStatus.UPDATING, status_reason=None)
    except IllegalMove:
        raise Conflict("The database is changing already") from None


def rotate_password(tx: Tx, org_id: int, actor: Actor, name: str) -> Database:
    """Request a new password; the current one is valid until the job has set it."""
    database = lock(tx, org_id, name)
    begin_update(tx, org_id, database)
    vault.put(tx, org_id, database.resource, NEXT_PASSWORD, new_password())
    audit.record(tx, org_id, actor, "database.password_rotated", target_of(database))
    add_job(tx, org_id, database, RotatePassword(org_id, database.id))
    return get_by_id(tx, org_id, database.id)


def reveal(tx: Tx, org_id: int, actor: Actor, name: str) -> tuple[Database, str]:
    """Return a database with its password, and record the actor in the audit log."""
    database = get(tx, org_id, name)
    password = vault.find(tx, org_id, database.resource, PASSWORD)
    assert password is not None  # Stored together with the row.
    audit.record(tx, org_id, actor, "database.password_revealed", target_of(database))
    return database, password


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> None:
    """Request the deletion of a database. Safe to repeat."""
    database = lock(tx, org_id, name)
    if database.status == DatabaseStatus.DELETING:
        return
    audit.record(tx, org_id, actor, "database.deleted", target_of(database))
    begin_delete(tx, org_id, database)


def begin_delete(tx: Tx, org_id: int, database: Database) -> None:
    move(tx, DATABASE, database, to=DatabaseStatus.DELETING)
    add_job(tx, org_id, database, DeleteDatabase(org_id, database.id))


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete all databases of a deleted organization."""
    for database in tx.all(tables.ALL_OF, org_id=org_id):
        if database.status != DatabaseStatus.DELETING:
            begin_delete(tx, org_id, database)


def add_job(
    tx: Tx,
    org_id: int,
    database: Database,
    job: msgspec.Struct,
    *,
    lane: Lane = Lane.SERVERS,
    key: str | None = None,
    delay_ms: int = 0,
) -> None:
    """Add a job of a database, which runs on the machine with its data."""
    jobs.add(tx, job, key=key or key_of(database.id), lane=lane, machine_id=database.machine_id, delay_ms=delay_ms)


def key_of(database_id: int) -> str:
    """Return the job key that serialises the jobs of a database."""
    return f"database:{database_id}"


def no_database() -> NotFound:
    return NotFound("There is no such database")


def _name_taken(name: str) -> Conflict:
    return Conflict(f"The organization has a database named {name!r} already")
