"""The job that moves a database: a dump of a copy of its folder, loaded into a new server of the cluster.

The folder of the machine is only read. Until the data is loaded, the new server has no user of the database, so no app
writes to it. Every step is safe to repeat: the dump is a backup, and a marker names the folder with the loaded data.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit import folders
from moorage.core.worker.run import Handlers, Run
from moorage.products.databases import linking, service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.jobs import FAILURES, WorkFolder, error_message
from moorage.products.databases.backups.restoring import Rebuilder, Restorer, scratch_options
from moorage.products.databases.backups.service import StoredBackup
from moorage.products.databases.moving.service import MoveDatabase
from moorage.products.databases.servers import Servers, primary_of
from moorage.products.databases.states import DATABASE, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database, Server
from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.ports import RUN, NotInstalled, ServerFailed
from moorage.runtime.database_servers.server_folders import Restored
from moorage.settings import Substitution

COPY = "moving"  # folder with the copy from which a database is dumped
MARK = 0  # number in the marker of the loaded folder, which for restores is that of their job
RETRY_MS = 15_000
MOVING = "its data is moved to the cluster"


class Mover:
    def __init__(
        self, servers: Servers, local: Servers, artifacts: ArtifactStore, rebuilder: Rebuilder, restorer: Restorer
    ) -> None:
        self._servers = servers
        self._local = local  # servers on folders of this machine
        self._artifacts = artifacts
        self._rebuilder = rebuilder
        self._restorer = restorer

    async def adopt(self) -> None:
        """End database servers of this machine that a dead job or the platform before its move left running."""
        await self._local.engine.adopt({})

    async def handle(self, run: Run, job: MoveDatabase) -> None:
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        if database is None or database.status != DatabaseStatus.UPDATING:
            return
        try:
            await self._move(run, database)
        except (*FAILURES, NotInstalled) as error:
            why = f"{MOVING}, and this is tried again; the data in the folder of its machine is as it was: "
            await run.write(partial(_later, org_id=job.org_id, job=job, why=f"{why}{error_message(error)}"))
        else:
            await run.write(partial(_finish, org_id=job.org_id, database_id=database.id))

    async def _move(self, run: Run, database: Database) -> None:
        primary = await run.read(lambda tx: primary_of(tx, database.org_id, database.id))
        if primary is None:
            raise ServerFailed("it has no server")
        backup = await run.write(partial(_ensure_backup, org_id=database.org_id, database=database, primary=primary))
        if backup.status != BackupStatus.COMPLETED:
            await self._dump(run, database, primary, backup)
            backup = await run.read(lambda tx: backups.get(tx, database.org_id, backup.id))
        database = await self._start(run, database, primary)
        restored = await self._load(run, database, primary, backup)
        await self._restorer.switch(run, database, restored)

    async def _dump(self, run: Run, database: Database, primary: Server, backup: Backup) -> None:
        """Store a dump of the folder of this machine as a backup."""
        local, copy = self._local, self._local.folder(database.id, COPY)
        await self._say(run, database, "copying its folder")
        found = replace(database, software=self._find_software(database))
        local.check_folder(found, primary.folder)
        source = local.folder(database.id, primary.folder)
        used = await asyncio.to_thread(folders.used_bytes, source)
        await self._artifacts.check_room(3 * used)  # for the copy, the dump and its stored copy
        await local.end_scratch(database, copy)
        await asyncio.to_thread(folders.remove, copy)
        try:
            await asyncio.to_thread(_copy, source, copy)
            await asyncio.to_thread(local.own, database.id, copy)
            await self._say(run, database, "dumping it")
            await self._dump_copy(run, found, copy, backup)
        finally:
            await asyncio.to_thread(folders.remove, copy)

    async def _dump_copy(self, run: Run, database: Database, copy: Path, backup: Backup) -> None:
        local = self._local
        kind, software = local.kind(database), local.software(database)
        credentials = (await local.secrets(database)).credentials
        async with WorkFolder(local, database, f"b{backup.id}") as work:
            file = work / "backup"
            async with local.scratch(database, copy, scratch_options(database)) as access:
                await tools.in_thread(kind.dump, software, access, credentials, file)
            entries = await tools.in_thread(kind.check, software, file)
            size = (await asyncio.to_thread(file.stat)).st_size
            artifact = await self._artifacts.put_file(database.org_id, file, owner=backups.owner_of(backup))
        stored = StoredBackup(artifact.digest, size, entries, None)
        await run.write(partial(backups.complete, org_id=database.org_id, backup_id=backup.id, stored=stored))

    def _find_software(self, database: Database) -> str:
        """Return the installed software for the folder: the same, or another release of its major version."""
        catalog = self._local.catalog
        if catalog.find(database.software or "") is not None:
            return database.software or ""
        choice = catalog.choose(database.engine, database.version, Substitution.MINOR)
        if choice.software is None:
            raise NotInstalled(f"{database.software} is not installed on this machine")
        return choice.software.name

    async def _start(self, run: Run, database: Database, primary: Server) -> Database:
        """Start the server in the cluster, with an empty folder and without a user; return the changed row."""
        await self._say(run, database, "starting its server")
        catalog = self._servers.catalog
        choice = catalog.choose(database.engine, database.version, self._servers.substitution)
        software = await catalog.ensure(choice)
        agents = self._servers.agents
        assert agents is not None
        if database.software != software.name:
            await run.write(_setter(database, [("software", software.name)]))
        database = replace(database, software=software.name)
        await self._servers.start(database, primary, new=software if database.host is None else None)
        host = agents.host_name(database.org_id, database.workload)
        await run.write(_setter(database, [("host", host)]))
        return replace(database, host=host)

    async def _load(self, run: Run, database: Database, primary: Server, backup: Backup) -> Restored:
        host = self._servers.host
        await self._servers.access(database, primary)
        restored = await host.folders.find_restored(database, MARK)
        if restored is not None:
            return restored
        await self._say(run, database, "loading it")
        building = f"restore-{run.job.id}"
        await self._rebuilder.build(database, backup, None, building)
        return await host.folders.finish_restored(database, building, MARK, primary.folder)

    async def _say(self, run: Run, database: Database, step: str) -> None:
        await run.write(_setter(database, [("status_reason", f"{MOVING}: {step}")]))


def register(handlers: Handlers, mover: Mover) -> None:
    handlers.add(MoveDatabase, mover.handle, on_failure=give_up)


def _setter(database: Database, values: Iterable[tuple[str, str]]) -> Callable[[Tx], None]:
    def change(tx: Tx) -> None:
        for name, value in values:
            service.set_column(tx, database.org_id, database, name, value)

    return change


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a stopped server, without its sockets."""
    top = str(source)
    shutil.copytree(source, target, symlinks=True, ignore=lambda path, _: {RUN} if path == top else set())
    (target / RUN).mkdir(mode=0o700)


