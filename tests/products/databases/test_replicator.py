"""Replicated databases: a server, shim or folder is lost while a client writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from tests.builders import make_org

from moorage.accounts.plans.service import Plan, Standing
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.telemetry import Telemetry
from moorage.engines import make_engine
from moorage.products.databases import service
from moorage.products.databases.replication import watcher
from moorage.products.databases.replication.tables import FENCED, Pair, read_pair
from moorage.products.databases.replication.watcher import Replicator
from moorage.products.databases.servers import Servers, add_server, servers_of, set_server
from moorage.products.databases.service import NewDatabase
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.server_folders import SUPERSEDED
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder
from moorage.runtime.sandbox.usage import process_tree

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("db", ["sqlite"], indirect=True),
    pytest.mark.settings(substitution="any"),
]
WAIT_S = 90.0
UP = (DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING, DatabaseStatus.RUNNING)
BROKEN = (psycopg.Error, pymysql.MySQLError, OSError)


@dataclass
class World:
    """A platform with one replicated database."""

    db: Store
    servers: Servers
    replicator: Replicator
    found: Database
    password: str

    async def pair(self) -> Pair:
        found = await self.db.read(lambda tx: read_pair(tx, self.found.org_id, self.found.id))
        assert found is not None
        return found

    async def primary(self) -> Server:
        found = (await self.pair()).primary
        assert found is not None
        return found

    async def replica(self) -> Server:
        found = (await self.pair()).replica
        assert found is not None
        return found

    async def until(self, is_so: Callable[[Pair], bool]) -> Pair:
        """Run checks until the rows fulfil a condition."""
        deadline = time.monotonic() + WAIT_S
        while not is_so(pair := await self.pair()):
            assert time.monotonic() < deadline, pair
            await self.replicator.check(self.found)
            await asyncio.sleep(0.2)
        return pair

    async def until_whole(self, but: Server | None = None) -> Pair:
        """Run checks until two servers are in sync with a new primary."""

        def is_whole(pair: Pair) -> bool:
            is_other = pair.primary is not None and (but is None or pair.primary.id != but.id)
            return is_other and pair.replica is not None and pair.replica.in_sync

        return await self.until(is_whole)

    def place(self, server: Server) -> Path:
        return self.servers.folder(self.found.id, server.folder)

    def kill(self, server: Server) -> None:
        """Kill a server and its shim."""
        os.kill(self.servers.engine.states()[server.key].pid, signal.SIGKILL)

    def lose(self, server: Server) -> None:
        """Delete a server's files, repeatedly while the exiting server still writes some."""
        while (place := self.place(server)).exists():
            shutil.rmtree(place, ignore_errors=True)

    def connect(self) -> Any:
        """Connect as the user, at the address of the database."""
        found = self.found
        named: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": found.port,
            "user": found.username,
            "password": self.password,
        }
        if found.engine == "postgresql":
            return psycopg.connect(**named, dbname=found.db_name, autocommit=True, connect_timeout=5)
        return pymysql.connect(**named, database=found.db_name, autocommit=True, connect_timeout=5, read_timeout=30)

    def ask(self, statement: str) -> list[Any]:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()] if cursor.description else []


