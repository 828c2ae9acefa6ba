"""Bringing an earlier state of a database back, without ever being without one.

What is restored comes up in a folder of its own, beside the one that serves, and takes its place only when it is known
to be whole. Until then nothing happens to the live server, whatever goes wrong. Every step can be repeated: a folder
that is ready says for which job, and the row of the server says on which folder it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets as random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit import folders
from moorage.core.worker.run import Run
from moorage.errors import IllegalMove, NotFound
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.archiving import Archiver, Resting
from moorage.products.databases.backups.jobs import FAILURES, BackupMaker, Workplace, read_note, sentence, set_aside
from moorage.products.databases.backups.service import RestoreDatabase
from moorage.products.databases.servers import MB_OF_GB, Servers, next_folder, primary_of, set_server
from moorage.products.databases.states import DATABASE, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database, Server
from moorage.runtime.database_servers import copying, tools
from moorage.runtime.database_servers.ports import (
    DATA,
    SCRATCH_PORT,
    Access,
    Recovery,
    ServerFailed,
    ServerOptions,
    Software,
)
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical
from moorage.runtime.engines.ports import CannotStart

STOP_S = 1.0  # What the live server has not written down by then it would read from its log; clients wait meanwhile.
NOTE = "restore.json"
LOST = "what is stored of the backup is gone"
LEAST_CPU = 1.0

Hook = Callable[[Database], Awaitable[None]]


class Rebuilder:
    """Makes a folder that holds the state of a backup, and proves it with a server that nobody else can reach."""

    def __init__(self, servers: Servers, artifacts: ArtifactStore, archiver: Archiver) -> None:
        self._servers = servers
        self._artifacts = artifacts
        self._archiver = archiver

    async def build(self, found: Database, backup: Backup, target_ms: int | None, folder: str) -> None:
        """Make the folder, whatever is there of it already; raises one of FAILURES, and leaves nothing then."""
        await self._servers.end_scratch(found, self._servers.place(found.id, folder))
        try:
            async with Workplace(self._servers, found, folder) as work:
                await self._fetch(found, backup, work / "backup")
                if backup.method == backups.PHYSICAL:
                    await self._recover(found, backup, work / "backup", target_ms, folder)
                else:
                    await self._load(found, backup, work / "backup", folder)
        except FAILURES:
            place = self._servers.place(found.id, folder)
            for left in (place, _half(place)):
                await asyncio.to_thread(folders.remove, left)
            raise

    async def _fetch(self, found: Database, backup: Backup, target: Path) -> None:
        if backup.digest is None or backup.total_size is None:
            raise ServerFailed(LOST)
        await self._artifacts.check_room(backup.total_size + max(found.disk_bytes, backup.total_size))
        try:
            await self._artifacts.fetch(found.org_id, backup.digest, target)
        except NotFound:
            raise ServerFailed(LOST) from None

    async def _load(self, found: Database, backup: Backup, dump: Path, folder: str) -> None:
        kind, software = self._servers.kind(found), self._servers.software(found)
        tables = await tools.in_thread(kind.check, software, dump)
        if tables != backup.entries:
            raise ServerFailed(f"it should have {backup.entries} tables, and has {tables}")
        await asyncio.to_thread(self._servers.make_folder, found, software, folder)
        place = self._servers.place(found.id, folder)
        async with self._servers.scratch(found, place, scratch_options(found)) as access:
            await self._settle_in(found, software, access)
            names = (await self._servers.secrets(found)).names
            await tools.in_thread(kind.load, software, access, names, dump)
            loaded = await tools.in_thread(kind.count_rows, access, names)
            if len(loaded) != tables:
                raise ServerFailed(f"of {tables} tables {len(loaded)} are there after loading it")

    async def _recover(self, found: Database, backup: Backup, packed: Path, target_ms: int | None, folder: str) -> None:
        kind, software = self._servers.kind(found), self._servers.software(found)
        if backup.software != software.name or backup.first_wal is None:
            raise ServerFailed(f"it is of {backup.software}, and the database runs on {software.name}")
        place = self._servers.place(found.id, folder)
        half = _half(place)
        await asyncio.to_thread(_make_empty, half)
        await tools.in_thread(postgres_physical.unpack, packed, half)
        if target_ms is not None:
            await self._archiver.fetch(found, backup.first_wal, half / postgres_physical.WAL)
        await asyncio.to_thread(self._servers.seal, found.id, half)
        await tools.in_thread(postgres_physical.verify, software, half / DATA)
        await asyncio.to_thread(_put_in_place, half, place)
        shape = replace(scratch_options(found), recovery=Recovery(target_ms))
        async with self._servers.scratch(found, place, shape) as access:
            await self._settle_in(found, software, access)
            names = (await self._servers.secrets(found)).names
            await asyncio.to_thread(kind.set_read_only, access, names, False)
            await tools.in_thread(kind.count_rows, access, names)
        await asyncio.to_thread(folders.remove, place / postgres_physical.WAL)

    async def _settle_in(self, found: Database, software: Software, access: Access) -> None:
        """Let the passwords count that count now."""
        kind, secrets = self._servers.kind(found), await self._servers.secrets(found)
        await asyncio.to_thread(kind.set_admin_password, software, access)
        replica = secrets.replica if found.is_replicated else None
        await asyncio.to_thread(kind.provision, access, secrets.names, replica)


def _make_empty(folder: Path) -> None:
    folders.remove(folder)
    folder.mkdir(mode=0o700)


def _put_in_place(half: Path, place: Path) -> None:
    folders.remove(place)
    half.rename(place)


def _half(place: Path) -> Path:
    """Return where a folder is made before it is whole."""
    return place.with_name(f".{place.name}.new")


def scratch_options(found: Database) -> ServerOptions:
    """Return how a server is configured that only the platform reaches.

    It has the memory of the database's tier: a recovery wants at least the settings under which the log was written.
    """
    return ServerOptions(
        port=SCRATCH_PORT,
        memory_mb=int(found.tier.memory * MB_OF_GB),
        cpu=max(found.tier.cpu, LEAST_CPU),
        is_open=False,
    )


@dataclass(frozen=True, slots=True)
class Ready:
    """A folder that is whole, and the one that it replaces."""

    folder: str
    replaces: str


class Restorer:
    def __init__(self, servers: Servers, maker: BackupMaker, rebuilder: Rebuilder, archiver: Archiver) -> None:
        self._servers = servers
        self._maker = maker
        self._rebuilder = rebuilder
        self._archiver = archiver
        self.before_switch: list[Hook] = []  # told of a database that is about to run on another folder
        self.after_switch: list[Hook] = []  # told of a database that runs on another folder from now on
        self.resting: Resting = contextlib.nullcontext  # keeps everybody else from its servers meanwhile

    async def handle(self, run: Run, job: RestoreDatabase) -> None:
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        if found is None or found.status != DatabaseStatus.UPDATING:
            return
        try:
            ready = await self._ready(run, found, backup, job.target_ms)
            for hook in self.before_switch:
                await hook(found)
            async with self.resting(found):
                await self._switch(run, found, ready)
        except FAILURES as error:
            name = backup.name if backup else "The backup"
            why = f"{name} was not restored, the database is as it was: {sentence(error)}"
            await run.write(partial(_set_running, org_id=found.org_id, found=found, why=why))
            return
        told = await self._after(run, found, ready)
        await run.write(partial(_finish, org_id=found.org_id, found=found, backup=backup, why=told))

    async def _ready(self, run: Run, found: Database, backup: Backup | None, target_ms: int | None) -> Ready:
        """Return the folder to switch to, made unless an attempt before has."""
        root = self._servers.root(found.id)
        ready = await asyncio.to_thread(_find_ready, root, run.job.id)
        if ready is not None:
            return ready
        primary = await run.read(lambda tx: primary_of(tx, found.org_id, found.id))
        if backup is None or primary is None:
            raise ServerFailed(LOST)
        await self._keep_safe(run, found)
        if target_ms is not None and backups.is_archiving(found):
            # Where this fails the moment may still be in what is stored; if it is not, the recovery says so.
            with contextlib.suppress(ServerFailed):
                await self._archiver.settle(found, primary)
        building = self._building(found, run)
        await self._rebuilder.build(found, backup, target_ms, building.name)
        return await asyncio.to_thread(_set_ready, root, building, run.job.id, primary.folder)

    def _building(self, found: Database, run: Run) -> Path:
        return self._servers.place(found.id, f"restore-{run.job.id}")

    async def _keep_safe(self, run: Run, found: Database) -> None:
        """Make a backup of what is about to be replaced; the first attempt's is as good as any."""
        name = f"{found.name}-before-restore-{run.job.id}"
        safety = await run.write(partial(_ensure_safety, org_id=found.org_id, found=found, name=name))
        if safety.status == BackupStatus.COMPLETED:
            return
        try:
            await self._maker.make(run, found, safety)
        except FAILURES as error:
            why = sentence(error)
            await run.write(partial(backups.fail, org_id=found.org_id, backup_id=safety.id, why=why))
            raise ServerFailed(f"the backup that is made before could not be: {why}") from error

    async def _switch(self, run: Run, found: Database, ready: Ready) -> None:
        """Let the server run on the new folder. Where it does not start there, it goes back to the one before."""
        server = await self._point_to(run, found, ready.folder)
        try:
            # An attempt before may have come as far as the row only, so what runs may be on either folder.
            await self._servers.stop(server, STOP_S)
            await self._servers.start(found, server)
        except (CannotStart, ServerFailed, OSError) as error:
            back = await self._point_to(run, found, ready.replaces)
            await self._servers.stop(back, STOP_S)
            await asyncio.to_thread(folders.remove, self._servers.place(found.id, ready.folder))
            with contextlib.suppress(CannotStart, ServerFailed, OSError):
                # Where this fails too, whoever keeps running databases running tries again.
                await self._servers.start(found, back)
            raise ServerFailed(f"its server does not start on what was restored: {error}") from error

    async def _point_to(self, run: Run, found: Database, folder: str) -> Server:
        return await run.write(partial(_set_folder, org_id=found.org_id, found=found, folder=folder))

    async def _after(self, run: Run, found: Database, ready: Ready) -> str | None:
        """See to what depended on the folder that was replaced; return what a user should know."""
        now = run.db.env.clock.now()
        await asyncio.to_thread(set_aside, self._servers.place(found.id, ready.replaces), now)
        try:
            if backups.is_archiving(found):
                await self._archiver.empty_folder(found, ready.replaces)
            for hook in self.after_switch:
                await hook(found)
        except FAILURES as error:
            return f"it was restored, but: {sentence(error)}"
        return None


