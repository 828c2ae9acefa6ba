"""Restores of real servers: credentials stay, and a failure changes nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import update
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, die_at, yard_of
from tests.products.databases.support import Team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.query import Command
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, ManualClock, to_wire
from moorage.products.databases import service
from moorage.products.databases.backups import jobs as backup_jobs
from moorage.products.databases.backups import restoring
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.restoring import Restorer
from moorage.products.databases.backups.service import RestoreDatabase, StoredBackup
from moorage.products.databases.tables import Backup, Database
from moorage.products.databases.tables import backup as backup_table

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

TABLES = ("CREATE TABLE ships (n int)", "INSERT INTO ships VALUES (1), (2), (3)")
SHIPS = "SELECT n FROM ships ORDER BY n"


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


def restorer_of(app: App) -> Restorer:
    handler = app.products.databases.backups.restore
    found = getattr(handler, "__self__", None)
    assert isinstance(found, Restorer)
    return found


async def process(yard: Yard) -> int | None:
    """Return the process of the database's server."""
    state = await yard.servers.engine.look((await yard.primary()).key)
    assert state is not None
    return int(state.app_pid)


async def put_backup(yard: Yard, found: Database, content: bytes, folder: Path, entries: int = 1) -> Backup:
    """Store a file as a completed backup."""
    made = await yard.team.db.write(lambda tx: backups.add(tx, found.org_id, found, "user", "logical"))
    (folder / "content").write_bytes(content)
    stored = await yard.app.artifacts.put_file(found.org_id, folder / "content", owner=backups.owner_of(made))

    def complete(tx: Tx) -> Backup:
        backups.complete(tx, found.org_id, made.id, StoredBackup(stored.digest, stored.size, entries, None))
        return backups.get(tx, found.org_id, made.id)

    return await yard.team.db.write(complete)


async def content_of(yard: Yard, row: Backup, folder: Path) -> bytes:
    assert row.digest is not None
    await yard.app.artifacts.fetch(row.org_id, row.digest, folder / "stored")
    return (folder / "stored").read_bytes()


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])
async def test_a_restore_brings_back_what_was_and_keeps_the_password_of_now(yard: Yard, kind: str) -> None:
    await yard.make(kind)
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    before = await yard.password()
    await yard.team.post("/orders/rotate-password", Role.ADMIN)
    await yard.run_jobs()
    await yard.ask("DELETE FROM ships WHERE n > 1", "CREATE TABLE mistakes (n int)")
    yard.clock.advance(MINUTE_MS)

    asked = await yard.restore(backup["name"])
    await yard.run_jobs()

    read = await yard.team.read()
    assert asked.data == {"ok": True}
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.password() != before
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]
    await yard.ask("INSERT INTO ships VALUES (4)", "CREATE TABLE mistakes (n int)")


@pytest.mark.deep
async def test_what_was_there_before_a_restore_is_kept_twice(yard: Yard, app: App) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    await yard.ask("INSERT INTO ships VALUES (4)")
    yard.clock.advance(MINUTE_MS)
    await yard.restore(backup["name"])
    await yard.run_jobs()
    kept = await yard.folders()

    safety = next(item for item in await yard.items() if item["cause"] == "safety")
    await yard.restore(safety["name"])
    await yard.run_jobs()

    assert kept == ["s1", "s2"]
    assert (safety["status"], safety["method"]) == ("completed", "logical")
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,), (4,)]
    assert (await yard.primary()).folder == "s3"


