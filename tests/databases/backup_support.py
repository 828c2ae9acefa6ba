"""Databases with real servers, made and asked as users do it, and jobs that a test steps."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from tests.client import Reply
from tests.databases.support import Team

from moorage.app import App
from moorage.databases import backups
from moorage.databases.servers import primary_of
from moorage.databases.tables import Backup, Database, Server
from moorage.identity.roles import Role
from moorage.kit import folders
from moorage.kit.clock import ManualClock
from moorage.vault import service as vault

KINDS = {"postgresql": {"type": "postgresql", "version": "16.4.0"}, "mysql": {"type": "mysql", "version": "8.4.2"}}
STOP_S = 10.0


@dataclass
class Yard:
    """An organization with databases that run."""

    team: Team
    app: App
    clock: ManualClock
    run_jobs: Callable[[], Awaitable[None]]

    @property
    def servers(self) -> Any:
        return self.app.databases.servers

    async def make(self, kind: str = "postgresql", **given: Any) -> Database:
        """Make a database with a real server."""
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
        """Make a backup and return it as the list has it."""
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

    async def folders(self) -> list[str]:
        """Return the names of what is in the folder of the database, but for the one that is always there."""
        root: Path = self.servers.root((await self.team.row()).id)
        return sorted(name for name in os.listdir(root) if name != "backups-tmp")


@contextlib.asynccontextmanager
async def yard_of(
    team: Team, app: App, clock: ManualClock, run_jobs: Callable[[], Awaitable[None]]
) -> AsyncIterator[Yard]:
    """Give a yard; at the end all its servers are stopped."""
    yard = Yard(team, app, clock, run_jobs)
    try:
        yield yard
    finally:
        engine = app.databases.servers.engine
        for key in list(engine.states()):
            await engine.stop(key, STOP_S)
        await asyncio.to_thread(folders.remove, app.databases.servers.root(0).parent)


def ask(found: Database, password: str, *statements: str) -> list[tuple[Any, ...]]:
    whom = {"host": "127.0.0.1", "port": found.port, "user": found.username, "password": password, "autocommit": True}
    connect: Any = psycopg.connect if found.engine == "postgresql" else pymysql.connect
    database = {"dbname" if found.engine == "postgresql" else "database": found.db_name}
    with contextlib.closing(connect(**whom, **database)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
