"""Backups: when they are made, which there are, how long they stay, and what may be restored.

A row is `running` from the moment a backup is asked for, and becomes `completed` only once what was stored has been
read back. Whatever keeps it from getting there ends it as `failed`, with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane, timetable
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.cron import Cron
from moorage.errors import Conflict, NotFound, QuotaExceeded, bad_field
from moorage.products.databases import service
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.tables import Piece
from moorage.products.databases.states import BACKUP, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database
from moorage.runtime.database_servers.postgres.physical_backups import is_needed

KIND = "database.backup"  # in the timetable; the reference is the database's id
LOGICAL, PHYSICAL = "logical", "physical"
BY_SCHEDULE, BY_USER, FOR_SAFETY = "schedule", "user", "safety"
SAFETY_DAYS = 7
SHOWN_REASON = 1_000
DRILL_FAILED = "A backup could not be restored to prove it:"
GAVE_UP = "an error of the platform; the operator's log says more"


class MakeBackup(msgspec.Struct, frozen=True, tag="databases.backup"):
    """Make a backup that was asked for, and prove it."""

    org_id: int
    database_id: int
    backup_id: int


class FollowPolicy(msgspec.Struct, frozen=True, tag="databases.follow_policy"):
    """Start a server again that is to archive its log from now on, or no longer."""

    org_id: int
    database_id: int


class RestoreDatabase(msgspec.Struct, frozen=True, tag="databases.restore"):
    """Bring an earlier state of a database back."""

    org_id: int
    database_id: int
    backup_id: int
    target_ms: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What an edit of the policy sets; None keeps what is there."""

    enabled: bool | None = None
    method: str | None = None
    cron: str | None = None
    days: int | None = None
    to_keep: int | None = None


# The policy.


def check_plan(tx: Tx, org_id: int, standing: Standing) -> None:
    """Raise QuotaExceeded where the organization's plan has no backups at all."""
    if not plans.counts_as_paid(tx.env.settings, standing):
        raise QuotaExceeded("Backups of databases need a paid plan")


def plan(tx: Tx, org_id: int, found: Database) -> None:
    """Let the timetable say what the policy says. A schedule that stands keeps its next time. Safe to repeat."""
    if found.backup:
        timetable.ensure(tx, org_id, KIND, str(found.id), Cron.parse(found.backup_cron))
    else:
        timetable.remove(tx, org_id, KIND, str(found.id))


def change_policy(tx: Tx, org_id: int, actor: Actor, standing: Standing, name: str, changes: Changes) -> Database:
    """Change when and how backups are made. A server that is to archive its log, or no longer, is started again."""
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
        jobs.add(tx, FollowPolicy(org_id, after.id), key=service.key_of(after.id), lane=Lane.SERVERS)
    return service.get_by_id(tx, org_id, after.id)


def is_archiving(found: Database) -> bool:
    """Tell whether the pieces of a database's log are kept."""
    return found.backup and found.backup_method == PHYSICAL


def check_physical(found: Database) -> None:
    if found.engine != "postgresql":
        raise bad_field("method", "should be logical: only PostgreSQL has physical backups")


# Those that there are.


def all_of(tx: Tx, org_id: int, found: Database) -> list[Backup]:
    """Return the backups of a database, newest first."""
    return tx.all(backup_tables.OF_DATABASE, org_id=org_id, database_id=found.id)


def find(tx: Tx, org_id: int, backup_id: int) -> Backup | None:
    return tx.find(backup_tables.FIND, org_id=org_id, id=backup_id)


def get(tx: Tx, org_id: int, backup_id: int) -> Backup:
    found = find(tx, org_id, backup_id)
    if found is None:
        raise no_backup()
    return found


def get_by_name(tx: Tx, org_id: int, found: Database, name: str) -> Backup:
    backup = tx.find(backup_tables.FIND_BY_NAME, org_id=org_id, database_id=found.id, name=name)
    if backup is None:
        raise no_backup()
    return backup


def no_backup() -> NotFound:
    return NotFound("There is no such backup")


def owner_of(backup: Backup) -> str:
    """Return what the artifact store knows a backup by."""
    return f"database-backup:{backup.id}"


# Making one.


def make_now(tx: Tx, org_id: int, actor: Actor, standing: Standing, name: str) -> Backup:
    """Ask for a backup because somebody wants one."""
    found = service.lock(tx, org_id, name)
    service.check_paid(tx, org_id, standing, found, "Backups")
    if found.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {found.status}; a backup needs one that is running")
    if _is_under_way(tx, org_id, found):
        raise Conflict("A backup of this database is being made already")
    made = request(tx, org_id, found, BY_USER)
    audit.record(tx, org_id, actor, "database.backup_requested", service.target_of(found), backup=made.name)
    return made


