"""Backups: policy, requests, retention and restores.

A row is `running` from the request on, and becomes `completed` once the stored file has been read back and checked. Any
error makes it `failed`, with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane, timetable
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.cron import Cron
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, NotFound, QuotaExceeded, bad_field
from moorage.products.databases import service
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.tables import WalFile
from moorage.products.databases.states import BACKUP, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database
from moorage.runtime.database_servers.postgres.physical_backups import is_needed

KIND = "database.backup"  # kind in the timetable, with the database id as reference
LOGICAL, PHYSICAL = "logical", "physical"
BY_SCHEDULE, BY_USER, FOR_SAFETY = "schedule", "user", "safety"
SAFETY_DAYS = 7
MAX_REASON_CHARS = 1_000
RESTORE_TEST_FAILED = "A backup could not be restored to prove it:"
PLATFORM_ERROR = "an error of the platform; the operator's log says more"


class MakeBackup(msgspec.Struct, frozen=True, tag="databases.backup"):
    """Create a requested backup and check it."""

    org_id: int
    database_id: int
    backup_id: int


class FollowPolicy(msgspec.Struct, frozen=True, tag="databases.follow_policy"):
    """Restart a server whose WAL archiving is switched on or off."""

    org_id: int
    database_id: int


class RestoreDatabase(msgspec.Struct, frozen=True, tag="databases.restore"):
    """Restore a backup, or a point in time after it."""

    org_id: int
    database_id: int
    backup_id: int
    target_ms: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the backup policy; None keeps the current value."""

    enabled: bool | None = None
    method: str | None = None
    cron: str | None = None
    days: int | None = None
    to_keep: int | None = None


# The policy.


def check_plan(tx: Tx, org_id: int, standing: Standing) -> None:
    """Raise QuotaExceeded if the organization's plan has no backups."""
    if not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded("Backups of databases need a paid plan")


def plan(tx: Tx, org_id: int, database: Database) -> None:
    """Sync the timetable with the policy; an unchanged schedule keeps its next run."""
    if database.backup:
        timetable.ensure(tx, org_id, KIND, str(database.id), Cron.parse(database.backup_cron))
    else:
        timetable.remove(tx, org_id, KIND, str(database.id))


def change_policy(tx: Tx, org_id: int, actor: Actor, standing: Standing, name: str, changes: Changes) -> Database:
    """Change the backup policy; switching WAL archiving restarts the server."""
    before = service.lock(tx, org_id, name)
    service.check_paid(tx, org_id, standing, before, "Backups")
    if changes.method == PHYSICAL:
        check_physical(before)
    enabled = before.backup if changes.enabled is None else changes.enabled
    to_keep = changes.to_keep or before.backups_to_keep or service.BACKUPS_TO_KEEP
    values: dict[str, Any] = {
        "backup": enabled,
        "backup_method": changes.method or before.backup_method,
        "backup_cron": changes.cron or before.backup_cron,
        "backup_days": changes.days or before.backup_days,
        "backups_to_keep": to_keep if enabled else None,
    }
    for column, value in values.items():
        service.set_column(tx, org_id, before, column, value)
    after = service.get_by_id(tx, org_id, before.id)
    plan(tx, org_id, after)
    audit.record(tx, org_id, actor, "database.backups_changed", service.target_of(after), **values)
    if is_archiving(before) != is_archiving(after):
        service.begin_update(tx, org_id, after)
        service.add_job(tx, org_id, after, FollowPolicy(org_id, after.id))
    return service.get_by_id(tx, org_id, after.id)


def is_archiving(database: Database) -> bool:
    """Tell whether the WAL of a database is archived."""
    return database.backup and database.backup_method == PHYSICAL


def check_physical(database: Database) -> None:
    if database.engine != "postgresql":
        raise bad_field("method", "should be logical: only PostgreSQL has physical backups")


# Reading.


def all_of(tx: Tx, org_id: int, database: Database) -> list[Backup]:
    """Return the backups of a database, newest first."""
    return tx.all(backup_tables.OF_DATABASE, org_id=org_id, database_id=database.id)


def find(tx: Tx, org_id: int, backup_id: int) -> Backup | None:
    return tx.find(backup_tables.FIND, org_id=org_id, id=backup_id)


def get(tx: Tx, org_id: int, backup_id: int) -> Backup:
    backup = find(tx, org_id, backup_id)
    if backup is None:
        raise no_backup()
    return backup


def get_by_name(tx: Tx, org_id: int, database: Database, name: str) -> Backup:
    backup = tx.find(backup_tables.FIND_BY_NAME, org_id=org_id, database_id=database.id, name=name)
    if backup is None:
        raise no_backup()
    return backup


def no_backup() -> NotFound:
    return NotFound("There is no such backup")


def owner_of(backup: Backup) -> str:
    """Return the owner name of a backup in the artifact store."""
    return f"database-backup:{backup.id}"


# Creating.


