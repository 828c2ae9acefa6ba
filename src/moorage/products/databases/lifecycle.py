"""What becomes of a database: made, given another tier or password, deleted.

Each is a job, and each step of it can be repeated: a job whose process died is run again from its beginning, finds
what is done already, and goes on. What cannot be done ends in a state that says so, never in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import IllegalMove
from moorage.products.databases import linking, service, trash
from moorage.products.databases.backups import service as backups
from moorage.products.databases.replication.tables import FENCED
from moorage.products.databases.replication.watcher import Replicator
from moorage.products.databases.servers import PASSWORD, Servers, add_server, forget_server, primary_of, servers_of
from moorage.products.databases.service import (
    NEXT_PASSWORD,
    ChangeTier,
    CreateDatabase,
    DeleteDatabase,
    RotatePassword,
)
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import IDENTITY_FILE, Credentials, NotInstalled, ServerFailed
from moorage.runtime.database_servers.software.catalog import Choice
from moorage.runtime.engines.ports import CannotStart

UNFINISHED = (DatabaseStatus.PENDING, DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING)
OURS = "an error of the platform; the operator's log says more"
STOP_S = 30.0
Listener = Callable[[Tx, int, Database], None]


class Lifecycle:
    def __init__(self, servers: Servers, replicator: Replicator, wake: Callable[[], None]) -> None:
        self._servers = servers
        self._replicator = replicator
        self._wake = wake  # has the keeper look at what should run
        self.on_running: list[Listener] = []  # told in the transaction in which a database first runs
        self.on_deleted: list[Listener] = []  # told in the transaction in which one goes to the trash

    # Making one.

    async def create(self, run: Run, job: CreateDatabase) -> None:
        found = await run.write(partial(_begin_create, org_id=job.org_id, database_id=job.database_id))
        if found is None:
            return
        try:
            await self._bring_up(run, found)
        except (CannotStart, ServerFailed, NotInstalled, OSError) as error:
            await self._stop_all(run, found)
            await run.write(partial(_fail, org_id=found.org_id, database_id=found.id, why=str(error)))

    async def _bring_up(self, run: Run, found: Database) -> None:
        choice = self._choose(found)
        software = await self._servers.shelf.ensure(choice)
        if software.name != found.software:
            set_software = partial(service.set_column, found=found, name="software", value=software.name)
            await run.write(lambda tx: set_software(tx, found.org_id))
            found = await self._read(run, found)
        primary = await run.write(partial(_ensure_primary, org_id=found.org_id, found=found))
        if not (self._servers.place(found.id, primary.folder) / IDENTITY_FILE).exists():
            await asyncio.to_thread(self._servers.make_folder, found, software, primary.folder)
        await self._servers.start(found, primary, is_new=True)
        version = await self._provision(found, primary)
        if found.is_replicated:
            await self._replicator.seed(found)
        await self._servers.limit(found, primary)
        await run.write(partial(self._set_running, org_id=found.org_id, found=found, choice=choice, version=version))
        self._wake()

    def _choose(self, found: Database) -> Choice:
        shelf = self._servers.shelf
        return shelf.choose(found.engine, found.version, self._servers.substitution)

    async def _provision(self, found: Database, primary: Server) -> str:
        """Make the user and the database, and return the server's own version."""
        kind, software = self._servers.kind(found), self._servers.software(found)
        access = await self._servers.access(found, primary)
        secrets = await self._servers.secrets(found)
        replica = secrets.replica if found.is_replicated else None

        def provision() -> str:
            kind.set_admin_password(software, access)
            kind.provision(access, secrets.names, replica)
            return kind.version(access)

        return await asyncio.to_thread(provision)

    def _set_running(self, tx: Tx, org_id: int, found: Database, choice: Choice, version: str) -> None:
        move(
            tx,
            DATABASE,
            found,
            to=DatabaseStatus.RUNNING,
            status_reason=None,
            engine_version=version,
            engine_exact=choice.is_exact,
            engine_note=choice.note,
            running_since=tx.now,
        )
        running = service.get_by_id(tx, org_id, found.id)
        linking.restart(tx, org_id, running)
        for listener in self.on_running:
            listener(tx, org_id, running)

    # Changing one.

    async def change_tier(self, run: Run, job: ChangeTier) -> None:
        found = await self._updating(run, job)
        if found is None:
            return
        try:
            await self._restart_with(run, found, job.after)
            await run.write(partial(_set_running_again, org_id=job.org_id, database_id=job.database_id, why=None))
        except (CannotStart, ServerFailed, OSError) as error:
            why = f"it could not be started with the tier {job.after}, and keeps {job.before}: {error}"
            await self._return_to(run, found, job.before, why)
        self._wake()

    async def _restart_with(self, run: Run, found: Database, tier: str) -> None:
        async with self._replicator.resting(found):
            await self._stop_all(run, found)
            await run.write(lambda tx: service.set_column(tx, found.org_id, found, "instance_type", tier))
            await self._start_all(run, await self._read(run, found))

    async def _return_to(self, run: Run, found: Database, tier: str, why: str) -> None:
        try:
            await self._restart_with(run, found, tier)
        except (CannotStart, ServerFailed, OSError) as error:
            await run.write(partial(_fail, org_id=found.org_id, database_id=found.id, why=str(error)))
            return
        await run.write(partial(_set_running_again, org_id=found.org_id, database_id=found.id, why=why))

    async def _start_all(self, run: Run, found: Database) -> None:
        """Start the primary, and then what follows it."""
        for server in sorted(await self._its_servers(run, found), key=lambda each: each.role != "primary"):
            if server.role != FENCED:
                await self._servers.start(found, server)

    async def _stop_all(self, run: Run, found: Database) -> None:
        """Stop every server of a database, the primary last."""
        for server in sorted(await self._its_servers(run, found), key=lambda each: each.role == "primary"):
            await self._servers.stop(server, STOP_S)

    async def rotate_password(self, run: Run, job: RotatePassword) -> None:
        found = await self._updating(run, job)
        if found is None:
            return
        try:
            await self._set_password(run, found)
            await run.write(partial(_take_password, org_id=job.org_id, found=found))
            why = None
        except (CannotStart, ServerFailed, OSError) as error:
            why = f"the password could not be changed: {error}"
        await run.write(partial(_set_running_again, org_id=job.org_id, database_id=job.database_id, why=why))

    async def _set_password(self, run: Run, found: Database) -> None:
        primary = await run.read(lambda tx: primary_of(tx, found.org_id, found.id))
        new = await run.read(lambda tx: vault.find(tx, found.org_id, found.resource, NEXT_PASSWORD))
        if primary is None or new is None:
            return
        access = await self._servers.access(found, primary)
        names = Credentials(found.username, new, found.db_name)
        await asyncio.to_thread(self._servers.kind(found).set_password, access, names)

    # Ending one.

    async def delete(self, run: Run, job: DeleteDatabase) -> None:
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        if found is None or found.deleted_at is not None:
            return
        with contextlib.suppress(ServerFailed, OSError):
            await self._end_sessions(run, found)
        async with self._replicator.resting(found):
            await self._stop_all(run, found)
        await asyncio.to_thread(trash.put, self._servers.root(found.id), run.db.env.settings.folder("trash"))
        await run.write(partial(self._set_deleted, org_id=found.org_id, found=found))

    async def _end_sessions(self, run: Run, found: Database) -> None:
        primary = await run.read(lambda tx: primary_of(tx, found.org_id, found.id))
        if primary is not None and primary.key in self._servers.engine.states():
            access = await self._servers.access(found, primary)
            await asyncio.to_thread(self._servers.kind(found).end_sessions, access)

    def _set_deleted(self, tx: Tx, org_id: int, found: Database) -> None:
        for server in servers_of(tx, org_id, found.id):
            if server.role != "primary":
                forget_server(tx, org_id, server)
        linking.unlink(tx, org_id, found)
        service.set_column(tx, org_id, found, "deleted_at", tx.now)
        for listener in self.on_deleted:
            listener(tx, org_id, found)

    # Reading.

    async def _updating(self, run: Run, job: Any) -> Database | None:
        """Return the database of a job, None where somebody has finished it already."""
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        return found if found is not None and found.status == DatabaseStatus.UPDATING else None

    async def _its_servers(self, run: Run, found: Database) -> list[Server]:
        return await run.read(lambda tx: servers_of(tx, found.org_id, found.id))

    async def _read(self, run: Run, found: Database) -> Database:
        return await run.read(lambda tx: service.get_by_id(tx, found.org_id, found.id))