class Writer:
    """A client that writes consecutive numbers and records the acknowledged ones."""

    def __init__(self, world: World) -> None:
        self.acknowledged: list[int] = []
        self._world = world
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._next = 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with contextlib.closing(self._world.connect()) as connection, connection.cursor() as cursor:
                    self._write(cursor)
            except BROKEN:
                time.sleep(0.02)

    def _write(self, cursor: Any) -> None:
        while not self._is_over.is_set():
            self._next += 1  # A number with an unknown outcome is never retried.
            cursor.execute(f"INSERT INTO t VALUES ({self._next})")
            self.acknowledged.append(self._next)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join(WAIT_S)

    async def has_written(self, more: int = 20) -> None:
        """Wait until so many more numbers were acknowledged."""
        wanted, deadline = len(self.acknowledged) + more, time.monotonic() + WAIT_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "nothing can be written"
            await self._world.replicator.check(self._world.found)
            await asyncio.sleep(0.05)

    def lost(self) -> list[int]:
        """Return the acknowledged numbers that are missing, once the server answers."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return sorted(set(self.acknowledged) - set(self._world.ask("SELECT n FROM t")))
            except BROKEN:
                assert time.monotonic() < deadline, "nothing can be read"
                time.sleep(0.02)


@pytest.fixture(params=["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])
async def world(request: pytest.FixtureRequest, db: Store) -> AsyncIterator[World]:
    for folder in ("databases", "logs", "keys", "engines"):
        db.env.settings.folder(folder).mkdir(parents=True, exist_ok=True)
    engine = make_engine(db.env.settings, "databases", is_sandboxed=True, volumes_in="databases")
    catalog = SoftwareCatalog([shared_folder()], db.env.settings.folder("engines"))
    servers = Servers(db, engine, catalog, is_sandboxed=True)
    replicator = Replicator(db, servers, Telemetry(quiet=True))
    try:
        made = await make_world(db, servers, replicator, request.param)
        yield made
        await made.replicator.close()
    finally:
        for key in list(engine.workloads.states()):
            await engine.workloads.stop(key, 0.0)
        await engine.workloads.close()


async def make_world(db: Store, servers: Servers, replicator: Replicator, type_: str) -> World:
    """Create a database as its job does."""
    org = await make_org(db, plan=Plan.PRO)
    version = "16.4.0" if type_ == "postgresql" else "8.4.2"
    new = NewDatabase("orders", type_, version, "micro", visibility="private", architecture="replicaset")
    standing = Standing(Plan.PRO, True)
    found = await db.write(lambda tx: service.create(tx, org.id, THE_PLATFORM, standing, servers.catalog, new))
    software = await servers.catalog.ensure(servers.catalog.choose(type_, version, "any"))
    primary = await db.write(lambda tx: add_server(tx, org.id, found.id, "primary", "s1", found.port))
    await db.write(lambda tx: service.set_column(tx, org.id, found, "software", software.name))
    found = await db.read(lambda tx: service.get_by_id(tx, org.id, found.id))
    await asyncio.to_thread(servers.make_folder, found, software, "s1")
    await servers.start(found, primary)
    secrets, access = await servers.secrets(found), await servers.access(found, primary)
    servers.kind(found).set_admin_password(software, access)
    servers.kind(found).provision(access, secrets.credentials, secrets.replica)
    await replicator.seed(found)
    await db.write(lambda tx: set_running(tx, org.id, found))
    found = await db.read(lambda tx: service.get_by_id(tx, org.id, found.id))
    world = World(db, servers, replicator, found, secrets.credentials.password)
    await asyncio.to_thread(world.ask, "CREATE TABLE t (n int PRIMARY KEY)")
    return world


def set_running(tx: Tx, org_id: int, found: Database) -> None:
    for status in UP:
        move(tx, DATABASE, found, to=status)


@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
async def test_a_new_replica_is_in_sync_and_a_second_seed_changes_nothing(world: World) -> None:
    before = await world.pair()

    await world.replicator.seed(world.found)

    after = await world.pair()
    assert after == before
    assert after.replica is not None
    assert after.replica.in_sync


async def test_nothing_acknowledged_is_lost_when_the_primary_dies_with_its_folder(world: World) -> None:
    old, writer = await world.primary(), Writer(world)

    with writer.writing():
        await writer.has_written()
        world.kill(old)
        world.lose(old)
        await world.until_whole(but=old)
        await writer.has_written()

    assert writer.lost() == []
    assert (await world.primary()).port == world.found.port


@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
async def test_a_primary_that_only_crashed_stays_the_primary(world: World) -> None:
    old, writer = await world.primary(), Writer(world)

    with writer.writing():
        await writer.has_written()
        app = world.servers.engine.states()[old.key].app_pid
        assert app is not None
        os.kill(app, signal.SIGKILL)
        await gone(app)
        await writer.has_written()

    assert (await world.primary()).id == old.id
    assert writer.lost() == []


@pytest.mark.deep
async def test_a_primary_that_hangs_is_ended_before_its_replica_is_promoted(world: World) -> None:
    old, writer = await world.primary(), Writer(world)

    with writer.writing():
        await writer.has_written()
        state = world.servers.engine.states()[old.key]
        freeze(state.app_pid)
        await world.until_whole(but=old)
        await writer.has_written()

    assert writer.lost() == []
    assert old.key not in world.servers.engine.states()
    assert (world.place(old) / SUPERSEDED).exists()


async def gone(pid: int) -> None:
    """Wait for the exit of a killed process: its children may run a little longer."""
    deadline = time.monotonic() + WAIT_S
    while process_tree.started(pid) is not None:
        assert time.monotonic() < deadline, "it does not end"
        await asyncio.sleep(0.01)


def freeze(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.deep
async def test_a_primary_goes_on_alone_when_its_replica_is_gone_and_gets_another_one(world: World) -> None:
    old, writer = await world.replica(), Writer(world)

    with writer.writing():
        await writer.has_written()
        world.kill(old)
        world.lose(old)
        await writer.has_written()
        alone = await world.replica()
        await world.until_whole()
        await writer.has_written()

    assert not alone.in_sync
    assert writer.lost() == []


async def test_a_replica_that_is_killed_is_started_again(world: World) -> None:
    old, writer = await world.replica(), Writer(world)

    with writer.writing():
        await writer.has_written()
        world.kill(old)
        await writer.has_written()
        await world.until_whole()

    assert (await world.replica()).id == old.id


@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
async def test_a_replica_that_lags_is_never_promoted(world: World) -> None:
    old, replica = await world.primary(), await world.replica()
    await world.db.write(lambda tx: set_server(tx, replica.org_id, replica, "in_sync", False))
    world.kill(old)
    world.lose(old)

    await world.until(lambda pair: pair.database.status == DatabaseStatus.FAILED)

    assert (await world.primary()).id == old.id
    assert "lacks some of the last changes" in str((await world.pair()).database.status_reason)


@pytest.mark.deep
@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
async def test_nothing_is_done_while_a_job_has_the_database(world: World) -> None:
    old = await world.primary()
    await world.db.write(lambda tx: move(tx, DATABASE, world.found, to=DatabaseStatus.UPDATING))
    world.kill(old)
    world.lose(old)
    before = await world.pair()

    await world.replicator.check(world.found)

    assert await world.pair() == before


@pytest.mark.deep
async def test_a_dismissed_replica_is_forgotten_before_anything_else_and_the_primary_waits_for_nobody(
    world: World,
) -> None:
    old = await world.replica()

    await world.replicator.dismiss(world.found)

    assert (await world.pair()).replica is None
    assert not world.place(old).exists()
    await asyncio.to_thread(world.ask, "INSERT INTO t VALUES (1)")
    assert (await world.until_whole()).primary is not None


class Died(BaseException):
    """The platform has been killed."""


Step = tuple[str, str]
STOP: Step = ("servers", "stop")  # after the fencing, before the old primary is killed
START: Step = ("servers", "start")  # before the replica is promoted
SUPERSEDE: Step = ("watcher", "mark_superseded")  # after the promotion, before the rows change
ENSURE_PORT: Step = ("replicator", "_ensure_port")  # after the rows change, before it has the address
STEPS = [("postgresql", step) for step in (STOP, START, SUPERSEDE, ENSURE_PORT)] + [("mysql", SUPERSEDE)]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("world", "step"), STEPS, ids=[f"{type_}-{step[1]}" for type_, step in STEPS], indirect=["world"]
)
async def test_a_switch_that_the_death_of_the_platform_has_cut_short_is_finished_by_the_next(
    world: World, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, writer = await world.primary(), Writer(world)
    with writer.writing():
        await writer.has_written()
        await die_at(world, step, old, monkeypatch)
        interrupted = await world.pair()
        world.replicator = Replicator(world.db, world.servers, Telemetry(quiet=True))
        await world.until_whole(but=old)
        await writer.has_written()

    assert interrupted.fenced is not None or interrupted.replica is None
    assert all(server.role != FENCED for server in await all_servers(world))
    assert writer.lost() == []


async def die_at(world: World, step: Step, old: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the primary, and the platform at a step."""
    owners: dict[str, Any] = {"servers": world.servers, "replicator": world.replicator, "watcher": watcher}

    def die(*_: Any, **__: Any) -> Any:
        raise Died

    world.kill(old)
    world.lose(old)
    with monkeypatch.context() as patched:
        patched.setattr(owners[step[0]], step[1], die)
        with pytest.raises(Died):
            await world.until(lambda _: False)
    await world.replicator.close()


async def all_servers(world: World) -> list[Server]:
    return await world.db.read(lambda tx: servers_of(tx, world.found.org_id, world.found.id))


@pytest.mark.deep
@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
async def test_the_loop_looks_at_every_pair(world: World) -> None:
    old, loop = await world.primary(), asyncio.create_task(world.replicator.run())
    world.lose(old)

    await eventually(lambda: changed(world, old))
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop

    assert (await world.primary()).port == world.found.port


async def changed(world: World, old: Server) -> bool:
    pair = await world.pair()
    return pair.primary is not None and pair.primary.id != old.id


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
