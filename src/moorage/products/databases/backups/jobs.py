"""Making backups, and the chores around them.

A job whose process died is run again from its beginning. Whatever an attempt left on the disk goes first, and what it
left in the artifact store belongs to the same backup, so nothing is kept twice.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from moorage.core import jobs
from moorage.core.artifacts.objects import ArtifactDamaged, ArtifactsUnavailable
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.jobs.timetable import Tick
from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.errors import QuotaExceeded, RetryLater
from moorage.products.databases import service, tables
from moorage.products.databases.backups import archiving
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.archiving import WORK, Archiver
from moorage.products.databases.backups.service import FollowPolicy, Made, MakeBackup, RestoreDatabase
from moorage.products.databases.servers import Servers, primary_of, servers_of
from moorage.products.databases.states import BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Backup, Database, Server
from moorage.runtime.database_servers import copying, tools
from moorage.runtime.database_servers.ports import DATA, ServerFailed
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical
from moorage.runtime.engines.ports import CannotStart

DRILLS, SWEEP = "database.drills", "database.sweep"
CHANGING_S = 20.0  # until a backup is tried again of a database that is being changed
AWAY_S = 60.0  # until it is where the artifact store cannot be reached
LEFT_MS = 2 * DAY_MS  # Beyond that, what is half made is nobody's any more.
KEPT_MS = DAY_MS  # for which the folder stays that a restore has replaced
SUPERSEDED = "superseded.json"
MOST_OF_A_NOTE = 4096
# What ends a backup, a drill or a restore with a sentence; anything else is an error of the platform.
FAILURES = (ServerFailed, CannotStart, QuotaExceeded, ArtifactDamaged, ArtifactsUnavailable, OSError)


class RunDrills(msgspec.Struct, frozen=True, tag="databases.drills"):
    """Have the newest backup of every database restored that was not proved yet."""


class DrillBackup(msgspec.Struct, frozen=True, tag="databases.drill"):
    """Restore a backup where nobody sees it, to prove that it can be."""

    org_id: int
    database_id: int
    backup_id: int


class SweepBackups(msgspec.Struct, frozen=True, tag="databases.sweep_backups"):
    """Let go of backups, and of replaced folders, whose time is over."""


class BackupMaker:
    def __init__(self, servers: Servers, artifacts: ArtifactStore) -> None:
        self._servers = servers
        self._artifacts = artifacts

    async def handle(self, run: Run, job: MakeBackup) -> None:
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        if backup is None or found is None or backup.status != BackupStatus.RUNNING:
            return
        if found.status == DatabaseStatus.UPDATING and run.attempt < run.job.max_attempts:
            raise RetryLater(after_s=CHANGING_S * run.attempt, why="the database is being changed")
        try:
            _check_running(found)
            await self.make(run, found, backup)
        except ArtifactsUnavailable as error:
            raise RetryLater(after_s=AWAY_S, why=f"the artifact store: {error}") from error
        except FAILURES as error:
            await run.write(partial(backups.fail, org_id=job.org_id, backup_id=backup.id, why=sentence(error)))

    async def make(self, run: Run, found: Database, backup: Backup) -> None:
        """Make a backup, store it, and say that it is complete; raises one of FAILURES. Safe to repeat."""
        primary = await run.read(lambda tx: primary_of(tx, found.org_id, found.id))
        if primary is None or found.deleted_at is not None:
            raise ServerFailed("the database has no server")
        async with self.workplace(found, f"b{backup.id}") as work:
            await self._check_room(found, primary)
            file = work / "backup"
            entries, first = await self._write(found, backup, primary, file)
            if (size := (await asyncio.to_thread(file.stat)).st_size) == 0:
                raise ServerFailed("nothing was written")
            stored = await self._artifacts.put_file(found.org_id, file, owner=backups.owner_of(backup))
        made = Made(stored.digest, size, entries, first)
        await run.write(partial(backups.complete, org_id=found.org_id, backup_id=backup.id, made=made))

    def workplace(self, found: Database, name: str) -> Workplace:
        return Workplace(self._servers, found, name)

    async def _check_room(self, found: Database, primary: Server) -> None:
        """Refuse what would fill the disk: a backup is written, and stored, before the first of the two goes."""
        data = self._servers.place(found.id, primary.folder) / DATA
        used = await asyncio.to_thread(folders.used_bytes, data)
        await self._artifacts.check_room(2 * used)

    async def _write(self, found: Database, backup: Backup, primary: Server, file: Path) -> tuple[int, str | None]:
        kind, software = self._servers.kind(found), self._servers.software(found)
        access = await self._servers.access(found, primary)
        if backup.method == backups.PHYSICAL:
            work = file.parent / "copy"
            await asyncio.to_thread(work.mkdir, mode=0o700)
            await asyncio.to_thread(self._servers.own, found.id, work)
            entries, first = await tools.in_thread(postgres_physical.copy, software, access, work, file)
            return entries, f"{primary.folder}/{first}"
        names = (await self._servers.secrets(found)).names
        await tools.in_thread(kind.dump, software, access, names, file)
        return await tools.in_thread(kind.check, software, file), None


class Workplace:
    """A folder for one piece of work on a database, empty at its beginning and gone at its end.

    It is the platform's own: no tool, which is another user, can put anything in the place of what is in it.
    """

    def __init__(self, servers: Servers, found: Database, name: str) -> None:
        self._path = servers.root(found.id) / WORK / name

    async def __aenter__(self) -> Path:
        await asyncio.to_thread(self._make)
        return self._path

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(folders.remove, self._path)

    def _make(self) -> None:
        folders.remove(self._path)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._path.mkdir(mode=0o700)


def sentence(error: BaseException) -> str:
    """Say what went wrong, for whoever looks at a backup."""
    if isinstance(error, ArtifactDamaged):
        return "what was stored cannot be read back as it was"
    if isinstance(error, ArtifactsUnavailable):
        return "the artifact store cannot be reached"
    if isinstance(error, OSError):
        return f"the disk of the platform: {error.strerror or error}"
    return str(error)


def _check_running(found: Database) -> None:
    if found.status != DatabaseStatus.RUNNING:
        raise ServerFailed(f"the database is {found.status}")


# Chores.


@dataclass(frozen=True)
class Parts:
    """What works on backups beside the requests."""

    servers: Servers
    maker: BackupMaker
    archiver: Archiver
    restore: Callable[[Run, RestoreDatabase], Awaitable[None]]
    give_up_restore: Callable[[Tx, RestoreDatabase], None]
    drill: Callable[[Run, DrillBackup], Awaitable[None]]


def register(handlers: Handlers, parts: Parts) -> None:
    async def sweep(run: Run, _: SweepBackups) -> None:
        for found in await run.read(_with_backups):
            await run.write(partial(backups.prune, org_id=found.org_id, found=found))
        await remove_superseded(run, parts.servers)

    handlers.add(MakeBackup, parts.maker.handle, on_failure=backups.give_up)
    handlers.add(RestoreDatabase, parts.restore, on_failure=parts.give_up_restore)
    handlers.add(FollowPolicy, parts.archiver.follow_policy, on_failure=archiving.give_up)
    handlers.add(DrillBackup, parts.drill)
    handlers.maintain(DRILLS, "23 4 * * *", RunDrills(), plan_drills, lane=Lane.BACKUPS)
    handlers.maintain(SWEEP, "51 * * * *", SweepBackups(), sweep, lane=Lane.BACKUPS)
    handlers.ticks[backups.KIND] = _on_backup_tick


@across_organizations("a tick names its organization")
def _on_backup_tick(tx: Tx, tick: Tick) -> None:
    backups.on_tick(tx, tick.org_id, int(tick.ref))


@across_organizations("the backups of all databases are looked after")
def _with_backups(tx: Tx) -> list[Database]:
    return tx.all(backup_tables.WITH_BACKUPS)


@across_organizations("the backups of all databases are proved")
def plan_drills(tx: Tx, _: RunDrills) -> None:
    """Ask for a drill of the newest backup of every database that runs, unless it was proved before."""
    for found in tx.all(backup_tables.WITH_BACKUPS):
        completed = [each for each in backups.all_of(tx, found.org_id, found) if each.status == BackupStatus.COMPLETED]
        if found.status == DatabaseStatus.RUNNING and completed and completed[0].verified_at is None:
            job = DrillBackup(found.org_id, found.id, completed[0].id)
            jobs.add(tx, job, key=backups.job_key(found), lane=Lane.BACKUPS)


def set_aside(folder: Path, now: int) -> None:
    """Say in a folder since when nothing runs on it. Safe to repeat."""
    if folder.is_dir() and read_note(folder, SUPERSEDED) is None:
        copying.put(folder, SUPERSEDED, json.dumps({"at": now}), is_kept=True)


def read_note(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what a note says, None where there is none. The folder is a server's own, so nothing in it is trusted."""
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            told = json.loads(file.read(MOST_OF_A_NOTE))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