def register(handlers: Handlers, lifecycle: Lifecycle) -> None:
    made: list[tuple[type[Any], Callable[[Run, Any], Awaitable[None]]]] = [
        (CreateDatabase, lifecycle.create),
        (ChangeTier, lifecycle.change_tier),
        (RotatePassword, lifecycle.rotate_password),
        (DeleteDatabase, lifecycle.delete),
    ]
    for payload, handler in made:
        handlers.add(payload, handler, on_failure=None if payload is DeleteDatabase else _give_up)


def _begin_create(tx: Tx, org_id: int, database_id: int) -> Database | None:
    found = service.find_by_id(tx, org_id, database_id)
    if found is None or found.status not in UNFINISHED:
        return None
    for status in UNFINISHED[UNFINISHED.index(DatabaseStatus(found.status)) + 1 :]:
        move(tx, DATABASE, found, to=status)
    return service.get_by_id(tx, org_id, database_id)


def _ensure_primary(tx: Tx, org_id: int, found: Database) -> Server:
    return primary_of(tx, org_id, found.id) or add_server(tx, org_id, found.id, "primary", "s1", found.port)


def _fail(tx: Tx, org_id: int, database_id: int, why: str) -> None:
    found = service.find_by_id(tx, org_id, database_id)
    if found is not None:
        with contextlib.suppress(IllegalMove):  # It is being deleted meanwhile.
            move(tx, DATABASE, found, to=DatabaseStatus.FAILED, status_reason=why)


def _set_running_again(tx: Tx, org_id: int, database_id: int, why: str | None) -> None:
    found = service.get_by_id(tx, org_id, database_id)
    if not found.tier.paid:
        for name, value in (("backup", False), ("backups_to_keep", None)):
            service.set_column(tx, org_id, found, name, value)
        backups.plan(tx, org_id, service.get_by_id(tx, org_id, database_id))
    with contextlib.suppress(IllegalMove):
        move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=why)


def _take_password(tx: Tx, org_id: int, found: Database) -> None:
    new = vault.find(tx, org_id, found.resource, NEXT_PASSWORD)
    if new is None:
        return
    vault.put(tx, org_id, found.resource, PASSWORD, new)
    vault.remove(tx, org_id, found.resource, NEXT_PASSWORD)
    linking.tell(tx, org_id, found)
    linking.restart(tx, org_id, found)


@across_organizations("the job names the organization")
def _give_up(tx: Tx, job: CreateDatabase | ChangeTier | RotatePassword) -> None:
    _fail(tx, job.org_id, job.database_id, OURS)
