"""Restores a backup or a point in time, without risk for the running database.

The data is restored into a new folder and checked there; then the server switches to that folder. Until the switch the
running server is not touched. Every step is safe to repeat: a marker file in a restored folder names its job, and the
row of the server names the folder in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets as random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.worker.run import Run
from moorage.errors import IllegalMove, NotFound
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.archiving import Archiver, Exclusive
from moorage.products.databases.backups.jobs import (
    FAILURES,
    BackupMaker,
    WorkFolder,
    error_message,
)
from moorage.products.databases.backups.service import RestoreDatabase
from moorage.products.databases.servers import (
    MB_OF_GB,
    Servers,
    primary_of,
    set_server,
)
from moorage.products.databases.states import DATABASE, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database, Server
from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.ports import (
    SCRATCH_PORT,
    Access,
    Recovery,
    ServerFailed,
    ServerOptions,
    Software,
)
from moorage.runtime.database_servers.server_folders import Restored
from moorage.runtime.engines.ports import CannotStart

STOP_GRACE_S = 1.0  # Short, because clients wait: a killed server recovers from its WAL if it is needed again.
LOST = "the stored file of the backup is gone"
MIN_CPU = 1.0

Hook = Callable[[Database], Awaitable[None]]


class Rebuilder:
    """Restores a backup into a folder and checks it with a scratch server."""

    def __init__(self, servers: Servers, artifacts: ArtifactStore, archiver: Archiver) -> None:
        self._servers = servers
        self._artifacts = artifacts
        self._archiver = archiver

    async def build(self, database: Database, backup: Backup, target_ms: int | None, folder: str) -> None:
        """Create the folder, replacing a previous attempt; deletes it on FAILURES."""
        host = self._servers.host
        await self._learn(database)
        await host.folders.remove(database, folder)
        try:
            async with WorkFolder(self._servers, database, folder) as work:
                await self._fetch(database, backup, work / "backup")
                if backup.method == backups.PHYSICAL:
                    await self._recover(database, backup, work / "backup", target_ms, folder)
                else:
                    await self._load(database, backup, work / "backup", folder)
        except FAILURES:
            with contextlib.suppress(ServerFailed):  # The next sweep removes it.
                await host.folders.remove(database, folder)
            raise

    async def _learn(self, database: Database) -> None:
        """Prepare the calls of the database's server."""
        primary = await self._servers.find_primary(database)
        if primary is not None:
            await self._servers.access(database, primary)

    async def _fetch(self, database: Database, backup: Backup, target: Path) -> None:
        if backup.digest is None or backup.total_size is None:
            raise ServerFailed(LOST)
        await self._artifacts.check_room(backup.total_size + max(database.disk_bytes, backup.total_size))
        try:
            await self._artifacts.fetch(database.org_id, backup.digest, target)
        except NotFound:
            raise ServerFailed(LOST) from None

    async def _load(self, database: Database, backup: Backup, dump: Path, folder: str) -> None:
        kind, software = self._servers.kind(database), self._servers.software(database)
        tables = await tools.in_thread(kind.check, software, dump)
        if tables != backup.entries:
            raise ServerFailed(f"it should have {backup.entries} tables, and has {tables}")
        await self._servers.host.folders.make(database, software, folder)
        async with self._servers.host.scratch(database, folder, scratch_options(database)) as access:
            await self._set_passwords(database, software, access)
            credentials = (await self._servers.secrets(database)).credentials
            await tools.in_thread(kind.load, software, access, credentials, dump)
            loaded = await tools.in_thread(kind.count_rows, access, credentials)
            if len(loaded) != tables:
                raise ServerFailed(f"of {tables} tables {len(loaded)} are there after loading it")

    async def _recover(
        self, database: Database, backup: Backup, file: Path, target_ms: int | None, folder: str
    ) -> None:
        kind, software = self._servers.kind(database), self._servers.software(database)
        # A later release of the same series restores backups of the releases before it.
        if self._servers.catalog.find(backup.software) != software or backup.first_wal is None:
            raise ServerFailed(f"it is of {backup.software}, and the database runs on {software.name}")
        host = self._servers.host
        await host.physical.begin_recovery(database, file, folder)
        if target_ms is not None:
            add_wal = partial(host.physical.add_wal, database, folder)
            await self._archiver.fetch(database, backup.first_wal, file.parent, add_wal)
        await host.physical.end_recovery(database, software, folder)
        options = replace(scratch_options(database), recovery=Recovery(target_ms))
        async with host.scratch(database, folder, options) as access:
            await self._set_passwords(database, software, access)
            credentials = (await self._servers.secrets(database)).credentials
            await asyncio.to_thread(kind.set_read_only, access, credentials, False)
            await tools.in_thread(kind.count_rows, access, credentials)
        await host.physical.remove_wal(database, folder)

    async def _set_passwords(self, database: Database, software: Software, access: Access) -> None:
        """Set the current passwords, which may differ from those in the backup."""
        kind, secrets = self._servers.kind(database), await self._servers.secrets(database)
        await asyncio.to_thread(kind.set_admin_password, software, access)
        replica = secrets.replica if database.is_replicated else None
        await asyncio.to_thread(kind.provision, access, secrets.credentials, replica)