def _ensure_backup(tx: Tx, org_id: int, database: Database, primary: Server) -> Backup:
    name = f"{database.name}-moved-{primary.id}"
    found = tx.find(backup_tables.FIND_BY_NAME, org_id=org_id, database_id=database.id, name=name)
    return found or backups.add(tx, org_id, database, backups.FOR_SAFETY, backups.LOGICAL, name)


def _later(tx: Tx, org_id: int, job: MoveDatabase, why: str) -> None:
    """Say why a move waits, and try again; these attempts are not limited."""
    database = service.find_by_id(tx, org_id, job.database_id)
    if database is not None and database.status == DatabaseStatus.UPDATING:
        service.set_column(tx, org_id, database, "status_reason", why[: backups.MAX_REASON_CHARS])
        service.add_job(tx, org_id, database, job, delay_ms=RETRY_MS)


def _finish(tx: Tx, org_id: int, database_id: int) -> None:
    database = service.find_by_id(tx, org_id, database_id)
    if database is None or database.status != DatabaseStatus.UPDATING:
        return
    move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=None, running_since=tx.now)
    moved = service.get_by_id(tx, org_id, database_id)
    linking.update_secret(tx, org_id, moved)
    linking.restart(tx, org_id, moved)
    audit.record(tx, org_id, THE_PLATFORM, "database.moved", service.target_of(moved))
    if backups.is_archiving(moved):
        # Point-in-time recovery in the cluster needs a base backup of its server.
        backups.request(tx, org_id, moved, backups.BY_SCHEDULE)


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: MoveDatabase) -> None:
    """Try again after an error of the platform, too: the data is in the folder of the machine only."""
    _later(tx, job.org_id, job, f"{MOVING}, and this is tried again: {backups.PLATFORM_ERROR}")