@across_organizations("the job names the organization")
def give_up(tx: Tx, job: RestoreDatabase) -> None:
    """End a restore that was tried too often. Whatever folder the server's row names is the one that counts."""
    found = service.find_by_id(tx, job.org_id, job.database_id)
    if found is None:
        return
    for each in backups.all_of(tx, job.org_id, found):
        if each.cause == backups.FOR_SAFETY:
            backups.fail(tx, job.org_id, each.id, backups.GAVE_UP)
    if found.status == DatabaseStatus.UPDATING:
        _set_running(tx, job.org_id, found, f"A restore was given up: {backups.GAVE_UP}")


def _ensure_safety(tx: Tx, org_id: int, found: Database, name: str) -> Backup:
    there = tx.find(backup_tables.FIND_BY_NAME, org_id=org_id, database_id=found.id, name=name)
    return there or backups.add(tx, org_id, found, backups.FOR_SAFETY, backups.LOGICAL, name)


def _set_folder(tx: Tx, org_id: int, found: Database, folder: str) -> Server:
    """Let the row of the server name a folder. What runs on another one is nobody's from then on."""
    primary = primary_of(tx, org_id, found.id)
    if primary is None:
        raise ServerFailed("the database has no server")
    if primary.folder != folder:
        set_server(tx, org_id, primary, "folder", folder)
        set_server(tx, org_id, primary, "token", random.token_hex(24))
    changed = primary_of(tx, org_id, found.id)
    assert changed is not None
    return changed