def make_now(tx: Tx, org_id: int, actor: Actor, standing: Standing, name: str) -> Backup:
    """Request a backup on behalf of a user."""
    database = service.lock(tx, org_id, name)
    service.check_paid(tx, org_id, standing, database, "Backups")
    if database.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {database.status}; a backup needs one that is running")
    if _is_running(tx, org_id, database):
        raise Conflict("A backup of this database is being made already")
    backup = request(tx, org_id, database, BY_USER)
    audit.record(tx, org_id, actor, "database.backup_requested", service.target_of(database), backup=backup.name)
    return backup


def on_tick(tx: Tx, org_id: int, database_id: int) -> None:
    """Request a scheduled backup, unless another one is running."""
    database = service.find_by_id(tx, org_id, database_id)
    if database is None or database.deleted_at is not None or not database.backup:
        return
    if database.status in (DatabaseStatus.RUNNING, DatabaseStatus.UPDATING) and not _is_running(tx, org_id, database):
        request(tx, org_id, database, BY_SCHEDULE)


def request(tx: Tx, org_id: int, database: Database, cause: str) -> Backup:
    """Add a backup and the job that creates it."""
    backup = add(tx, org_id, database, cause, database.backup_method)
    job = MakeBackup(org_id, database.id, backup.id)
    service.add_job(tx, org_id, database, job, key=job_key(database), lane=Lane.BACKUPS)
    return backup


def add(tx: Tx, org_id: int, database: Database, cause: str, method: str, name: str | None = None) -> Backup:
    """Add the row of a backup; the caller creates the backup itself."""
    values = {
        "org_id": org_id,
        "database_id": database.id,
        "status": BackupStatus.RUNNING,
        "method": method,
        "cause": cause,
        "software": database.software or "",
        "started_at": tx.now,
        "updated_at": tx.now,
        **dict.fromkeys(("digest", "total_size", "entries", "first_wal", "reason", "completed_at", "expires_at")),
        "verified_at": None,
    }
    base_name = name or f"{database.name}-{datetime.fromtimestamp(tx.now / 1000, UTC):%Y%m%d-%H%M%S}"
    backup_id, number = tx.find(backup_tables.ADD, name=base_name, **values), 2
    while backup_id is None:
        backup_id = tx.find(backup_tables.ADD, name=f"{base_name}-{number}", **values)
        number += 1
    return get(tx, org_id, backup_id)


def job_key(database: Database) -> str:
    """Return the job key that serialises backups and restore tests of a database."""
    return f"database-backup:{database.id}"


def _is_running(tx: Tx, org_id: int, database: Database) -> bool:
    return any(each.status == BackupStatus.RUNNING for each in all_of(tx, org_id, database))


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A backup in the artifact store that was read back."""

    digest: str
    total_size: int
    entries: int
    first_wal: str | None


def complete(tx: Tx, org_id: int, backup_id: int, stored: StoredBackup) -> None:
    """Mark a backup as completed, and delete backups beyond the retention."""
    backup = find(tx, org_id, backup_id)
    database = service.find_by_id(tx, org_id, backup.database_id) if backup is not None else None
    if backup is None or database is None:
        artifacts.unrefer(tx, org_id, f"database-backup:{backup_id}")
        return
    days = SAFETY_DAYS if backup.cause == FOR_SAFETY else database.backup_days
    move(
        tx,
        BACKUP,
        backup,
        to=BackupStatus.COMPLETED,
        digest=stored.digest,
        total_size=stored.total_size,
        entries=stored.entries,
        first_wal=stored.first_wal,
        completed_at=tx.now,
        expires_at=tx.now + days * DAY_MS,
    )
    prune(tx, org_id, database)


def fail(tx: Tx, org_id: int, backup_id: int, why: str) -> None:
    """Mark a running backup as failed. Safe to repeat."""
    backup = find(tx, org_id, backup_id)
    if backup is not None and backup.status == BackupStatus.RUNNING:
        reason = why.replace("\x00", "")[:MAX_REASON_CHARS]
        move(tx, BACKUP, backup, to=BackupStatus.FAILED, reason=reason, completed_at=tx.now)
        artifacts.unrefer(tx, org_id, owner_of(backup))


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: MakeBackup) -> None:
    fail(tx, job.org_id, job.backup_id, PLATFORM_ERROR)


def set_verified(tx: Tx, org_id: int, backup: Backup) -> None:
    """Record a successful restore test."""
    tx.run(backup_tables.SET_VERIFIED, org_id=org_id, id=backup.id, now=tx.now)
    database = service.find_by_id(tx, org_id, backup.database_id)
    if database is not None:
        service.set_column(tx, org_id, database, "verified_at", tx.now)


# Retention.


def prune(tx: Tx, org_id: int, database: Database) -> int:
    """Delete backups beyond the retention, and unneeded WAL; return their number.

    The newest completed backup always stays.
    """
    expired = to_prune(all_of(tx, org_id, database), database, tx.trusted_now)
    for each in expired:
        _remove(tx, org_id, each)
    for wal_file in unneeded(all_of(tx, org_id, database), wal_files_of(tx, org_id, database)):
        remove_wal_file(tx, org_id, database, wal_file)
    return len(expired)


def to_prune(backups: Sequence[Backup], database: Database, now: int) -> list[Backup]:
    """Return the backups, given newest first, that are beyond the retention."""
    completed = [each for each in backups if each.status == BackupStatus.COMPLETED]
    counted = [each for each in completed if each.cause != FOR_SAFETY]
    to_keep = database.backups_to_keep or len(counted)
    expired = [each for each in completed if each.expires_at is not None and each.expires_at <= now]
    failed_before = now - database.backup_days * DAY_MS
    failed = [each for each in backups if each.status == BackupStatus.FAILED and each.started_at <= failed_before]
    removed = {each.id for each in (*counted[to_keep:], *expired, *failed)} - {each.id for each in completed[:1]}
    return [each for each in backups if each.id in removed]


def wal_files_of(tx: Tx, org_id: int, database: Database) -> list[WalFile]:
    return tx.all(backup_tables.WAL_FILES, org_id=org_id, database_id=database.id)


def unneeded(backups: Sequence[Backup], wal_files: Sequence[WalFile]) -> list[WalFile]:
    """Return the WAL files that no backup needs.

    WAL of a folder without a backup is not needed, unless its first backup is running.
    """
    if any(each.status == BackupStatus.RUNNING and each.method == PHYSICAL for each in backups):
        return []
    first: dict[str, str] = {}
    for each in backups:
        if each.status == BackupStatus.COMPLETED and each.first_wal is not None:
            folder, _, file = each.first_wal.partition("/")
            first[folder] = min(first.get(folder, file), file, key=lambda name: name[8:])
    return [each for each in wal_files if each.folder not in first or not is_needed(each.file, first[each.folder])]


def wal_owner(database: Database, name: str) -> str:
    """Return the owner name of a WAL file in the artifact store."""
    return f"database-wal:{database.id}:{name}"


def remove_wal_file(tx: Tx, org_id: int, database: Database, wal_file: WalFile) -> None:
    artifacts.unrefer(tx, org_id, wal_owner(database, wal_file.name))
    tx.run(backup_tables.DELETE_WAL_FILE, org_id=org_id, id=wal_file.id)


def _remove(tx: Tx, org_id: int, backup: Backup) -> None:
    artifacts.unrefer(tx, org_id, owner_of(backup))
    tx.run(backup_tables.DELETE, org_id=org_id, id=backup.id)


def remove_all(tx: Tx, org_id: int, database_id: int) -> None:
    """Delete all backups, in the transaction that deletes the database's row."""
    timetable.remove(tx, org_id, KIND, str(database_id))
    database = service.find_by_id(tx, org_id, database_id)
    if database is None:
        return
    for each in all_of(tx, org_id, database):
        _remove(tx, org_id, each)
    for wal_file in wal_files_of(tx, org_id, database):
        remove_wal_file(tx, org_id, database, wal_file)


