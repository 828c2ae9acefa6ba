"""Helpers of the metrics tests: rows of databases and servers, and real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql
import pytest

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.engines import make_engine
from moorage.products.databases import servers, service, tables
from moorage.products.databases.servers import Servers
from moorage.products.databases.service import NewDatabase
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder
from moorage.runtime.sandbox.usage import process_tree

ADMIN = "a" * 32
PASSWORD = "p" * 32
SOFTWARE = {"postgresql": "postgresql-16.14", "mysql": "mariadb-10.11.18"}
SQLITE = pytest.mark.parametrize("db", ["sqlite"], indirect=True)  # Other tests cover both stores.
TWIN_KINDS = pytest.mark.parametrize("type_", ["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])


async def make_database(
    db: Store,
    org_id: int = 1,
    name: str = "harbor",
    *,
    type_: str = "postgresql",
    tier: str = "micro",
    architecture: str = "standalone",
    **changed: Any,
) -> Database:
    """Add a running database with its passwords."""

    def add(tx: Tx) -> Database:
        new = NewDatabase(name, type_, "16", tier, visibility="private", username="ada", architecture=architecture)
        made = service._add(tx, org_id, new, changed.pop("software", f"{type_}-16"))
        for column, value in {"status": DatabaseStatus.RUNNING, **changed}.items():
            tx.run(_SET[column], org_id=org_id, id=made.id, new=value)
        names = (servers.PASSWORD, servers.ADMIN_PASSWORD, servers.REPLICA_PASSWORD)
        for secret, value in zip(names, (PASSWORD, ADMIN, ADMIN), strict=True):
            vault.put(tx, org_id, made.resource, secret, value)
        return service.get_by_id(tx, org_id, made.id)

    return await db.write(add)


async def make_server(db: Store, found: Database, role: str = "primary", folder: str = "s1") -> Server:
    return await db.write(lambda tx: servers.add_server(tx, found.org_id, found.id, role, folder, found.port))


async def read_again(db: Store, found: Database) -> Database:
    return await db.read(lambda tx: service.get_by_id(tx, found.org_id, found.id))


async def read_servers(db: Store, found: Database) -> list[Server]:
    return await db.read(lambda tx: servers.servers_of(tx, found.org_id, found.id))


def _set(column: str) -> Any:
    from sqlalchemy import update

    from moorage.core.db.query import Command, arg

    its = tables.database.c
    where = (its.org_id == arg("org_id")) & (its.id == arg("id"))
    return Command(update(tables.database).where(where).values({column: arg("new")}))


_SET = {column: _set(column) for column in ("status", "status_reason", "is_full", "disk_bytes", "deleted_at")}


@dataclass
class Fleet:
    """Databases with real servers."""

    db: Store
    servers: Servers

    @classmethod
    def make(cls, db: Store) -> Fleet:
        catalog = SoftwareCatalog([shared_folder()], db.env.settings.folder("engines"))
        return cls(
            db,
            Servers(
                db,
                make_engine(db.env.settings, "databases", is_sandboxed=True, volumes_in="databases"),
                catalog,
                is_sandboxed=True,
            ),
        )

    async def start(self, type_: str = "postgresql", name: str = "harbor", **changed: Any) -> Database:
        found = await make_database(self.db, name=name, type_=type_, software=SOFTWARE[type_], **changed)
        server = await make_server(self.db, found)
        software, kind = self.servers.software(found), self.servers.kind(found)
        await asyncio.to_thread(self.servers.make_folder, found, software, server.folder)
        await self.servers.start(found, server)
        access, names = await self.servers.access(found, server), (await self.servers.secrets(found)).credentials
        await asyncio.to_thread(kind.set_admin_password, software, access)
        await asyncio.to_thread(kind.provision, access, names, None)
        return found

    async def processes(self, found: Database) -> list[int]:
        """Return the processes of a database's server, the main process first."""
        [server] = await read_servers(self.db, found)
        state = await self.servers.engine.look(server.key)
        assert state is not None
        assert state.app_pid is not None
        return process_tree.with_descendants([state.app_pid])

    async def close(self) -> None:
        for key in list(self.servers.engine.states()):
            await self.servers.engine.stop(key, 0)
        await self.servers.engine.close()


@contextmanager
def clients(found: Database, count: int = 1) -> Iterator[list[Any]]:
    """Connections of the user of a database, over the network."""
    with ExitStack() as stack:
        yield [stack.enter_context(_connect(found)) for _ in range(count)]


def _connect(found: Database) -> Any:
    its: dict[str, Any] = {"host": "127.0.0.1", "port": found.port, "user": found.username, "password": PASSWORD}
    if found.engine == "mysql":
        return pymysql.connect(**its, database=found.db_name, autocommit=True)
    return psycopg.connect(**its, dbname=found.db_name, autocommit=True)


def ask(client: Any, statement: str, times: int = 1) -> None:
    with client.cursor() as cursor:
        for _ in range(times):
            cursor.execute(statement)
            cursor.fetchall() if cursor.description else None
