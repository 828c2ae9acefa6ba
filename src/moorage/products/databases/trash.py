"""Trash of deleted databases: the operator can restore them for some days."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import Conflict, NotFound, RetryLater
from moorage.products.databases import linking, service, tables
from moorage.products.databases.servers import Servers, forget_server, primary_of, servers_of
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.engines.ports import CannotStart

RETRY_S = 30.0  # while the engine does not answer
Remover = Callable[[Tx, int, int], None]
Listener = Callable[[Tx, int, Database], None]


class UndeleteDatabase(msgspec.Struct, frozen=True, tag="databases.undelete"):
    """Restore a database from the trash and start it."""

    org_id: int
    database_id: int


class Trash:
    def __init__(self, servers: Servers, wake: Callable[[], None]) -> None:
        self._servers = servers
        self._wake = wake
        self.on_purge: list[Remover] = []  # called in the transaction that deletes a database for good
        self.on_return: list[Listener] = []  # called in the transaction that restores one from the trash

    async def empty(self, run: Run) -> None:
        """Delete databases after the retention of the trash."""
        settings = run.db.env.settings
        before = run.db.env.clock.trusted_now() - settings.trash_days * DAY_MS
        for database in await run.read(_in_trash):
            if database.deleted_at is not None and database.deleted_at <= before:
                await self._servers.host.trash.purge(database)
                await run.write(partial(self._purge, org_id=database.org_id, database=database))

    def _purge(self, tx: Tx, org_id: int, database: Database) -> None:
        for remove in self.on_purge:
            remove(tx, org_id, database.id)
        for server in servers_of(tx, org_id, database.id):
            forget_server(tx, org_id, server)
        vault.remove_all(tx, org_id, database.resource)
        tx.run(tables.DELETE, org_id=org_id, id=database.id)

    async def undelete(self, run: Run, job: UndeleteDatabase) -> None:
        database = await run.read(lambda tx: service.get_by_id(tx, job.org_id, job.database_id))
        try:
            await self._servers.host.trash.take_back(database)
        except CannotStart as error:
            raise RetryLater(after_s=RETRY_S, why=str(error)) from error
        await run.write(partial(self._set_running, org_id=job.org_id, database_id=job.database_id))
        self._wake()

    def _set_running(self, tx: Tx, org_id: int, database_id: int) -> None:
        database = service.get_by_id(tx, org_id, database_id)
        if database.status != DatabaseStatus.STOPPED:
            return
        move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=None)
        linking.update_secret(tx, org_id, database)
        linking.restart(tx, org_id, database)
        for listener in self.on_return:
            listener(tx, org_id, database)

    def register(self, handlers: Handlers) -> None:
        handlers.add(UndeleteDatabase, self.undelete)


@across_organizations("a machine has the trash of all organizations")
def _in_trash(tx: Tx) -> list[Database]:
    return tx.all(tables.IN_TRASH, machine_id=tx.env.machine.id)


def undelete(tx: Tx, org_id: int, database_id: int) -> Database:
    """Request the restore of a database from the trash; raises NotFound and Conflict."""
    database = service.get_by_id(tx, org_id, database_id)
    if database.deleted_at is None:
        raise Conflict("The database is not in the trash")
    if service.find(tx, org_id, database.name) is not None:
        raise Conflict(f"The organization has another database named {database.name!r} by now; delete that one first")
    if primary_of(tx, org_id, database.id) is None:
        raise NotFound("The database has never run, so the trash has no data of it")
    service.set_column(tx, org_id, database, "deleted_at", None)
    move(tx, DATABASE, database, to=DatabaseStatus.STOPPED, status_reason="it comes back from the trash")
    service.add_job(tx, org_id, database, UndeleteDatabase(org_id, database.id))
    return service.get_by_id(tx, org_id, database.id)
