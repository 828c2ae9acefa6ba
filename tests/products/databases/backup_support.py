"""Databases with real servers, and jobs that a test steps or kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pymysql
from tests.client import Reply
from tests.products.databases.support import Team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.jobs import tables as job_tables
from moorage.core.kit import folders
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.vault import service as vault
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.engines import make_engine
from moorage.products.databases.backups import service as backups
from moorage.products.databases.servers import primary_of
from moorage.products.databases.tables import Backup, Database, Server
from moorage.products.databases.wiring import Databases
from moorage.runtime.machines.links import Links

KINDS = {"postgresql": {"type": "postgresql", "version": "16.4.0"}, "mysql": {"type": "mysql", "version": "8.4.2"}}
STOP_S = 10.0
WAIT_S = 60.0

T = TypeVar("T")


@dataclass
class Yard:
    """An organization with running databases."""

    team: Team
    app: App
    clock: ManualClock
    run_jobs: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self.parts = self.app.products.databases
        self.handlers = self.app.handlers

    @property
    def servers(self) -> Any:
        return self.parts.servers

    async def make(self, kind: str = "postgresql", **given: Any) -> Database:
        """Create a database with a real server."""
        made = await self.team.create(**{**KINDS[kind], **given})
        assert made.status == 200, made.body
        await self.run_jobs()
        found = await self.team.row()
        assert found.status == "running", found.status_reason
        return found

    async def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the database's user; return the rows of the last one."""
        found = await self.team.row()
        return await asyncio.to_thread(ask, found, await self.password(), *statements)

    async def password(self) -> str:
        found = await self.team.row()
        stored = await self.team.db.read(lambda tx: vault.find(tx, found.org_id, found.resource, "password"))
        assert stored is not None
        return stored

    async def back_up(self) -> Any:
        """Create a backup and return its list item."""
        asked = await self.team.post("/orders/backups", Role.MEMBER)
        assert asked.status == 200, asked.body
        await self.run_jobs()
        return next(each for each in await self.items() if each["name"] == asked.data["name"])

    async def items(self) -> list[Any]:
        return list((await self.team.get("/orders/backups")).data["items"])

    async def rows(self) -> list[Backup]:
        found = await self.team.row()
        return await self.team.db.read(lambda tx: backups.all_of(tx, found.org_id, found))

    async def restore(self, name: str, **given: Any) -> Reply:
        body = {"backupName": name, "confirm": True, **given}
        return await self.team.post("/orders/restore", Role.ADMIN, json=body)

    async def policy(self, **given: Any) -> Reply:
        token = self.team.tokens[Role.ADMIN]
        return await self.team.api.patch("/v1/databases/orders/backups", token=token, json=given)

    async def primary(self) -> Server:
        found = await self.team.row()
        server = await self.team.db.read(lambda tx: primary_of(tx, found.org_id, found.id))
        assert server is not None
        return server

    async def carry_on(self) -> None:
        """Replace all objects, as after a restart; they adopt the running servers."""
        before, db = self.parts, self.team.db
        await before.close()
        telemetry, is_sandboxed = Telemetry(quiet=True), before.servers.is_sandboxed
        engine = make_engine(db.env.settings, "databases", is_sandboxed=is_sandboxed, volumes_in="databases")
        links = Links(db.env, telemetry)
        self.parts = Databases.make(db, telemetry, self.app.artifacts, engine, engine, links, is_sandboxed)
        self.handlers = Handlers()
        self.parts.register(self.handlers)
        self.run_jobs = Worker(db, self.handlers, Telemetry(quiet=True), lanes=(Lane.SERVERS,)).run_due
        await self.parts.reconciler.adopt()
        await self.run_jobs()
        await self.settle()

    async def settle(self) -> None:
        """Run reconciler rounds until servers and rows agree."""
        await self.parts.reconciler.round()
        await self.parts.reconciler.rounds.idle()

    async def folders(self) -> list[str]:
        """Return the names in the folder of the database, without the permanent one."""
        root: Path = self.servers.root((await self.team.row()).id)
        return sorted(name for name in os.listdir(root) if name != "backups-tmp")


@contextlib.asynccontextmanager
async def yard_of(
    team: Team, app: App, clock: ManualClock, run_jobs: Callable[[], Awaitable[None]]
) -> AsyncIterator[Yard]:
    """Yield a yard; stops all its servers on exit."""
    yard = Yard(team, app, clock, run_jobs)
    try:
        yield yard
    finally:
        engine = yard.servers.engine
        for key in list(engine.states()):
            await engine.stop(key, STOP_S)
        await yard.parts.close()
        await asyncio.to_thread(folders.remove, yard.servers.root(0).parent)


# The platform is killed during a job.


class Mortal:
    """A store that simulates a killed process before one of its writes."""

    def __init__(self, db: Store, writes: int) -> None:
        self._db = db
        self._left = writes
        self.is_dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    async def write(self, unit: Callable[[Tx], T]) -> T:
        if self._left == 0:
            self.is_dead.set()
            await asyncio.Event().wait()
        self._left -= 1
        return await self._db.write(unit)


async def die_at(yard: Yard, reached: Callable[[], Awaitable[object]]) -> None:
    """Run jobs until a point, as if the process were killed there."""
    assert await _die(yard, Worker(yard.team.db, yard.handlers, Telemetry(quiet=True)), reached)


async def die_before(yard: Yard, number: int) -> bool:
    """Run a server's job up to a write of the worker; False if it has fewer.

    The first one, number 0, takes the job, and the last one ends it.
    """
    db: Any = Mortal(yard.team.db, number)
    worker = Worker(db, yard.handlers, Telemetry(quiet=True), lanes=(Lane.SERVERS,))
    return await _die(yard, worker, db.is_dead.wait)


async def _die(yard: Yard, worker: Worker, reached: Callable[[], Awaitable[object]]) -> bool:
    """Tell whether a worker reaches a point; releases its leases like a dead process."""
    working, reaching = asyncio.create_task(worker.run_due()), asyncio.ensure_future(reached())
    await asyncio.wait({working, reaching}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
    is_reached = reaching.done()
    await worker.stop(grace_s=0)
    for task in (working, reaching):
        task.cancel()
    await asyncio.gather(working, reaching, return_exceptions=True)
    await yard.team.db.write(lambda tx: tx.run(job_tables.EXPIRE_ALL))
    return is_reached


def ask(found: Database, password: str, *statements: str) -> list[tuple[Any, ...]]:
    whom = {"host": "127.0.0.1", "port": found.port, "user": found.username, "password": password, "autocommit": True}
    connect: Any = psycopg.connect if found.engine == "postgresql" else pymysql.connect
    database = {"dbname" if found.engine == "postgresql" else "database": found.db_name}
    with contextlib.closing(connect(**whom, **database)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