# Restoring.


def restore(
    tx: Tx,
    org_id: int,
    actor: Actor,
    standing: Standing,
    name: str,
    backup_name: str,
    *,
    is_confirmed: bool,
    target_ms: int | None,
) -> None:
    """Request a restore; it replaces the current data after a check."""
    database = service.lock(tx, org_id, name)
    service.check_paid(tx, org_id, standing, database, "A restore")
    if not is_confirmed:
        raise bad_field("confirm", "should be true: a restore replaces everything that is in the database now")
    if database.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {database.status}; a restore needs one that is running")
    backup = get_by_name(tx, org_id, database, backup_name)
    if backup.status != BackupStatus.COMPLETED:
        raise Conflict(f"The backup is {backup.status}; only a completed one can be restored")
    if target_ms is not None:
        backup = _backup_for(tx, org_id, database, backup, target_ms)
    service.begin_update(tx, org_id, database)
    audit.record(
        tx, org_id, actor, "database.restore_requested", service.target_of(database), backup=backup.name, to=target_ms
    )
    job = RestoreDatabase(org_id, database.id, backup.id, target_ms)
    service.add_job(tx, org_id, database, job, lane=Lane.BACKUPS)


def _backup_for(tx: Tx, org_id: int, database: Database, backup: Backup, target_ms: int) -> Backup:
    """Return the latest physical backup before a point in time."""
    if backup.method != PHYSICAL:
        raise bad_field("targetTime", "needs a physical backup")
    if target_ms > tx.now:
        raise bad_field("targetTime", "is in the future")
    if backup.completed_at is None or target_ms < backup.completed_at:
        raise bad_field("targetTime", "is before the end of that backup")
    candidates = [
        each
        for each in all_of(tx, org_id, database)
        if each.status == BackupStatus.COMPLETED
        and each.method == PHYSICAL
        and each.completed_at is not None
        and each.completed_at <= target_ms
    ]
    return candidates[0] if candidates else backup


def record_failed_test(tx: Tx, org_id: int, database: Database, backup: Backup, why: str) -> None:
    """Store a failed restore test in the status reason and in the audit log."""
    reason = f"{RESTORE_TEST_FAILED} {backup.name}: {why}"[:MAX_REASON_CHARS].replace("\x00", "")
    service.set_column(tx, org_id, database, "status_reason", reason)
    audit.record(
        tx, org_id, THE_PLATFORM, "database.drill_failed", service.target_of(database), backup=backup.name, reason=why
    )
