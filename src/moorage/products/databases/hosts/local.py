"""Servers on folders of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from moorage.core.kit import folders
from moorage.products.databases.hosts import trash
from moorage.products.databases.hosts.local_physical import LocalPhysicalBackups, ServerFolders
from moorage.products.databases.hosts.ports import Secrets
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers import server_folders
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import IDENTITY_FILE, Access, ServerKind, ServerOptions, Software
from moorage.runtime.database_servers.queries.model import QueryRunner
from moorage.runtime.database_servers.queries.runners import runner_of
from moorage.runtime.database_servers.server_folders import Restored
from moorage.runtime.engines.ports import Metrics, ServerSpec
from moorage.settings import Settings


class LocalServers(ServerFolders, Protocol):
    """Folders and processes of servers on this machine."""

    metrics: Metrics

    def root(self, database_id: int) -> Path: ...

    def volume(self, folder: Path) -> str: ...

    def make_folder(self, database: Database, software: Software, folder: str) -> None: ...

    def check_folder(self, database: Database, folder: str) -> None: ...

    def configure(
        self, database: Database, folder: Path, options: ServerOptions, key: str, token: str
    ) -> ServerSpec: ...

    def scratch(
        self, database: Database, folder: Path, options: ServerOptions
    ) -> AbstractAsyncContextManager[Access]: ...

    async def end_scratch(self, database: Database, folder: Path) -> None: ...


class LocalFolders:
    def __init__(self, servers: LocalServers) -> None:
        self._servers = servers

    async def make(self, database: Database, software: Software, folder: str) -> None:
        await asyncio.to_thread(self._servers.make_folder, database, software, folder)

    async def remove(self, database: Database, folder: str) -> None:
        target = self._servers.folder(database.id, folder)
        await self._servers.end_scratch(database, target)
        for path in (target, target.with_name(f".{target.name}.new")):
            await asyncio.to_thread(folders.remove, path)

    async def find_restored(self, database: Database, job_id: int) -> Restored | None:
        return await asyncio.to_thread(server_folders.find_restored, self._root(database), job_id)

    async def finish_restored(self, database: Database, building: str, job_id: int, replaces: str) -> Restored:
        root = self._root(database)
        return await asyncio.to_thread(server_folders.finish_restored, root, building, job_id, replaces)

    async def mark_superseded(self, database: Database, folder: str, now: int) -> None:
        await asyncio.to_thread(server_folders.mark_superseded, self._servers.folder(database.id, folder), now)

    async def sweep(self, database: Database, used: Collection[str], superseded: int, abandoned: int) -> None:
        await asyncio.to_thread(server_folders.sweep, self._root(database), used, superseded, abandoned)

    def _root(self, database: Database) -> Path:
        return self._servers.root(database.id)


class LocalTrash:
    def __init__(self, servers: LocalServers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder

    async def put(self, database: Database) -> None:
        await asyncio.to_thread(trash.put, self._servers.root(database.id), self._folder)

    async def take_back(self, database: Database) -> None:
        await asyncio.to_thread(trash.take_back, self._servers.root(database.id), self._folder)

    async def purge(self, database: Database) -> None:
        await asyncio.to_thread(folders.remove, self._folder / trash.name_of(self._servers.root(database.id)))


class LocalHost:
    has_agents = False

    def __init__(self, servers: LocalServers, settings: Settings) -> None:
        self._servers = servers
        self.folders = LocalFolders(servers)
        self.trash = LocalTrash(servers, settings.folder("trash"))
        self.physical = LocalPhysicalBackups(servers)

    def kind(self, database: Database) -> ServerKind:
        return kind_of(database.engine)

    def runner(self, database: Database) -> QueryRunner:
        return runner_of(database.engine)

    def access(self, database: Database, server: Server, secrets: Secrets) -> Access:
        return Access(str(self._servers.folder(database.id, server.folder)), server.port, secrets.admin)

    async def prepare(
        self, database: Database, server: Server, options: ServerOptions, new: Software | None
    ) -> ServerSpec:
        folder = self._servers.folder(database.id, server.folder)
        if new is not None and not (folder / IDENTITY_FILE).exists():
            await self.folders.make(database, new, server.folder)
        await asyncio.to_thread(self._servers.check_folder, database, server.folder)
        return await asyncio.to_thread(self._servers.configure, database, folder, options, server.key, server.token)

    async def started(self, database: Database, server: Server, new: Software | None) -> None:
        """The folder was checked before the start."""

    def scratch(self, database: Database, folder: str, options: ServerOptions) -> AbstractAsyncContextManager[Access]:
        return self._servers.scratch(database, self._servers.folder(database.id, folder), options)

    def used_bytes(self, database: Database, server: Server) -> int:
        """Return the size of a server's files, including deleted open files. Blocks."""
        volume = self._servers.volume(self._servers.folder(database.id, server.folder))
        return self._servers.metrics.volume_bytes(server.key, volume)