@pytest.mark.deep
async def test_a_replaced_folder_goes_after_a_day(yard: Yard, app: App) -> None:
    await yard.make()
    backup = await yard.back_up()
    yard.clock.advance(MINUTE_MS)
    await yard.restore(backup["name"])
    await yard.run_jobs()
    tick = Tick(backup_jobs.SWEEP, 0, "", 0)

    for wait in (DAY_MS - 1, 2):
        yard.clock.advance(wait)
        await yard.team.db.write(lambda tx: app.handlers.ticks[backup_jobs.SWEEP](tx, tick))
        await yard.run_jobs()
        if wait > 2:
            assert await yard.folders() == ["s1", "s2"]

    assert await yard.folders() == ["s2"]
    assert await yard.ask("SELECT 1") == [(1,)]


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])
async def test_a_dump_that_was_cut_short_leaves_everything_as_it_was(yard: Yard, kind: str, tmp_path: Path) -> None:
    found = await yard.make(kind)
    await yard.ask(*TABLES)
    await yard.back_up()
    [good] = await yard.rows()
    whole = await content_of(yard, good, tmp_path)
    yard.clock.advance(MINUTE_MS)
    broken = await put_backup(yard, found, whole[: len(whole) * 2 // 3], tmp_path)
    running = await process(yard)

    await yard.restore(broken.name)
    await yard.run_jobs()

    read = await yard.team.read()
    assert read["status"] == "running"
    assert f"{broken.name} was not restored" in read["statusReason"]
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]
    assert await process(yard) == running
    assert await yard.folders() == ["s1"]


@pytest.mark.deep
async def test_a_dump_with_another_number_of_tables_is_not_taken(yard: Yard, tmp_path: Path) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    await yard.back_up()
    [good] = await yard.rows()
    yard.clock.advance(MINUTE_MS)
    other = await put_backup(yard, found, await content_of(yard, good, tmp_path), tmp_path, entries=2)

    await yard.restore(other.name)
    await yard.run_jobs()

    assert "it should have 2 tables, and has 1" in (await yard.team.read())["statusReason"]


@pytest.mark.deep
async def test_a_restore_without_room_for_what_is_there_now_is_not_begun(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    work = yard.servers.root(found.id) / "backups-tmp"
    work.rmdir()
    work.write_text("in the way")
    yard.clock.advance(MINUTE_MS)

    await yard.restore(backup["name"])
    await yard.run_jobs()

    read = await yard.team.read()
    assert read["status"] == "running"
    assert "the safety backup of the current data failed" in read["statusReason"]
    newest, _ = await yard.items()
    assert (newest["cause"], newest["status"]) == ("safety", "failed")
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]


async def test_a_server_that_does_not_start_on_what_was_restored_goes_back(yard: Yard, app: App) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    await yard.ask("INSERT INTO ships VALUES (4)")
    yard.clock.advance(MINUTE_MS)

    async def break_it(_: Database) -> None:
        (yard.servers.folder(found.id, "s2") / "data" / "global" / "pg_control").unlink()

    restorer_of(app).before_switch.append(break_it)
    await yard.restore(backup["name"])
    await yard.run_jobs()

    read = await yard.team.read()
    assert read["status"] == "running"
    assert "does not start on the restored data" in read["statusReason"]
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,), (4,)]
    assert await yard.folders() == ["s1"]


# The platform is killed during a restore.


@pytest.mark.parametrize("when", ["before_switch", pytest.param("after_switch", marks=pytest.mark.twin)])
async def test_a_restore_goes_on_where_the_platform_died(yard: Yard, app: App, when: str) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    await yard.ask("DELETE FROM ships")
    yard.clock.advance(MINUTE_MS)
    hooks = getattr(restorer_of(app), when)
    reached = asyncio.Event()
    seen: list[object] = []

    async def wait_forever(_: Database) -> None:
        seen.append(await yard.ask("SELECT count(*) FROM ships"))
        reached.set()
        await asyncio.Event().wait()

    hooks.append(wait_forever)
    await yard.restore(backup["name"])
    await die_at(yard, reached.wait)
    between = (await yard.team.read())["status"]
    hooks.remove(wait_forever)
    await yard.run_jobs()

    read = await yard.team.read()
    assert seen == [[(0 if when == "before_switch" else 3,)]]  # Until the switch the database serves as it was.
    assert between == "updating"
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]
    assert [item["status"] for item in await yard.items()] == ["completed", "completed"]
    assert await yard.folders() == ["s1", "s2"]


