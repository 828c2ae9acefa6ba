"""The pieces of a server's log, from the folder in which the server leaves them to the artifact store.

A piece is stored under the name of the folder that it is of: servers that began as copies of one template do not know
themselves apart. It is taken from the server's folder only once its row is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Run
from moorage.errors import IllegalMove
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.servers import Servers, primary_of, servers_of
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import ARCHIVE, ServerFailed
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical
from moorage.runtime.engines.ports import CannotStart

ROUND_S = 30.0
WORK = "backups-tmp"  # beside the folders of a database's servers

Resting = Callable[[Database], AbstractAsyncContextManager[Any]]


class Archiver:
    def __init__(self, db: Store, servers: Servers, artifacts: ArtifactStore, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._artifacts = artifacts
        self._telemetry = telemetry
        self.resting: Resting = contextlib.nullcontext  # keeps everybody else from the servers of a database
        self._turns: dict[int, asyncio.Lock] = {}  # by database: a piece is stored by one at a time

    async def run(self) -> None:
        """Empty the archives of all servers again and again, until cancelled."""
        while True:
            for found in await self._db.read(_archiving):
                try:
                    await self.empty(found)
                except Exception as error:  # noqa: BLE001 - the loop outlives what one database meets
                    self._telemetry.crashed(None, error, where="archiver")
            await asyncio.sleep(ROUND_S)

    async def empty(self, found: Database) -> int:
        """Store everything that waits in the archives of a database; return how many pieces that were."""
        servers = await self._db.read(lambda tx: servers_of(tx, found.org_id, found.id))
        return sum([await self.empty_folder(found, each.folder) for each in servers])

    async def empty_folder(self, found: Database, folder: str) -> int:
        """Store what waits in the archive of one folder. Safe to repeat, and to be stopped anywhere."""
        archive = self._servers.place(found.id, folder) / ARCHIVE
        async with self._turns.setdefault(found.id, asyncio.Lock()):
            pieces = await asyncio.to_thread(postgres_physical.archived_files, archive)
            for name in pieces:
                await self._store(found, folder, name)
        return len(pieces)

    async def settle(self, found: Database, server: Server) -> None:
        """Return once everything that the server has acknowledged is stored; raises ServerFailed."""
        access = await self._servers.access(found, server)
        name = await asyncio.to_thread(postgres_physical.switch_wal, access)
        await asyncio.to_thread(postgres_physical.wait_until_archived, access, name)
        await self.empty_folder(found, server.folder)

    async def fetch(self, found: Database, first: str, target: Path) -> int:
        """Put the pieces that lead on from a copy into a folder; return how many they are. `first` is its first one."""
        folder, _, file = first.partition("/")
        pieces = await self._db.read(lambda tx: backups.pieces_of(tx, found.org_id, found))
        wanted = [each for each in pieces if each.folder == folder and postgres_physical.is_needed(each.file, file)]
        for piece in wanted:
            packed = target / f".{piece.file}.gz"
            await self._artifacts.fetch(found.org_id, piece.digest, packed)
            await asyncio.to_thread(postgres_physical.decompress_wal, packed, target / piece.file)
            packed.unlink()
        return len(wanted)

    async def _store(self, found: Database, folder: str, file: str) -> None:
        archive, name = self._servers.place(found.id, folder) / ARCHIVE, f"{folder}/{file}"
        work = self._servers.root(found.id) / WORK
        packed = work / f"{folder}-{file}.gz"
        await asyncio.to_thread(work.mkdir, mode=0o700, exist_ok=True)
        try:
            await asyncio.to_thread(postgres_physical.compress_wal, archive, file, packed)
            owner = backups.piece_owner(found, name)
            stored = await self._artifacts.put_file(found.org_id, packed, owner=owner)
            await self._db.write(partial(_add_piece, org_id=found.org_id, found=found, name=name, stored=stored))
            await asyncio.to_thread(postgres_physical.drop_wal, archive, file)
        finally:
            await asyncio.to_thread(packed.unlink, missing_ok=True)

    async def follow_policy(self, run: Run, job: backups.FollowPolicy) -> None:
        """Start a server again, so that it archives its log or stops to; begin with a backup where it does."""
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        primary = await run.read(lambda tx: primary_of(tx, job.org_id, job.database_id))
        if found is None or primary is None or found.status != DatabaseStatus.UPDATING:
            return
        why = None
        try:
            async with self.resting(found):
                await self._servers.stop(primary)
                await self._servers.start(found, primary)
        except (CannotStart, ServerFailed, OSError) as error:
            why = str(error)  # Whoever keeps running databases running tries again.
        if not backups.is_archiving(found):
            await self._forget_waiting(found, primary)
        await run.write(partial(_set_running, org_id=found.org_id, found=found, why=why))

    async def _forget_waiting(self, found: Database, primary: Server) -> None:
        """Let go of what waits to be stored: without a policy nobody asks for it."""
        archive = self._servers.place(found.id, primary.folder) / ARCHIVE
        for name in await asyncio.to_thread(postgres_physical.archived_files, archive):
            await asyncio.to_thread(postgres_physical.drop_wal, archive, name)


@across_organizations("one machine archives the logs of everybody's servers")
def _archiving(tx: Tx) -> list[Database]:
    return tx.all(backup_tables.ARCHIVING)


def _add_piece(tx: Tx, org_id: int, found: Database, name: str, stored: Artifact) -> None:
    # A name comes twice only where its content is the same: it was stored, and not yet taken from the folder.
    tx.find(
        backup_tables.ADD_PIECE,
        org_id=org_id,
        database_id=found.id,
        name=name,
        digest=stored.digest,
        size=stored.size,
        stored_at=tx.now,
    )


def _set_running(tx: Tx, org_id: int, found: Database, why: str | None) -> None:
    with contextlib.suppress(IllegalMove):  # It is being deleted meanwhile.
        move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=why)
        if backups.is_archiving(found):
            backups.request(tx, org_id, found, backups.BY_SCHEDULE)


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: backups.FollowPolicy) -> None:
    """Let a database be running whose server was to be started again; whoever keeps it running sees to the rest."""
    found = service.find_by_id(tx, job.org_id, job.database_id)
    if found is not None and found.status == DatabaseStatus.UPDATING:
        move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=backups.GAVE_UP)
