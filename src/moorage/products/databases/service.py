"""Databases: asked for, found, changed and deleted. What happens to their servers is the work of jobs."""

from __future__ import annotations

import random
import secrets
import socket
import string
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans import tiers
from moorage.accounts.plans.service import Standing
from moorage.accounts.plans.tiers import Tier
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, Target
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, UniqueClash, move
from moorage.core.jobs import Lane
from moorage.core.vault import service as vault
from moorage.errors import Conflict, IllegalMove, NotFound, QuotaExceeded, bad_field
from moorage.products.databases import linking, tables
from moorage.products.databases.servers import ADMIN_PASSWORD, PASSWORD, REPLICA_PASSWORD
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.ports import NotInstalled
from moorage.runtime.database_servers.software.catalog import Shelf

PORTS = range(13_000, 20_000)  # below those of apps, and of what the kernel gives to clients
GB = 2**30
PASSWORD_CHARS = string.ascii_letters + string.digits
PASSWORD_LENGTH = 32
BACKUP_CRON = "0 3 * * *"
BACKUP_DAYS = 7
BACKUPS_TO_KEEP = 7
NEXT_PASSWORD = "next_password"  # noqa: S105 - a name in the vault


class CreateDatabase(msgspec.Struct, frozen=True, tag="databases.create"):
    """Bring a new database up."""

    org_id: int
    database_id: int


class ChangeTier(msgspec.Struct, frozen=True, tag="databases.change_tier"):
    """Give a database another tier, or leave it as it was."""

    org_id: int
    database_id: int
    before: str
    after: str


class RotatePassword(msgspec.Struct, frozen=True, tag="databases.rotate_password"):
    """Make the password that was chosen the one that counts."""

    org_id: int
    database_id: int


class DeleteDatabase(msgspec.Struct, frozen=True, tag="databases.delete"):
    """Stop a database and move its data to the trash."""

    org_id: int
    database_id: int


@dataclass(frozen=True, slots=True)
class NewDatabase:
    """A database as it is asked for."""

    name: str
    type: str
    version: str
    instance_type: str
    visibility: str = "public"
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
    found = find(tx, org_id, name)
    if found is None:
        raise no_database()
    return found


def lock(tx: Tx, org_id: int, name: str) -> Database:
    """Return a database for who is about to change it."""
    found = tx.find(tables.LOCK, org_id=org_id, name=name)
    if found is None:
        raise no_database()
    return found


def find_by_id(tx: Tx, org_id: int, database_id: int) -> Database | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=database_id)


def get_by_id(tx: Tx, org_id: int, database_id: int) -> Database:
    found = find_by_id(tx, org_id, database_id)
    if found is None:
        raise no_database()
    return found


def page(tx: Tx, org_id: int, *, skip: int, most: int) -> list[Database]:
    """Return some databases, newest first."""
    return tx.all(tables.PAGE, org_id=org_id, skip=skip, most=most)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def target_of(found: Database) -> Target:
    return Target("database", found.name)


def set_column(tx: Tx, org_id: int, found: Database, name: str, value: Any) -> None:
    tx.run(tables.SET[name], org_id=org_id, id=found.id, new=value, now=tx.now)


def check_paid(tx: Tx, org_id: int, standing: Standing, found: Database, what: str) -> None:
    """Raise QuotaExceeded where a database is of the free tier, or its organization's plan is."""
    if not found.tier.paid or not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded(f"{what} of a database needs a paid tier and a paid plan")


def check_tier(tx: Tx, org_id: int, standing: Standing, key: str) -> Tier:
    """Return a tier that the organization may use."""
    tier = tiers.find_tier(key)
    if tier is None:
        raise bad_field("instanceType", f"is not a tier; there is {', '.join(each.key for each in tiers.CATALOG)}")
    if tier.paid and not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded(f"The tier {tier.key} needs a paid plan")
    return tier


def create(tx: Tx, org_id: int, actor: Actor, standing: Standing, shelf: Shelf, new: NewDatabase) -> Database:
    """Ask for a database. Its server is made by a job."""
    tier = check_tier(tx, org_id, standing, new.instance_type)
    try:
        choice = shelf.choose(new.type, new.version, tx.env.settings.substitution)
    except NotInstalled as error:
        raise bad_field("version", str(error)) from None
    if new.backup and not (tier.paid and plans.counts_as_paid(tx.env.settings, standing)):
        raise QuotaExceeded("Backups need a paid tier and a paid plan")
    plans.check_room(tx, org_id, standing, "databases")
    project = linking.find_project(tx, org_id, new.project_id)
    if find(tx, org_id, new.name) is not None:
        raise _taken(new.name)
    made = _add(tx, org_id, new, choice.release.name)
    for name, value in ((PASSWORD, new.password), (ADMIN_PASSWORD, None), (REPLICA_PASSWORD, None)):
        vault.put(tx, org_id, made.resource, name, value or new_password())
    if project is not None:
        made = linking.link(tx, org_id, made, project)
    audit.record(
        tx, org_id, actor, "database.created", target_of(made), type=new.type, version=new.version, tier=tier.key
    )
    jobs.add(tx, CreateDatabase(org_id, made.id), key=key_of(made.id), lane=Lane.SERVERS)
    return made