@pytest.mark.deep
async def test_a_restore_goes_on_where_the_platform_died_between_the_row_and_the_server(
    yard: Yard, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    await yard.ask("DELETE FROM ships")
    yard.clock.advance(MINUTE_MS)
    reached = asyncio.Event()

    async def wait_forever(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(yard.servers, "stop", wait_forever)
        await yard.restore(backup["name"])
        await die_at(yard, reached.wait)
    between = (await yard.primary()).folder
    await yard.run_jobs()

    assert between == "s2"
    assert (await yard.team.read())["status"] == "running"
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]


@pytest.mark.deep
async def test_a_restore_goes_on_where_the_platform_died_during_the_first_backup(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    backup = await yard.back_up()
    yard.clock.advance(MINUTE_MS)
    url = f"postgresql://{found.username}:{await yard.password()}@127.0.0.1:{found.port}/{found.db_name}"

    async def dumping() -> None:
        work = yard.servers.root(found.id) / "backups-tmp"
        while not any(work.glob("b*/backup")):
            await asyncio.sleep(0.01)

    with psycopg.connect(url) as session:
        session.execute("LOCK TABLE ships IN ACCESS EXCLUSIVE MODE")
        await yard.restore(backup["name"])
        await die_at(yard, dumping)
    await yard.run_jobs()

    assert (await yard.team.read())["status"] == "running"
    assert [(item["cause"], item["status"]) for item in await yard.items()] == [
        ("safety", "completed"),
        ("user", "completed"),
    ]


async def test_a_restore_that_was_tried_too_often_leaves_a_running_database(team: Team, db: Store) -> None:
    await team.create()
    found = await team.set_running()

    def unit(tx: Tx) -> None:
        made = backups.add(tx, team.org_id, found, "user", "logical")
        backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, None))
        backups.add(tx, team.org_id, found, backups.FOR_SAFETY, "logical")
        service.begin_update(tx, team.org_id, found)
        restoring.give_up(tx, RestoreDatabase(team.org_id, found.id, made.id, None))

    await db.write(unit)

    read = await team.read()
    rows = await db.read(lambda tx: backups.all_of(tx, team.org_id, found))
    assert read["status"] == "running"
    assert "given up" in read["statusReason"]
    assert [row.status for row in rows] == ["failed", "completed"]


# Point-in-time recovery.


@pytest.mark.deep
async def test_any_moment_after_a_physical_backup_can_be_brought_back(yard: Yard) -> None:
    yard.clock.now_ms = time.time_ns() // 1_000_000
    await yard.make()
    await yard.ask(*TABLES)
    await yard.policy(enabled=True, method="physical")
    await yard.run_jobs()
    [base] = await yard.items()
    await yard.ask("INSERT INTO ships VALUES (4)")
    await asyncio.sleep(0.1)
    moment = time.time_ns() // 1_000_000
    await asyncio.sleep(0.1)
    await yard.ask("DROP TABLE ships")
    yard.clock.now_ms = time.time_ns() // 1_000_000

    asked = await yard.restore(base["name"], targetTime=to_wire(moment))
    await yard.run_jobs()

    read = await yard.team.read()
    rows = await yard.rows()
    assert asked.status == 200, asked.body
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,), (4,)]
    newest = next(row for row in rows if row.method == "physical")
    assert (newest.status, (newest.first_wal or "")[:3]) == ("completed", "s2/")
    await yard.ask("INSERT INTO ships VALUES (5)")


@pytest.mark.deep
async def test_a_physical_backup_brings_the_state_of_its_end_back(yard: Yard) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    await yard.policy(enabled=True, method="physical")
    await yard.run_jobs()
    [base] = await yard.items()
    await yard.ask("DROP TABLE ships")
    await yard.team.post("/orders/rotate-password", Role.ADMIN)
    yard.clock.advance(MINUTE_MS)
    await yard.run_jobs()

    await yard.restore(base["name"])
    await yard.run_jobs()

    read = await yard.team.read()
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]
    assert os.listdir(yard.servers.folder((await yard.team.row()).id, "s2") / "data" / "pg_wal") != []


async def test_a_physical_backup_of_a_release_that_was_replaced_is_restored_with_the_later_one(yard: Yard) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    await yard.policy(enabled=True, method="physical")
    await yard.run_jobs()
    [base] = await yard.items()
    earlier = Command(update(backup_table).values(software="postgresql-16.4"))
    await yard.team.db.write(lambda tx: tx.run(earlier))
    await yard.ask("DROP TABLE ships")

    await yard.restore(base["name"])
    await yard.run_jobs()

    read = await yard.team.read()
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.ask(SHIPS) == [(1,), (2,), (3,)]