def scratch_options(database: Database) -> ServerOptions:
    """Return the options of a scratch server.

    It has the memory of the tier, because a recovery needs at least the settings under which the WAL was written.
    """
    return ServerOptions(
        port=SCRATCH_PORT,
        memory_mb=int(database.tier.memory * MB_OF_GB),
        cpu=max(database.tier.cpu, MIN_CPU),
        is_open=False,
    )


class Restorer:
    def __init__(self, servers: Servers, maker: BackupMaker, rebuilder: Rebuilder, archiver: Archiver) -> None:
        self._servers = servers
        self._maker = maker
        self._rebuilder = rebuilder
        self._archiver = archiver
        self.before_switch: list[Hook] = []  # called before the server switches to another folder
        self.after_switch: list[Hook] = []  # called after the switch
        self.exclusive: Exclusive = contextlib.nullcontext  # keeps the replicator from the servers of a database

    async def handle(self, run: Run, job: RestoreDatabase) -> None:
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        if database is None or database.status != DatabaseStatus.UPDATING:
            return
        try:
            restored = await self._restore(run, database, backup, job.target_ms)
            for hook in self.before_switch:
                await hook(database)
            async with self.exclusive(database):
                await self.switch(run, database, restored)
        except FAILURES as error:
            name = backup.name if backup else "The backup"
            why = f"{name} was not restored, the database is as it was: {error_message(error)}"
            await run.write(partial(_set_running, org_id=database.org_id, database=database, why=why))
            return
        warning = await self._after(run, database, restored)
        await run.write(partial(_finish, org_id=database.org_id, database=database, backup=backup, why=warning))

    async def _restore(self, run: Run, database: Database, backup: Backup | None, target_ms: int | None) -> Restored:
        """Return the restored folder of a previous attempt, or restore it now."""
        primary = await run.read(lambda tx: primary_of(tx, database.org_id, database.id))
        if primary is None:
            raise ServerFailed(LOST)
        host = self._servers.host
        await self._servers.access(database, primary)
        restored = await host.folders.find_restored(database, run.job.id)
        if restored is not None:
            return restored
        if backup is None:
            raise ServerFailed(LOST)
        await self._back_up_current(run, database)
        if target_ms is not None and backups.is_archiving(database):
            # The stored WAL may cover the target time even if this fails; if not, the recovery fails.
            with contextlib.suppress(ServerFailed):
                await self._archiver.flush(database, primary)
        building = f"restore-{run.job.id}"
        await self._rebuilder.build(database, backup, target_ms, building)
        return await host.folders.finish_restored(database, building, run.job.id, primary.folder)

    async def _back_up_current(self, run: Run, database: Database) -> None:
        """Create a safety backup of the current data, unless a previous attempt did."""
        name = f"{database.name}-before-restore-{run.job.id}"
        safety = await run.write(partial(_ensure_safety, org_id=database.org_id, database=database, name=name))
        if safety.status == BackupStatus.COMPLETED:
            return
        try:
            await self._maker.make(run, database, safety)
        except FAILURES as error:
            why = error_message(error)
            await run.write(partial(backups.fail, org_id=database.org_id, backup_id=safety.id, why=why))
            raise ServerFailed(f"the safety backup of the current data failed: {why}") from error

    async def switch(self, run: Run, database: Database, restored: Restored) -> None:
        """Restart the server on the restored folder, or on the old one if that fails."""
        server = await self._point_to(run, database, restored.folder)
        try:
            # A previous attempt may have changed only the row, so the running server may use either folder.
            await self._servers.stop(server, STOP_GRACE_S)
            await self._servers.start(database, server)
        except (CannotStart, ServerFailed, OSError) as error:
            previous = await self._point_to(run, database, restored.replaces)
            await self._servers.stop(previous, STOP_GRACE_S)
            with contextlib.suppress(CannotStart, ServerFailed, OSError):
                # If this fails too, the reconciler tries again.
                await self._servers.start(database, previous)
            with contextlib.suppress(ServerFailed):
                await self._servers.host.folders.remove(database, restored.folder)
            raise ServerFailed(f"its server does not start on the restored data: {error}") from error

    async def _point_to(self, run: Run, database: Database, folder: str) -> Server:
        return await run.write(partial(_set_folder, org_id=database.org_id, database=database, folder=folder))

    async def _after(self, run: Run, database: Database, restored: Restored) -> str | None:
        """Store the WAL of the replaced folder, call the hooks; return a warning."""
        now = run.db.env.clock.now()
        try:
            await self._servers.host.folders.mark_superseded(database, restored.replaces, now)
            if backups.is_archiving(database):
                await self._archiver.empty_folder(database, restored.replaces)
            for hook in self.after_switch:
                await hook(database)
        except FAILURES as error:
            return f"it was restored, but: {error_message(error)}"
        return None


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: RestoreDatabase) -> None:
    """End a restore after its last attempt; the folder in the server's row stays."""
    database = service.find_by_id(tx, job.org_id, job.database_id)
    if database is None:
        return
    for each in backups.all_of(tx, job.org_id, database):
        if each.cause == backups.FOR_SAFETY:
            backups.fail(tx, job.org_id, each.id, backups.PLATFORM_ERROR)
    if database.status == DatabaseStatus.UPDATING:
        _set_running(tx, job.org_id, database, f"A restore was given up: {backups.PLATFORM_ERROR}")