def _add(tx: Tx, org_id: int, new: NewDatabase, software: str) -> Database:
    values: dict[str, Any] = dict.fromkeys(
        ("secret_name", "engine_version", "engine_exact", "engine_note", "status_reason", "running_since",
         "verified_at", "deleted_at", "project_id")
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
        "db_name": new.db_name or new.name.replace("-", "_"),
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
    }
    try:
        with tx.savepoint():
            return get_by_id(tx, org_id, tx.one(tables.ADD, **values))
    except UniqueClash:
        raise _taken(new.name) from None


@across_organizations("a port of this machine is one database's")
def free_port(tx: Tx) -> int:
    """Return a port that no database has, and nobody else right now."""
    taken = set(tx.all(tables.PORTS))
    start = random.randrange(len(PORTS))  # noqa: S311 - nothing depends on whether it can be guessed
    for number in range(len(PORTS)):
        port = PORTS[(start + number) % len(PORTS)]
        if port not in taken and _is_free(port):
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
    """Ask for another tier."""
    found = lock(tx, org_id, name)
    tier = check_tier(tx, org_id, standing, after)
    if expected is not None and expected != found.instance_type:
        raise Conflict(f"The tier is {found.instance_type} by now, not {expected}")
    if after == found.instance_type:
        raise Conflict(f"The tier is {after} already")
    if not tier.paid and found.tier.paid and not may_be_free:
        raise bad_field("confirmDowngradeToFree", "should be true: the free tier has no backups and no engine metrics")
    if found.disk_bytes > tier.disk * GB:
        raise Conflict(f"It holds {found.disk_bytes / GB:.1f} GB, and the tier {after} has {tier.disk} GB")
    begin_update(tx, org_id, found)
    audit.record(tx, org_id, actor, "database.tier_changed", target_of(found), before=found.instance_type, after=after)
    jobs.add(tx, ChangeTier(org_id, found.id, found.instance_type, after), key=key_of(found.id), lane=Lane.SERVERS)
    return get_by_id(tx, org_id, found.id)


def begin_update(tx: Tx, org_id: int, found: Database) -> None:
    """Say that something about a database changes; raises Conflict unless it runs."""
    if found.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {found.status}; this needs one that is running")
    try:
        move(tx, DATABASE, found, to=DatabaseStatus.UPDATING, status_reason=None)
    except IllegalMove:
        raise Conflict("The database is changing already") from None


def rotate_password(tx: Tx, org_id: int, actor: Actor, name: str) -> Database:
    """Ask for a new password; the one before counts until the server knows the new one."""
    found = lock(tx, org_id, name)
    begin_update(tx, org_id, found)
    vault.put(tx, org_id, found.resource, NEXT_PASSWORD, new_password())
    audit.record(tx, org_id, actor, "database.password_rotated", target_of(found))
    jobs.add(tx, RotatePassword(org_id, found.id), key=key_of(found.id), lane=Lane.SERVERS)
    return get_by_id(tx, org_id, found.id)


def reveal(tx: Tx, org_id: int, actor: Actor, name: str) -> tuple[Database, str]:
    """Return a database with its password, and write down who asked."""
    found = get(tx, org_id, name)
    password = vault.find(tx, org_id, found.resource, PASSWORD)
    assert password is not None  # It is made with the database.
    audit.record(tx, org_id, actor, "database.password_revealed", target_of(found))
    return found, password


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> None:
    """Ask for a database to be deleted. Safe to repeat."""
    found = lock(tx, org_id, name)
    if found.status == DatabaseStatus.DELETING:
        return
    audit.record(tx, org_id, actor, "database.deleted", target_of(found))
    begin_delete(tx, org_id, found)


def begin_delete(tx: Tx, org_id: int, found: Database) -> None:
    move(tx, DATABASE, found, to=DatabaseStatus.DELETING)
    jobs.add(tx, DeleteDatabase(org_id, found.id), key=key_of(found.id), lane=Lane.SERVERS)


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete every database of an organization that is gone itself."""
    for found in tx.all(tables.ALL_OF, org_id=org_id):
        if found.status != DatabaseStatus.DELETING:
            begin_delete(tx, org_id, found)


def key_of(database_id: int) -> str:
    """Return the key under which the jobs of a database run one at a time."""
    return f"database:{database_id}"


def no_database() -> NotFound:
    return NotFound("There is no such database")


def _taken(name: str) -> Conflict:
    return Conflict(f"The organization has a database named {name!r} already")
