"""WAL archiving of a real server: stored once per folder, deleted when unneeded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, yard_of
from tests.products.databases.support import Team

from moorage.app import App
from moorage.core.artifacts import service as artifacts
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.errors import NotFound
from moorage.products.databases import service
from moorage.products.databases.backups import archiving
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups import tables as backup_tables
from moorage.products.databases.backups.archiving import Archiver
from moorage.products.databases.backups.service import FollowPolicy, StoredBackup
from moorage.products.databases.backups.tables import WalFile
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical

pytestmark = pytest.mark.anyio

ON_SQLITE = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


@pytest.fixture
def archiver(app: App) -> Archiver:
    return app.products.databases.archiver


async def pieces(db: Store, found: Database) -> list[WalFile]:
    return await db.read(lambda tx: backups.wal_files_of(tx, found.org_id, found))


async def archived(yard: Yard) -> Database:
    """Create a database with physical backups."""
    await yard.make()
    await yard.policy(enabled=True, method="physical")
    await yard.run_jobs()
    found = await yard.team.row()
    assert (found.status, found.status_reason) == ("running", None)
    return found


@asynccontextmanager
async def running(archiver: Archiver) -> AsyncIterator[None]:
    """Run the rounds of the archiver for the duration of the block."""
    task = asyncio.create_task(archiver.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_stored(db: Store, found: Database, name: str) -> None:
    while name not in {piece.name for piece in await pieces(db, found)}:
        await asyncio.sleep(0.01)


def waiting(yard: Yard, found: Database) -> list[str]:
    return postgres_physical.archived_files(yard.servers.folder(found.id, "s1") / "archive")


@ON_SQLITE
async def test_everything_that_was_acknowledged_is_stored_once_asked_for(
    yard: Yard, archiver: Archiver, db: Store, tmp_path: Path
) -> None:
    found = await archived(yard)
    await yard.ask("CREATE TABLE ships (n int)")
    access = await yard.servers.access(found, await yard.primary())

    await archiver.flush(found, await yard.primary())

    stored = await pieces(db, found)
    last = await asyncio.to_thread(postgres_physical.switch_wal, access)
    added: list[tuple[str, int]] = []

    async def add(name: str, packed: Path) -> None:
        postgres_physical.decompress_wal(packed, tmp_path / "whole")
        added.append((name, (tmp_path / "whole").stat().st_size))

    fetched = await archiver.fetch(found, "s1/000000010000000000000000", tmp_path, add)
    assert stored
    assert {piece.folder for piece in stored} == {"s1"}
    assert max(piece.file for piece in stored if len(piece.file) == 24) < last
    assert set(waiting(yard, found)) <= {last}
    assert sorted(name for name, _ in added) == sorted(piece.file for piece in stored)
    assert {size for name, size in added if len(name) == 24} == {16 << 20}
    assert list(tmp_path.glob("*.gz")) == []
    assert fetched == len(stored)


@pytest.mark.deep
@ON_SQLITE
async def test_what_waits_is_taken_again_and_again(
    yard: Yard, archiver: Archiver, db: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "ROUND_INTERVAL_S", 0.01)
    found = await archived(yard)
    access = await yard.servers.access(found, await yard.primary())

    async with running(archiver):
        name = await asyncio.to_thread(postgres_physical.switch_wal, access)
        await until_stored(db, found, f"s1/{name}")

    assert name not in waiting(yard, found)


@ON_SQLITE
async def test_what_waits_stays_while_the_database_is_changed(
    yard: Yard, archiver: Archiver, db: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "ROUND_INTERVAL_S", 0.01)
    found = await archived(yard)
    before = await pieces(db, found)
    archive = yard.servers.folder(found.id, "s1") / "archive"
    (archive / "0000000100000000000000FF").write_bytes(b"log")
    await db.write(lambda tx: move(tx, DATABASE, found, to=DatabaseStatus.UPDATING))
    changed = await yard.team.row()

    async with running(archiver):
        await asyncio.sleep(0.3)
        during = await pieces(db, found)
        await db.write(lambda tx: move(tx, DATABASE, changed, to=DatabaseStatus.RUNNING))
        await until_stored(db, found, "s1/0000000100000000000000FF")

    assert during == before


@pytest.mark.deep
@ON_SQLITE
async def test_a_server_that_no_longer_archives_leaves_nothing_waiting(yard: Yard) -> None:
    found = await archived(yard)

    await yard.policy(method="logical")
    await yard.run_jobs()
    await yard.ask("CREATE TABLE ships (n int)")

    assert (await yard.team.read())["status"] == "running"
    assert waiting(yard, found) == []


async def test_a_piece_that_was_stored_before_a_crash_is_stored_once(
    team: Team, app: App, archiver: Archiver, db: Store
) -> None:
    await team.create()
    found = await team.set_running()
    archive = app.products.databases.servers.folder(found.id, "s1") / "archive"
    archive.mkdir(parents=True)
    for _ in range(2):
        (archive / "000000010000000000000001").write_bytes(b"log")
        await archiver.empty(found)

    [piece] = await pieces(db, found)

    assert piece.name == "s1/000000010000000000000001"
    assert os.listdir(archive) == []


async def add_piece(team: Team, app: App, found: Database, name: str, folder: Path) -> str:
    (folder / "piece").write_text(name)
    stored = await app.artifacts.put_file(team.org_id, folder / "piece", owner=backups.wal_owner(found, name))

    def unit(tx: Tx) -> None:
        values = {"org_id": team.org_id, "database_id": found.id, "name": name, "digest": stored.digest}
        tx.find(backup_tables.ADD_WAL_FILE, size=1, stored_at=tx.now, **values)

    await team.db.write(unit)
    return stored.digest


@pytest.mark.deep
async def test_pieces_go_that_no_backup_needs(
    team: Team, app: App, db: Store, clock: ManualClock, tmp_path: Path
) -> None:
    await team.create(backup="enabled")
    found = await team.set_running()
    digests = {
        name: await add_piece(team, app, found, name, tmp_path)
        for name in ("s0/000000010000000000000009", "s1/000000010000000000000004", "s1/000000010000000000000005",
                     "s1/000000010000000000000006")
    }  # fmt: skip

    def unit(tx: Tx) -> None:
        for first in ("s1/000000010000000000000004", "s1/000000010000000000000005"):
            made = backups.add(tx, team.org_id, found, "schedule", "physical")
            backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, first))
        service.set_column(tx, team.org_id, found, "backups_to_keep", 1)

    await db.write(unit)
    clock.advance(DAY_MS)
    await db.write(lambda tx: backups.prune(tx, team.org_id, service.get_by_id(tx, team.org_id, found.id)))

    kept = [piece.name for piece in await pieces(db, found)]
    assert kept == ["s1/000000010000000000000005", "s1/000000010000000000000006"]
    for name in set(digests) - set(kept):
        with pytest.raises(NotFound):
            await db.read(partial(artifacts.get, org_id=team.org_id, digest=digests[name]))


async def test_pieces_stay_while_a_backup_is_made(team: Team, app: App, db: Store, tmp_path: Path) -> None:
    await team.create(backup="enabled")
    found = await team.set_running()
    await add_piece(team, app, found, "s1/000000010000000000000005", tmp_path)

    def unit(tx: Tx) -> None:
        backups.add(tx, team.org_id, found, "schedule", "physical")
        backups.prune(tx, team.org_id, found)

    await db.write(unit)

    assert [piece.file for piece in await pieces(db, found)] == ["000000010000000000000005"]


async def test_a_server_that_could_not_be_started_again_for_its_policy_leaves_a_running_database(
    team: Team, db: Store
) -> None:
    await team.create()
    found = await team.set_running()
    await db.write(lambda tx: service.begin_update(tx, team.org_id, found))

    await db.write(lambda tx: archiving.give_up(tx, FollowPolicy(team.org_id, found.id)))

    read = await team.read()
    assert (read["status"], read["statusReason"]) == ("running", backups.PLATFORM_ERROR)