def on_tick(tx: Tx, org_id: int, database_id: int) -> None:
    """Ask for a backup because it is time. One that is still being made is not joined by another."""
    found = service.find_by_id(tx, org_id, database_id)
    if found is None or found.deleted_at is not None or not found.backup:
        return
    if found.status in (DatabaseStatus.RUNNING, DatabaseStatus.UPDATING) and not _is_under_way(tx, org_id, found):
        request(tx, org_id, found, BY_SCHEDULE)


def request(tx: Tx, org_id: int, found: Database, cause: str) -> Backup:
    """Write down that a backup is wanted, with the job that makes it."""
    made = add(tx, org_id, found, cause, found.backup_method)
    jobs.add(tx, MakeBackup(org_id, found.id, made.id), key=job_key(found), lane=Lane.BACKUPS)
    return made


def add(tx: Tx, org_id: int, found: Database, cause: str, method: str, name: str | None = None) -> Backup:
    """Write a backup down; whoever does sees to it that it is made."""
    values = {
        "org_id": org_id,
        "database_id": found.id,
        "status": BackupStatus.RUNNING,
        "method": method,
        "cause": cause,
        "software": found.software or "",
        "started_at": tx.now,
        "updated_at": tx.now,
        **dict.fromkeys(("digest", "total_size", "entries", "first_wal", "reason", "completed_at", "expires_at")),
        "verified_at": None,
    }
    wanted = name or f"{found.name}-{datetime.fromtimestamp(tx.now / 1000, UTC):%Y%m%d-%H%M%S}"
    backup_id, number = tx.find(backup_tables.ADD, name=wanted, **values), 2
    while backup_id is None:
        backup_id = tx.find(backup_tables.ADD, name=f"{wanted}-{number}", **values)
        number += 1
    return get(tx, org_id, backup_id)


def job_key(found: Database) -> str:
    """Return the key under which the backups and drills of a database run one at a time."""
    return f"database-backup:{found.id}"


def _is_under_way(tx: Tx, org_id: int, found: Database) -> bool:
    return any(each.status == BackupStatus.RUNNING for each in all_of(tx, org_id, found))


@dataclass(frozen=True, slots=True)
class Made:
    """What was stored and read back."""

    digest: str
    total_size: int
    entries: int
    first_wal: str | None


def complete(tx: Tx, org_id: int, backup_id: int, made: Made) -> None:
    """Say that a backup can be restored, and let go of those that it replaces."""
    backup = find(tx, org_id, backup_id)
    found = service.find_by_id(tx, org_id, backup.database_id) if backup is not None else None
    if backup is None or found is None:
        artifacts.unrefer(tx, org_id, f"database-backup:{backup_id}")
        return
    days = SAFETY_DAYS if backup.cause == FOR_SAFETY else found.backup_days
    move(
        tx,
        BACKUP,
        backup,
        to=BackupStatus.COMPLETED,
        digest=made.digest,
        total_size=made.total_size,
        entries=made.entries,
        first_wal=made.first_wal,
        completed_at=tx.now,
        expires_at=tx.now + days * DAY_MS,
    )
    prune(tx, org_id, found)


def fail(tx: Tx, org_id: int, backup_id: int, why: str) -> None:
    """Say that a backup could not be made. Safe to repeat."""
    backup = find(tx, org_id, backup_id)
    if backup is not None and backup.status == BackupStatus.RUNNING:
        reason = why.replace("\x00", "")[:SHOWN_REASON]
        move(tx, BACKUP, backup, to=BackupStatus.FAILED, reason=reason, completed_at=tx.now)
        artifacts.unrefer(tx, org_id, owner_of(backup))


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: MakeBackup) -> None:
    fail(tx, job.org_id, job.backup_id, GAVE_UP)


def set_verified(tx: Tx, org_id: int, backup: Backup) -> None:
    """Write down that a backup was restored, and that everything was there."""
    tx.run(backup_tables.SET_VERIFIED, org_id=org_id, id=backup.id, now=tx.now)
    found = service.find_by_id(tx, org_id, backup.database_id)
    if found is not None:
        service.set_column(tx, org_id, found, "verified_at", tx.now)


# Letting go.


def prune(tx: Tx, org_id: int, found: Database) -> int:
    """Let go of backups that are too old or too many, and of what only they needed; return how many. Safe to repeat.

    The newest one that can be restored always stays.
    """
    doomed = to_prune(all_of(tx, org_id, found), found, tx.trusted_now)
    for each in doomed:
        _remove(tx, org_id, each)
    for piece in unneeded(all_of(tx, org_id, found), pieces_of(tx, org_id, found)):
        remove_piece(tx, org_id, found, piece)
    return len(doomed)