def _ensure_safety(tx: Tx, org_id: int, database: Database, name: str) -> Backup:
    safety = tx.find(backup_tables.FIND_BY_NAME, org_id=org_id, database_id=database.id, name=name)
    return safety or backups.add(tx, org_id, database, backups.FOR_SAFETY, backups.LOGICAL, name)


def _set_folder(tx: Tx, org_id: int, database: Database, folder: str) -> Server:
    """Point the server's row to a folder; the new token disowns the running shim."""
    primary = primary_of(tx, org_id, database.id)
    if primary is None:
        raise ServerFailed("the database has no server")
    if primary.folder != folder:
        set_server(tx, org_id, primary, "folder", folder)
        set_server(tx, org_id, primary, "token", random.token_hex(24))
    changed = primary_of(tx, org_id, database.id)
    assert changed is not None
    return changed


def _set_running(tx: Tx, org_id: int, database: Database, why: str | None) -> None:
    with contextlib.suppress(IllegalMove):  # It is being deleted.
        move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=why and why[: backups.MAX_REASON_CHARS])


def _finish(tx: Tx, org_id: int, database: Database, backup: Backup | None, why: str | None) -> None:
    _set_running(tx, org_id, database, why)
    # The disk watch measures the new folder.
    service.set_column(tx, org_id, database, "is_full", False)
    name = backup.name if backup else None
    audit.record(tx, org_id, THE_PLATFORM, "database.restored", service.target_of(database), backup=name)
    if backups.is_archiving(database):
        # Point-in-time recovery on the new folder needs a base backup of it.
        backups.request(tx, org_id, database, backups.BY_SCHEDULE)
