"""Uploads archived WAL files from the servers' folders to the artifact store.

The stored name contains the server's folder, because all copies of a template have the same system identifier. A WAL
file is deleted from the server's folder after its row is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Run
from moorage.errors import IllegalMove
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.hosts.ports import PhysicalBackups
from moorage.products.databases.servers import Servers, primary_of, servers_of
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical
from moorage.runtime.database_servers.server_folders import WORK
from moorage.runtime.engines.ports import CannotStart

ROUND_INTERVAL_S = 30.0

Exclusive = Callable[[Database], AbstractAsyncContextManager[Any]]
AddWal = Callable[[str, Path], Awaitable[None]]  # gets the name of a WAL file, and the compressed file


class Archiver:
    def __init__(self, db: Store, servers: Servers, artifacts: ArtifactStore, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._artifacts = artifacts
        self._telemetry = telemetry
        self.exclusive: Exclusive = contextlib.nullcontext  # keeps the replicator from the servers of a database
        self._locks: dict[int, asyncio.Lock] = {}  # by database: serialises uploads

    @property
    def _physical(self) -> PhysicalBackups:
        return self._servers.host.physical

    async def run(self) -> None:
        """Upload the archives of all servers periodically, until cancelled."""
        await Rounds(self._telemetry, "archiver", ROUND_INTERVAL_S).run(self._empty_all)

    async def _empty_all(self) -> None:
        for database in await self._db.read(_archiving):
            # A move to a cluster begins with an empty server on a folder whose name the stored WAL has already.
            if database.status == DatabaseStatus.UPDATING:
                continue
            try:
                await self.empty(database)
            except Exception as error:  # noqa: BLE001 - an error of one database must not stop the others
                self._telemetry.crashed(None, error, where="archiver")

    async def empty(self, database: Database) -> int:
        """Upload all archived WAL files of a database; return their number."""
        servers = await self._db.read(lambda tx: servers_of(tx, database.org_id, database.id))
        for each in servers:
            await self._servers.access(database, each)
        return sum([await self.empty_folder(database, each.folder) for each in servers])

    async def empty_folder(self, database: Database, folder: str) -> int:
        """Upload the archived WAL files of one folder. Safe to repeat and to interrupt."""
        async with self._locks.setdefault(database.id, asyncio.Lock()):
            names = await self._physical.archived(database, folder)
            for name in names:
                await self._store(database, folder, name)
        return len(names)

    async def flush(self, database: Database, server: Server) -> None:
        """Upload the WAL of all acknowledged transactions; raises ServerFailed."""
        access = await self._servers.access(database, server)
        await self._physical.finish_segment(database, access)
        await self.empty_folder(database, server.folder)

    async def fetch(self, database: Database, first: str, work: Path, add: AddWal) -> int:
        """Download the WAL files of a base backup, from `first` on, and pass each to `add`; return their number."""
        folder, _, file = first.partition("/")
        wal_files = await self._db.read(lambda tx: backups.wal_files_of(tx, database.org_id, database))
        needed = [each for each in wal_files if each.folder == folder and postgres_physical.is_needed(each.file, file)]
        for wal_file in needed:
            packed = work / f"{wal_file.file}.gz"
            await self._artifacts.fetch(database.org_id, wal_file.digest, packed)
            await add(wal_file.file, packed)
            await asyncio.to_thread(packed.unlink)
        return len(needed)

    async def _store(self, database: Database, folder: str, file: str) -> None:
        name = f"{folder}/{file}"
        work = self._servers.root(database.id) / WORK
        packed = work / f"{folder}-{file}.gz"
        await asyncio.to_thread(work.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            await self._physical.fetch_wal(database, folder, file, packed)
            owner = backups.wal_owner(database, name)
            stored = await self._artifacts.put_file(database.org_id, packed, owner=owner)
            await self._db.write(
                partial(_add_wal_file, org_id=database.org_id, database=database, name=name, stored=stored)
            )
            await self._physical.drop_wal(database, folder, file)
        finally:
            await asyncio.to_thread(packed.unlink, missing_ok=True)

    async def follow_policy(self, run: Run, job: backups.FollowPolicy) -> None:
        """Restart a server with archiving on or off; if on, request a base backup."""
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        primary = await run.read(lambda tx: primary_of(tx, job.org_id, job.database_id))
        if database is None or primary is None or database.status != DatabaseStatus.UPDATING:
            return
        why = None
        try:
            async with self.exclusive(database):
                await self._servers.stop(primary)
                await self._servers.start(database, primary)
        except (CannotStart, ServerFailed, OSError) as error:
            why = str(error)  # The reconciler tries again.
        if not backups.is_archiving(database):
            await self._clear_archive(database, primary)
        await run.write(partial(_set_running, org_id=database.org_id, database=database, why=why))

    async def _clear_archive(self, database: Database, primary: Server) -> None:
        for name in await self._physical.archived(database, primary.folder):
            await self._physical.drop_wal(database, primary.folder, name)


@across_organizations("one machine archives the logs of everybody's servers")
def _archiving(tx: Tx) -> list[Database]:
    return [each for each in tx.all(backup_tables.ARCHIVING) if each.machine_id == tx.env.machine.id]


def _add_wal_file(tx: Tx, org_id: int, database: Database, name: str, stored: Artifact) -> None:
    # An existing row has the same content: a previous attempt stored the file and did not delete it from the folder.
    tx.find(
        backup_tables.ADD_WAL_FILE,
        org_id=org_id,
        database_id=database.id,
        name=name,
        digest=stored.digest,
        size=stored.size,
        stored_at=tx.now,
    )


def _set_running(tx: Tx, org_id: int, database: Database, why: str | None) -> None:
    with contextlib.suppress(IllegalMove):  # It is being deleted.
        move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=why)
        if backups.is_archiving(database):
            backups.request(tx, org_id, database, backups.BY_SCHEDULE)


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: backups.FollowPolicy) -> None:
    """Move the database back to `running`; the reconciler restarts its server."""
    database = service.find_by_id(tx, job.org_id, job.database_id)
    if database is not None and database.status == DatabaseStatus.UPDATING:
        move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=backups.PLATFORM_ERROR)