def to_prune(backups: Sequence[Backup], found: Database, now: int) -> list[Backup]:
    """Return those of a database's backups, newest first, that need not be kept."""
    completed = [each for each in backups if each.status == BackupStatus.COMPLETED]
    counted = [each for each in completed if each.cause != FOR_SAFETY]
    most = found.backups_to_keep or len(counted)
    old = [each for each in completed if each.expires_at is not None and each.expires_at <= now]
    failed_before = now - found.backup_days * DAY_MS
    failed = [each for each in backups if each.status == BackupStatus.FAILED and each.started_at <= failed_before]
    doomed = {each.id for each in (*counted[most:], *old, *failed)} - {each.id for each in completed[:1]}
    return [each for each in backups if each.id in doomed]


def pieces_of(tx: Tx, org_id: int, found: Database) -> list[Piece]:
    return tx.all(backup_tables.PIECES, org_id=org_id, database_id=found.id)


def unneeded(backups: Sequence[Backup], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of logs from which no backup can go on.

    Those of a folder that has no backup are not needed either, unless the first is being made.
    """
    if any(each.status == BackupStatus.RUNNING and each.method == PHYSICAL for each in backups):
        return []
    first: dict[str, str] = {}
    for each in backups:
        if each.status == BackupStatus.COMPLETED and each.first_wal is not None:
            folder, _, file = each.first_wal.partition("/")
            first[folder] = min(first.get(folder, file), file, key=lambda name: name[8:])
    return [each for each in pieces if each.folder not in first or not is_needed(each.file, first[each.folder])]


def piece_owner(found: Database, name: str) -> str:
    """Return what the artifact store knows a piece of a log by."""
    return f"database-wal:{found.id}:{name}"


def remove_piece(tx: Tx, org_id: int, found: Database, piece: Piece) -> None:
    artifacts.unrefer(tx, org_id, piece_owner(found, piece.name))
    tx.run(backup_tables.DELETE_PIECE, org_id=org_id, id=piece.id)


def _remove(tx: Tx, org_id: int, backup: Backup) -> None:
    artifacts.unrefer(tx, org_id, owner_of(backup))
    tx.run(backup_tables.DELETE, org_id=org_id, id=backup.id)


def remove_all(tx: Tx, org_id: int, database_id: int) -> None:
    """Let go of everything that was kept of a database, in the transaction that forgets it. Safe to repeat."""
    timetable.remove(tx, org_id, KIND, str(database_id))
    found = service.find_by_id(tx, org_id, database_id)
    if found is None:
        return
    for each in all_of(tx, org_id, found):
        _remove(tx, org_id, each)
    for piece in pieces_of(tx, org_id, found):
        remove_piece(tx, org_id, found, piece)


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
    """Ask for an earlier state. It takes the place of the present one once it is known to be whole."""
    found = service.lock(tx, org_id, name)
    service.check_paid(tx, org_id, standing, found, "A restore")
    if not is_confirmed:
        raise bad_field("confirm", "should be true: a restore replaces everything that is in the database now")
    if found.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {found.status}; a restore needs one that is running")
    backup = get_by_name(tx, org_id, found, backup_name)
    if backup.status != BackupStatus.COMPLETED:
        raise Conflict(f"The backup is {backup.status}; only a completed one can be restored")
    if target_ms is not None:
        backup = _backup_for(tx, org_id, found, backup, target_ms)
    service.begin_update(tx, org_id, found)
    audit.record(
        tx, org_id, actor, "database.restore_requested", service.target_of(found), backup=backup.name, to=target_ms
    )
    job = RestoreDatabase(org_id, found.id, backup.id, target_ms)
    jobs.add(tx, job, key=service.key_of(found.id), lane=Lane.BACKUPS)


def _backup_for(tx: Tx, org_id: int, found: Database, backup: Backup, target_ms: int) -> Backup:
    """Return the backup from which the way to a moment is shortest."""
    if backup.method != PHYSICAL:
        raise bad_field("targetTime", "needs a physical backup")
    if target_ms > tx.now:
        raise bad_field("targetTime", "is in the future")
    if backup.completed_at is None or target_ms < backup.completed_at:
        raise bad_field("targetTime", "is before the end of that backup")
    fitting = [
        each
        for each in all_of(tx, org_id, found)
        if each.status == BackupStatus.COMPLETED
        and each.method == PHYSICAL
        and each.completed_at is not None
        and each.completed_at <= target_ms
    ]
    return fitting[0] if fitting else backup


def record_failed_drill(tx: Tx, org_id: int, found: Database, backup: Backup, why: str) -> None:
    """Tell everybody that a backup could not be restored to prove it."""
    reason = f"{DRILL_FAILED} {backup.name}: {why}"[:SHOWN_REASON].replace("\x00", "")
    service.set_column(tx, org_id, found, "status_reason", reason)
    audit.record(
        tx, org_id, THE_PLATFORM, "database.drill_failed", service.target_of(found), backup=backup.name, reason=why
    )
