"""Jobs that create backups, and their maintenance jobs.

A job whose process died runs again from its beginning: it deletes files of the previous attempt first, and an artifact
of that attempt has the same owner, so nothing is stored twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec

from moorage.core.artifacts.objects import ArtifactDamaged, ArtifactsUnavailable
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.jobs.timetable import Tick
from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.core.worker.run import Handlers, Run
from moorage.errors import QuotaExceeded, RetryLater
from moorage.products.databases import service, tables
from moorage.products.databases.backups import archiving
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.archiving import Archiver
from moorage.products.databases.backups.service import FollowPolicy, MakeBackup, RestoreDatabase, StoredBackup
from moorage.products.databases.servers import Servers, primary_of, servers_of
from moorage.products.databases.states import BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database, Server
from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.database_servers.server_folders import WORK
from moorage.runtime.engines.ports import CannotStart

RESTORE_TESTS, SWEEP = "database.drills", "database.sweep"
UPDATING_RETRY_S = 20.0  # retry interval while the database is `updating`
STORE_RETRY_S = 60.0  # retry interval while the artifact store is unavailable
LEFTOVER_MS = 2 * DAY_MS  # age at which temporary folders no longer belong to a running job
SUPERSEDED_MS = DAY_MS  # retention of the folder that a restore has replaced
# Errors that fail a backup, restore test or restore with a message; any other exception is a bug of the platform.
FAILURES = (ServerFailed, CannotStart, QuotaExceeded, ArtifactDamaged, ArtifactsUnavailable, OSError)


class PlanRestoreTests(msgspec.Struct, frozen=True, tag="databases.drills"):
    """Request a restore test of each database's newest backup that had none yet."""


class RunRestoreTest(msgspec.Struct, frozen=True, tag="databases.drill"):
    """Restore a backup into a temporary folder to verify it."""

    org_id: int
    database_id: int
    backup_id: int


class SweepBackups(msgspec.Struct, frozen=True, tag="databases.sweep_backups"):
    """Delete backups and replaced folders after their retention."""


class BackupMaker:
    def __init__(self, servers: Servers, artifacts: ArtifactStore) -> None:
        self._servers = servers
        self._artifacts = artifacts

    async def handle(self, run: Run, job: MakeBackup) -> None:
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        if backup is None or database is None or backup.status != BackupStatus.RUNNING:
            return
        if database.status == DatabaseStatus.UPDATING and run.attempt < run.job.max_attempts:
            raise RetryLater(after_s=UPDATING_RETRY_S * run.attempt, why="the database is being changed")
        try:
            _check_running(database)
            await self.make(run, database, backup)
        except ArtifactsUnavailable as error:
            raise RetryLater(after_s=STORE_RETRY_S, why=f"the artifact store: {error}") from error
        except FAILURES as error:
            await run.write(partial(backups.fail, org_id=job.org_id, backup_id=backup.id, why=error_message(error)))

    async def make(self, run: Run, database: Database, backup: Backup) -> None:
        """Create, store and complete a backup; raises one of FAILURES. Safe to repeat."""
        primary = await run.read(lambda tx: primary_of(tx, database.org_id, database.id))
        if primary is None or database.deleted_at is not None:
            raise ServerFailed("the database has no server")
        async with WorkFolder(self._servers, database, f"b{backup.id}") as work:
            await self._check_room(database, primary)
            file = work / "backup"
            entries, first = await self._write(database, backup, primary, file)
            if (size := (await asyncio.to_thread(file.stat)).st_size) == 0:
                raise ServerFailed("nothing was written")
            artifact = await self._artifacts.put_file(database.org_id, file, owner=backups.owner_of(backup))
        stored = StoredBackup(artifact.digest, size, entries, first)
        await run.write(partial(backups.complete, org_id=database.org_id, backup_id=backup.id, stored=stored))

    async def _check_room(self, database: Database, primary: Server) -> None:
        """Require twice the size of the data, for the file and its stored copy."""
        await self._servers.access(database, primary)
        used = await asyncio.to_thread(self._servers.host.used_bytes, database, primary)
        await self._artifacts.check_room(2 * used)

    async def _write(self, database: Database, backup: Backup, primary: Server, file: Path) -> tuple[int, str | None]:
        kind, software = self._servers.kind(database), self._servers.software(database)
        access = await self._servers.access(database, primary)
        if backup.method == backups.PHYSICAL:
            entries, first = await self._servers.host.physical.copy(database, software, access, file)
            return entries, f"{primary.folder}/{first}"
        credentials = (await self._servers.secrets(database)).credentials
        await tools.in_thread(kind.dump, software, access, credentials, file)
        return await tools.in_thread(kind.check, software, file), None


