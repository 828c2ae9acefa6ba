"""Backups of real servers: checks, failures with a reason, retention."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, yard_of
from tests.products.databases.support import Team

from moorage.app import App
from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, timetable
from moorage.core.jobs import tables as job_tables
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.errors import NotFound
from moorage.products.databases import service
from moorage.products.databases.backups import jobs as backup_jobs
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.service import MakeBackup, StoredBackup
from moorage.products.databases.tables import Backup, Database
from moorage.runtime.database_servers import server_folders
from moorage.runtime.sandbox.usage import process_tree

pytestmark = pytest.mark.anyio

ON_SQLITE = pytest.mark.parametrize("db", ["sqlite"], indirect=True)
TABLES = ("CREATE TABLE ships (n int)", "INSERT INTO ships VALUES (1), (2), (3)")


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


@pytest.fixture
async def orders(team: Team) -> Database:
    """A database that is running according to its rows."""
    await team.create(backup="enabled")
    return await team.set_running()


def fetch(yard: Yard, row: Backup, target: Path) -> asyncio.Task[None]:
    assert row.digest is not None
    return asyncio.create_task(yard.app.artifacts.fetch(row.org_id, row.digest, target))


# Creating.


@ON_SQLITE
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_a_completed_backup_can_be_read_back_and_is_whole(yard: Yard, kind: str, tmp_path: Path) -> None:
    found = await yard.make(kind)
    await yard.ask(*TABLES)

    item = await yard.back_up()
    [row] = await yard.rows()
    await fetch(yard, row, tmp_path / "dump")

    software = yard.servers.software(found)
    assert (item["status"], item["reason"], item["cause"]) == ("completed", None, "user")
    assert (row.entries, row.software) == (1, software.name)
    assert item["totalSize"] == (tmp_path / "dump").stat().st_size > 0
    assert yard.servers.kind(found).check(software, tmp_path / "dump") == 1
    assert os.listdir(yard.servers.root(found.id) / "backups-tmp") == []


@pytest.mark.deep
@ON_SQLITE
async def test_a_physical_backup_knows_where_in_the_log_it_begins(yard: Yard) -> None:
    await yard.make()
    await yard.policy(enabled=True, method="physical")

    await yard.run_jobs()

    [row] = await yard.rows()
    assert (row.status, row.method, row.cause, row.reason) == ("completed", "physical", "schedule", None)
    assert row.first_wal is not None
    assert row.first_wal.startswith("s1/0000000100000000")


@ON_SQLITE
async def test_a_backup_of_a_server_that_is_away_fails_with_a_reason(yard: Yard) -> None:
    await yard.make()
    await yard.servers.stop(await yard.primary())

    item = await yard.back_up()

    assert item["status"] == "failed"
    assert "connection" in item["reason"]
    assert (item["totalSize"], item["expiresAt"]) == (None, None)


@contextlib.contextmanager
def tiny_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of one megabyte at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"tiny", bytes(folder), b"tmpfs", 0, b"size=1m") == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        libc.umount2(bytes(folder), 2)


@contextlib.contextmanager
def hardly_any_room(yard: Yard, found: Database) -> Iterator[None]:
    """Leave no room for a backup; without root, by a missing folder."""
    work = yard.servers.root(found.id) / "backups-tmp"
    if os.getuid() == 0:
        with tiny_disk(work):
            yield
    else:
        work.write_text("in the way")
        yield
        work.unlink()


@ON_SQLITE
async def test_a_disk_that_is_full_ends_a_backup_and_nothing_else(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask("CREATE TABLE bulk AS SELECT md5(n::text || 'x') AS word FROM generate_series(1, 90000) n")

    with hardly_any_room(yard, found):
        failed = await yard.back_up()
    yard.clock.advance(MINUTE_MS)
    completed = await yard.back_up()

    assert failed["status"] == "failed"
    assert "disk" in failed["reason"] or "space" in failed["reason"]
    assert completed["status"] == "completed"
    assert (await yard.team.read())["status"] == "running"


@ON_SQLITE
@pytest.mark.settings(disk_reserve_mb=1_000_000_000)
async def test_a_backup_that_would_fill_the_platforms_disk_is_not_begun(yard: Yard) -> None:
    await yard.make()

    item = await yard.back_up()

    assert item["status"] == "failed"
    assert "almost full" in item["reason"]


async def wait_for_tool(name: str) -> int:
    """Return the pid of a tool that this process has started."""
    while True:
        for pid in process_tree.with_descendants(process_tree.children(os.getpid())):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    return pid
        await asyncio.sleep(0.01)


@ON_SQLITE
async def test_a_tool_that_is_killed_ends_a_backup_and_says_so(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    url = f"postgresql://{found.username}:{await yard.password()}@127.0.0.1:{found.port}/{found.db_name}"

    with psycopg.connect(url) as session:
        session.execute("LOCK TABLE ships IN ACCESS EXCLUSIVE MODE")
        backing_up = asyncio.create_task(yard.back_up())
        os.kill(await wait_for_tool("pg_dump"), signal.SIGKILL)
        item = await backing_up

    assert (item["status"], item["reason"]) == ("failed", "pg_dump was ended by SIGKILL")


@ON_SQLITE
async def test_a_platform_that_died_during_a_backup_makes_it_when_it_is_back(yard: Yard, db: Store) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    await yard.team.post("/orders/backups")
    url = f"postgresql://{found.username}:{await yard.password()}@127.0.0.1:{found.port}/{found.db_name}"

    with psycopg.connect(url) as session:
        session.execute("LOCK TABLE ships IN ACCESS EXCLUSIVE MODE")
        dying = Worker(db, yard.app.handlers, Telemetry(quiet=True))
        working = asyncio.create_task(dying.run_due())
        await wait_for_tool("pg_dump")
        # State after a killed process: a job whose lease is not renewed, and half of a file.
        await dying.stop(grace_s=0)
        await asyncio.gather(working, return_exceptions=True)
    between = (await yard.items())[0]["status"]
    await db.write(lambda tx: tx.run(job_tables.EXPIRE_ALL))
    await yard.run_jobs()

    assert between == "running"
    assert [item["status"] for item in await yard.items()] == ["completed"]


async def test_a_backup_that_was_tried_too_often_is_failed(team: Team, orders: Database, run_jobs: RunJobs) -> None:
    def unit(tx: Tx) -> Backup:
        made = backups.add(tx, team.org_id, orders, "user", "logical")
        jobs.add(tx, MakeBackup(team.org_id, orders.id, made.id), lane=Lane.CHORES, max_attempts=1)
        tx.all(
            job_tables.CLAIM, machine_id=0, lane=Lane.CHORES, now=tx.now, until=tx.now - 1, lease="of the dead", most=1
        )
        return made

    made = await team.db.write(unit)
    await run_jobs()

    row = await team.db.read(lambda tx: backups.get(tx, team.org_id, made.id))
    assert (row.status, row.reason) == ("failed", backups.PLATFORM_ERROR)


async def test_a_backup_waits_for_a_database_that_is_being_changed(
    team: Team, orders: Database, run_jobs: RunJobs
) -> None:
    made = await team.db.write(lambda tx: backups.request(tx, team.org_id, orders, "schedule"))
    await team.db.write(lambda tx: service.begin_update(tx, team.org_id, orders))

    await run_jobs()

    row = await team.db.read(lambda tx: backups.get(tx, team.org_id, made.id))
    assert row.status == "running"


# Schedule.


async def test_a_tick_asks_for_a_backup_unless_one_is_under_way(app: App, team: Team, orders: Database) -> None:
    tick = Tick(backups.KIND, team.org_id, str(orders.id), 0)

    await team.db.write(lambda tx: app.handlers.ticks[backups.KIND](tx, tick))
    await team.db.write(lambda tx: app.handlers.ticks[backups.KIND](tx, tick))

    rows = await team.db.read(lambda tx: backups.all_of(tx, team.org_id, orders))
    assert [(row.status, row.cause) for row in rows] == [("running", "schedule")]


async def test_a_tick_of_a_database_without_a_policy_asks_for_nothing(app: App, team: Team) -> None:
    await team.create()
    found = await team.set_running()
    tick = Tick(backups.KIND, team.org_id, str(found.id), 0)

    await team.db.write(lambda tx: app.handlers.ticks[backups.KIND](tx, tick))

    assert await team.db.read(lambda tx: backups.all_of(tx, team.org_id, found)) == []


@ON_SQLITE
async def test_a_database_with_backups_is_in_the_timetable_once_it_runs(yard: Yard) -> None:
    found = await yard.make(backup="enabled")

    entry = await yard.team.db.read(lambda tx: timetable.find(tx, found.org_id, backups.KIND, str(found.id)))

    assert entry is not None
    assert entry.expression == "0 3 * * *"


async def test_backups_of_the_same_second_have_names_of_their_own(team: Team, orders: Database) -> None:
    made = await team.db.write(
        lambda tx: [backups.add(tx, team.org_id, orders, "user", "logical").name for _ in range(3)]
    )

    assert made == ["orders-20260101-000000", "orders-20260101-000000-2", "orders-20260101-000000-3"]


# Retention.


async def add(team: Team, found: Database, cause: str = "schedule", *, fails: bool = False) -> Backup:
    """Add the row of a backup with a stored artifact."""

    def begin(tx: Tx) -> Backup:
        return backups.add(tx, team.org_id, found, cause, "logical")

    def end(tx: Tx) -> Backup:
        if fails:
            backups.fail(tx, team.org_id, made.id, "it rained")
        else:
            backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, None))
        return backups.get(tx, team.org_id, made.id)

    made = await team.db.write(begin)
    return await team.db.write(end)


async def names(team: Team, found: Database) -> list[str]:
    rows = await team.db.read(lambda tx: backups.all_of(tx, team.org_id, found))
    return [row.name for row in rows]


async def sweep(app: App, team: Team, run_jobs: RunJobs) -> None:
    tick = Tick(backup_jobs.SWEEP, 0, "", 0)
    await team.db.write(lambda tx: app.handlers.ticks[backup_jobs.SWEEP](tx, tick))
    await run_jobs()


async def test_more_than_are_to_be_kept_go_the_oldest_first(team: Team, orders: Database, clock: ManualClock) -> None:
    await team.db.write(lambda tx: service.set_column(tx, team.org_id, orders, "backups_to_keep", 2))
    made = []
    for _ in range(4):
        made.append(await add(team, orders))
        clock.advance(MINUTE_MS)

    assert await names(team, orders) == [made[3].name, made[2].name]


async def test_one_that_is_too_old_goes_but_never_the_newest(
    app: App, team: Team, orders: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    await add(team, orders)
    clock.advance(MINUTE_MS)
    newest = await add(team, orders)
    clock.advance(MINUTE_MS)
    await add(team, orders, fails=True)
    clock.advance(8 * DAY_MS)

    await sweep(app, team, run_jobs)

    assert await names(team, orders) == [newest.name]


async def test_backups_for_safety_do_not_push_others_out(team: Team, orders: Database, clock: ManualClock) -> None:
    await team.db.write(lambda tx: service.set_column(tx, team.org_id, orders, "backups_to_keep", 1))
    kept = await add(team, orders)
    clock.advance(MINUTE_MS)
    safety = await add(team, orders, "safety")

    assert await names(team, orders) == [safety.name, kept.name]
    assert safety.expires_at == safety.started_at + 7 * DAY_MS


async def test_what_is_stored_goes_with_its_backup(app: App, team: Team, orders: Database, tmp_path: Path) -> None:
    row = await add(team, orders)
    (tmp_path / "dump").write_bytes(b"a dump")
    stored = await app.artifacts.put_file(team.org_id, tmp_path / "dump", owner=backups.owner_of(row))

    await team.db.write(lambda tx: backups.remove_all(tx, team.org_id, orders.id))

    assert await names(team, orders) == []
    with pytest.raises(NotFound):
        await team.db.read(lambda tx: artifacts.get(tx, team.org_id, stored.digest))


async def test_a_backup_whose_database_has_gone_meanwhile_leaves_nothing(team: Team, orders: Database) -> None:
    made = await team.db.write(lambda tx: backups.request(tx, team.org_id, orders, "user"))
    await team.db.write(lambda tx: backups.remove_all(tx, team.org_id, orders.id))

    await team.db.write(lambda tx: backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, None)))

    assert await names(team, orders) == []


def test_what_dead_work_left_behind_is_found_once_it_is_old(tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("backups-tmp/b1", "restore-3", "drill-4", ".restore-3.new", ".drill-4.new")]
    for path in (*left, tmp_path / "s1"):
        path.mkdir(parents=True)
    now = int(tmp_path.stat().st_mtime * 1000)

    assert server_folders.leftovers(tmp_path, now - MINUTE_MS) == []
    assert sorted(server_folders.leftovers(tmp_path, now + MINUTE_MS)) == sorted(left)


def test_a_note_in_the_folder_of_a_server_is_read_with_suspicion(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"at": 1}')
    (tmp_path / "link.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "half.json").write_text('{"at": ')
    os.mkfifo(tmp_path / "pipe.json")

    read = [server_folders.read_marker(tmp_path, f"{name}.json") for name in ("secret", "link", "half", "pipe", "none")]

    assert read == [{"at": 1}, None, None, None, None]


def test_a_folder_keeps_the_time_since_when_no_server_uses_it(tmp_path: Path) -> None:
    for now in (1, 2):
        server_folders.mark_superseded(tmp_path, now)

    assert server_folders.read_marker(tmp_path, server_folders.SUPERSEDED) == {"at": 1}