async def remove_superseded(run: Run, servers: Servers) -> None:
    """Remove the folders that a restore has replaced, once it is unlikely that anybody wants them back."""
    before = run.db.env.clock.trusted_now() - KEPT_MS
    for found in await run.read(_everything):
        used = {each.folder for each in await run.read(partial(servers_of, org_id=found.org_id, database_id=found.id))}
        for folder in await asyncio.to_thread(set_aside_before, servers.root(found.id), before):
            if folder.name not in used:
                await asyncio.to_thread(folders.remove, folder)
        for left in await asyncio.to_thread(leftovers, servers.root(found.id), before - LEFT_MS):
            await asyncio.to_thread(folders.remove, left)


@across_organizations("one machine has the folders of everybody's databases")
def _everything(tx: Tx) -> list[Database]:
    return tx.all(tables.EVERY)


def set_aside_before(root: Path, before: int) -> list[Path]:
    """Return the folders of a database on which nothing has run since a moment."""
    found = []
    for note in root.glob(f"s*/{SUPERSEDED}"):
        at = (read_note(note.parent, SUPERSEDED) or {}).get("at")
        if isinstance(at, int) and at <= before:
            found.append(note.parent)
    return found


def leftovers(root: Path, before: int) -> list[Path]:
    """Return what work on a database left behind whose process died for good."""
    patterns = (f"{WORK}/*", "restore-*", "drill-*", ".restore-*.new", ".drill-*.new")
    return [path for each in patterns for path in root.glob(each) if path.lstat().st_mtime * 1000 < before]