def _set_running(tx: Tx, org_id: int, found: Database, why: str | None) -> None:
    with contextlib.suppress(IllegalMove):  # It is being deleted meanwhile.
        move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=why and why[: backups.SHOWN_REASON])


def _finish(tx: Tx, org_id: int, found: Database, backup: Backup | None, why: str | None) -> None:
    _set_running(tx, org_id, found, why)
    # Whoever watches the disk looks anew at what is there now.
    service.set_column(tx, org_id, found, "is_full", False)
    name = backup.name if backup else None
    audit.record(tx, org_id, THE_PLATFORM, "database.restored", service.target_of(found), backup=name)
    if backups.is_archiving(found):
        # The log of another folder begins; without a copy of it no moment after this one could be brought back.
        backups.request(tx, org_id, found, backups.BY_SCHEDULE)


def _find_ready(root: Path, job_id: int) -> Ready | None:
    for note in root.glob(f"s*/{NOTE}"):
        told = read_note(note.parent, NOTE) or {}
        if told.get("job") == job_id and (root / str(told["replaces"])).is_dir():
            return Ready(note.parent.name, str(told["replaces"]))
    return None


def _set_ready(root: Path, building: Path, job_id: int, replaces: str) -> Ready:
    """Say for which job a folder is whole, and give it the name that it keeps."""
    copying.put(building, NOTE, json.dumps({"job": job_id, "replaces": replaces}), is_kept=True)
    ready = Ready(next_folder(root), replaces)
    building.rename(root / ready.folder)
    return ready
