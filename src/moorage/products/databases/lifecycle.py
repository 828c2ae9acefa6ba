"""Jobs that create, change and delete databases.

Every step is safe to repeat: a job whose process died runs again from its beginning and skips completed steps. A
failure ends in a final state with a reason, never in an intermediate one.
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
from moorage.products.databases import linking, service
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
from moorage.runtime.database_servers.ports import Credentials, NotInstalled, ServerFailed
from moorage.runtime.database_servers.software.catalog import Choice
from moorage.runtime.engines.ports import CannotStart

UNFINISHED = (DatabaseStatus.PENDING, DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING)
PLATFORM_ERROR = "an error of the platform; the operator's log says more"
STOP_GRACE_S = 30.0
RETRY_MS = 5_000  # between attempts to create or delete a database whose engine refuses it for now
Listener = Callable[[Tx, int, Database], None]


class Lifecycle:
    def __init__(self, servers: Servers, replicator: Replicator, wake: Callable[[], None]) -> None:
        self._servers = servers
        self._replicator = replicator
        self._wake = wake  # starts a round of the reconciler
        self.on_running: list[Listener] = []  # called in the transaction in which a database first runs
        self.on_deleted: list[Listener] = []  # called in the transaction that moves it to the trash

    # Creating.

    async def create(self, run: Run, job: CreateDatabase) -> None:
        database = await run.write(partial(_begin_create, org_id=job.org_id, database_id=job.database_id))
        if database is None:
            return
        try:
            await self._bring_up(run, database)
        except (CannotStart, ServerFailed, NotInstalled, OSError) as error:
            if self._servers.host.has_agents and not isinstance(error, NotInstalled):
                # The engine starts it when the cause is gone, such as a quota that is used up.
                again = partial(_create_later, org_id=database.org_id, job=job, why=str(error))
                await run.write(again)
                return
            await self._stop_all(run, database)
            await run.write(partial(_fail, org_id=database.org_id, database_id=database.id, why=str(error)))

    async def _bring_up(self, run: Run, database: Database) -> None:
        choice = self._choose(database)
        software = await self._servers.catalog.ensure(choice)
        if software.name != database.software:
            set_software = partial(service.set_column, database=database, name="software", value=software.name)
            await run.write(lambda tx: set_software(tx, database.org_id))
            database = await self._read(run, database)
        primary = await run.write(partial(_ensure_primary, org_id=database.org_id, database=database))
        await self._servers.start(database, primary, new=software)
        version = await self._provision(database, primary)
        if database.is_replicated:
            await self._replicator.seed(database)
        await self._servers.limit(database, primary)
        await run.write(
            partial(self._set_running, org_id=database.org_id, database=database, choice=choice, version=version)
        )
        self._wake()

    def _choose(self, database: Database) -> Choice:
        catalog = self._servers.catalog
        return catalog.choose(database.engine, database.version, self._servers.substitution)

    async def _provision(self, database: Database, primary: Server) -> str:
        """Create the user and the database; return the version that the server reports."""
        kind, software = self._servers.kind(database), self._servers.software(database)
        access = await self._servers.access(database, primary)
        secrets = await self._servers.secrets(database)
        replica = secrets.replica if database.is_replicated else None

        def provision() -> str:
            kind.set_admin_password(software, access)
            kind.provision(access, secrets.credentials, replica)
            return kind.version(access)

        return await asyncio.to_thread(provision)

    def _set_running(self, tx: Tx, org_id: int, database: Database, choice: Choice, version: str) -> None:
        move(
            tx,
            DATABASE,
            database,
            to=DatabaseStatus.RUNNING,
            status_reason=None,
            engine_version=version,
            engine_exact=choice.is_exact,
            engine_note=choice.note,
            running_since=tx.now,
        )
        running = service.get_by_id(tx, org_id, database.id)
        linking.restart(tx, org_id, running)
        for listener in self.on_running:
            listener(tx, org_id, running)

    # Changing.

    async def change_tier(self, run: Run, job: ChangeTier) -> None:
        database = await self._updating(run, job)
        if database is None:
            return
        try:
            await self._restart_with(run, database, job.after)
            await run.write(partial(_set_running_again, org_id=job.org_id, database_id=job.database_id, why=None))
        except (CannotStart, ServerFailed, OSError) as error:
            why = f"it could not be started with the tier {job.after}, and keeps {job.before}: {error}"
            await self._return_to(run, database, job.before, why)
        self._wake()

    async def _restart_with(self, run: Run, database: Database, tier: str) -> None:
        async with self._replicator.exclusive(database):
            await self._stop_all(run, database)
            await run.write(lambda tx: service.set_column(tx, database.org_id, database, "instance_type", tier))
            await self._start_all(run, await self._read(run, database))

    async def _return_to(self, run: Run, database: Database, tier: str, why: str) -> None:
        try:
            await self._restart_with(run, database, tier)
        except (CannotStart, ServerFailed, OSError) as error:
            await run.write(partial(_fail, org_id=database.org_id, database_id=database.id, why=str(error)))
            return
        await run.write(partial(_set_running_again, org_id=database.org_id, database_id=database.id, why=why))

    async def _start_all(self, run: Run, database: Database) -> None:
        """Start the primary, then its replica."""
        for server in sorted(await self._read_servers(run, database), key=lambda each: each.role != "primary"):
            if server.role != FENCED:
                await self._servers.start(database, server)

    async def _stop_all(self, run: Run, database: Database) -> None:
        """Stop every server of a database, the primary last."""
        for server in sorted(await self._read_servers(run, database), key=lambda each: each.role == "primary"):
            await self._servers.stop(server, STOP_GRACE_S)

    async def rotate_password(self, run: Run, job: RotatePassword) -> None:
        database = await self._updating(run, job)
        if database is None:
            return
        try:
            await self._set_password(run, database)
            await run.write(partial(_store_password, org_id=job.org_id, database=database))
            why = None
        except (CannotStart, ServerFailed, OSError) as error:
            why = f"the password could not be changed: {error}"
        await run.write(partial(_set_running_again, org_id=job.org_id, database_id=job.database_id, why=why))

    async def _set_password(self, run: Run, database: Database) -> None:
        primary = await run.read(lambda tx: primary_of(tx, database.org_id, database.id))
        new = await run.read(lambda tx: vault.find(tx, database.org_id, database.resource, NEXT_PASSWORD))
        if primary is None or new is None:
            return
        access = await self._servers.access(database, primary)
        credentials = Credentials(database.username, new, database.db_name)
        await asyncio.to_thread(self._servers.kind(database).set_password, access, credentials)

    # Deleting.

    async def delete(self, run: Run, job: DeleteDatabase) -> None:
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        if database is None or database.deleted_at is not None:
            return
        with contextlib.suppress(ServerFailed, OSError):
            await self._end_sessions(run, database)
        try:
            async with self._replicator.exclusive(database):
                await self._stop_all(run, database)
            await self._servers.host.trash.put(database)
        except CannotStart as error:
            await run.write(partial(_delete_later, org_id=database.org_id, job=job, why=str(error)))
            return
        await run.write(partial(self._set_deleted, org_id=database.org_id, database=database))

    async def _end_sessions(self, run: Run, database: Database) -> None:
        primary = await run.read(lambda tx: primary_of(tx, database.org_id, database.id))
        if primary is not None and primary.key in self._servers.engine.states():
            access = await self._servers.access(database, primary)
            await asyncio.to_thread(self._servers.kind(database).end_sessions, access)

    def _set_deleted(self, tx: Tx, org_id: int, database: Database) -> None:
        for server in servers_of(tx, org_id, database.id):
            if server.role != "primary":
                forget_server(tx, org_id, server)
        linking.unlink(tx, org_id, database)
        service.set_column(tx, org_id, database, "deleted_at", tx.now)
        for listener in self.on_deleted:
            listener(tx, org_id, database)

    # Reading.

    async def _updating(self, run: Run, job: Any) -> Database | None:
        """Return the database of a job; None if it is no longer `updating`."""
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        return database if database is not None and database.status == DatabaseStatus.UPDATING else None

    async def _read_servers(self, run: Run, database: Database) -> list[Server]:
        return await run.read(lambda tx: servers_of(tx, database.org_id, database.id))

    async def _read(self, run: Run, database: Database) -> Database:
        return await run.read(lambda tx: service.get_by_id(tx, database.org_id, database.id))


def register(handlers: Handlers, lifecycle: Lifecycle) -> None:
    jobs: list[tuple[type[Any], Callable[[Run, Any], Awaitable[None]]]] = [
        (CreateDatabase, lifecycle.create),
        (ChangeTier, lifecycle.change_tier),
        (RotatePassword, lifecycle.rotate_password),
        (DeleteDatabase, lifecycle.delete),
    ]
    for payload, handler in jobs:
        handlers.add(payload, handler, on_failure=None if payload is DeleteDatabase else _give_up)


def _begin_create(tx: Tx, org_id: int, database_id: int) -> Database | None:
    database = service.find_by_id(tx, org_id, database_id)
    if database is None or database.status not in UNFINISHED:
        return None
    for status in UNFINISHED[UNFINISHED.index(DatabaseStatus(database.status)) + 1 :]:
        move(tx, DATABASE, database, to=status)
    return service.get_by_id(tx, org_id, database_id)


def _ensure_primary(tx: Tx, org_id: int, database: Database) -> Server:
    return primary_of(tx, org_id, database.id) or add_server(tx, org_id, database.id, "primary", "s1", database.port)


def _create_later(tx: Tx, org_id: int, job: CreateDatabase, why: str) -> None:
    """Say why a new database waits, and try again; these attempts are not limited."""
    database = service.find_by_id(tx, org_id, job.database_id)
    if database is not None and database.status in UNFINISHED:
        service.set_column(tx, org_id, database, "status_reason", why)
        service.add_job(tx, org_id, database, job, delay_ms=RETRY_MS)


def _delete_later(tx: Tx, org_id: int, job: DeleteDatabase, why: str) -> None:
    database = service.find_by_id(tx, org_id, job.database_id)
    if database is not None:
        service.set_column(tx, org_id, database, "status_reason", why)
        service.add_job(tx, org_id, database, job, delay_ms=RETRY_MS)


def _fail(tx: Tx, org_id: int, database_id: int, why: str) -> None:
    database = service.find_by_id(tx, org_id, database_id)
    if database is not None:
        with contextlib.suppress(IllegalMove):  # It is being deleted.
            move(tx, DATABASE, database, to=DatabaseStatus.FAILED, status_reason=why)


def _set_running_again(tx: Tx, org_id: int, database_id: int, why: str | None) -> None:
    database = service.get_by_id(tx, org_id, database_id)
    if not database.tier.paid:
        for name, value in (("backup", False), ("backups_to_keep", None)):
            service.set_column(tx, org_id, database, name, value)
        backups.plan(tx, org_id, service.get_by_id(tx, org_id, database_id))
    with contextlib.suppress(IllegalMove):
        move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=why)


def _store_password(tx: Tx, org_id: int, database: Database) -> None:
    new = vault.find(tx, org_id, database.resource, NEXT_PASSWORD)
    if new is None:
        return
    vault.put(tx, org_id, database.resource, PASSWORD, new)
    vault.remove(tx, org_id, database.resource, NEXT_PASSWORD)
    linking.update_secret(tx, org_id, database)
    linking.restart(tx, org_id, database)


@across_organizations("the job names the organization")
def _give_up(tx: Tx, job: CreateDatabase | ChangeTier | RotatePassword) -> None:
    _fail(tx, job.org_id, job.database_id, PLATFORM_ERROR)