class WorkFolder:
    """Temporary folder of one job, empty on entry and deleted on exit.

    It belongs to the platform, so that the tools' user cannot replace files in it.
    """

    def __init__(self, servers: Servers, database: Database, name: str) -> None:
        self._path = servers.root(database.id) / WORK / name

    async def __aenter__(self) -> Path:
        await asyncio.to_thread(self._make)
        return self._path

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(folders.remove, self._path)

    def _make(self) -> None:
        folders.remove(self._path)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.mkdir(mode=0o700)


def error_message(error: BaseException) -> str:
    """Return the message for the `reason` of a backup or database."""
    if isinstance(error, ArtifactDamaged):
        return "what was stored cannot be read back as it was"
    if isinstance(error, ArtifactsUnavailable):
        return "the artifact store cannot be reached"
    if isinstance(error, OSError):
        return f"the disk of the platform: {error.strerror or error}"
    return str(error)


def _check_running(database: Database) -> None:
    if database.status != DatabaseStatus.RUNNING:
        raise ServerFailed(f"the database is {database.status}")


# Maintenance.


@dataclass(frozen=True)
class BackupJobs:
    """Job handlers of backups."""

    servers: Servers
    maker: BackupMaker
    archiver: Archiver
    restore: Callable[[Run, RestoreDatabase], Awaitable[None]]
    give_up_restore: Callable[[Tx, RestoreDatabase], None]
    test_restore: Callable[[Run, RunRestoreTest], Awaitable[None]]


def register(handlers: Handlers, backup_jobs: BackupJobs) -> None:
    async def sweep(run: Run, _: SweepBackups) -> None:
        for database in await run.read(_with_backups):
            await run.write(partial(backups.prune, org_id=database.org_id, database=database))
        await remove_superseded(run, backup_jobs.servers)

    handlers.add(MakeBackup, backup_jobs.maker.handle, on_failure=backups.give_up)
    handlers.add(RestoreDatabase, backup_jobs.restore, on_failure=backup_jobs.give_up_restore)
    handlers.add(FollowPolicy, backup_jobs.archiver.follow_policy, on_failure=archiving.give_up)
    handlers.add(RunRestoreTest, backup_jobs.test_restore)
    handlers.maintain(RESTORE_TESTS, "23 4 * * *", PlanRestoreTests(), plan_restore_tests, lane=Lane.BACKUPS)
    handlers.maintain(SWEEP, "51 * * * *", SweepBackups(), sweep, lane=Lane.BACKUPS, on_each_machine=True)
    handlers.ticks[backups.KIND] = _on_backup_tick


@across_organizations("a tick names its organization")
def _on_backup_tick(tx: Tx, tick: Tick) -> None:
    backups.on_tick(tx, tick.org_id, int(tick.ref))


@across_organizations("the backups of all databases are looked after")
def _with_backups(tx: Tx) -> list[Database]:
    return tx.all(backup_tables.WITH_BACKUPS)


@across_organizations("the backups of all databases are proved")
def plan_restore_tests(tx: Tx, _: PlanRestoreTests) -> None:
    """Request a restore test for each running database whose newest backup had none."""
    for database in tx.all(backup_tables.WITH_BACKUPS):
        completed = [
            each for each in backups.all_of(tx, database.org_id, database) if each.status == BackupStatus.COMPLETED
        ]
        if database.status == DatabaseStatus.RUNNING and completed and completed[0].verified_at is None:
            job = RunRestoreTest(database.org_id, database.id, completed[0].id)
            service.add_job(tx, database.org_id, database, job, key=backups.job_key(database), lane=Lane.BACKUPS)


async def remove_superseded(run: Run, servers: Servers) -> None:
    """Delete replaced folders after their retention, and leftovers of dead jobs."""
    before = run.db.env.clock.trusted_now() - SUPERSEDED_MS
    for database in await run.read(_all_databases):
        used = {
            each.folder for each in await run.read(partial(servers_of, org_id=database.org_id, database_id=database.id))
        }
        await servers.host.folders.sweep(database, used, before, before - LEFTOVER_MS)


@across_organizations("a machine has the folders of databases of all organizations")
def _all_databases(tx: Tx) -> list[Database]:
    return tx.all(tables.OF_MACHINE, machine_id=tx.env.machine.id)
