"""Physical backups of servers on folders of this machine."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Protocol

from moorage.core.kit import folders
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.ports import ARCHIVE, Access, Software
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical


class ServerFolders(Protocol):
    def folder(self, database_id: int, name: str) -> Path: ...

    def own(self, database_id: int, folder: Path) -> None: ...

    def seal(self, database_id: int, folder: Path) -> None: ...


class LocalPhysicalBackups:
    def __init__(self, servers: ServerFolders) -> None:
        self._servers = servers

    async def copy(self, database: Database, software: Software, access: Access, target: Path) -> tuple[int, str]:
        work = target.parent / "copy"
        await asyncio.to_thread(work.mkdir, mode=0o700)
        await asyncio.to_thread(self._servers.own, database.id, work)
        return await tools.in_thread(postgres_physical.copy, software, access, work, target)

    async def archived(self, database: Database, folder: str) -> list[str]:
        return await asyncio.to_thread(postgres_physical.archived_files, self._archive(database, folder))

    async def fetch_wal(self, database: Database, folder: str, name: str, target: Path) -> None:
        await asyncio.to_thread(postgres_physical.compress_wal, self._archive(database, folder), name, target)

    async def drop_wal(self, database: Database, folder: str, name: str) -> None:
        await asyncio.to_thread(postgres_physical.drop_wal, self._archive(database, folder), name)

    async def finish_segment(self, database: Database, access: Access) -> None:
        await asyncio.to_thread(postgres_physical.finish_segment, access)

    async def begin_recovery(self, database: Database, backup: Path, folder: str) -> None:
        await tools.in_thread(postgres_physical.begin_recovery, backup, self._folder(database, folder))

    async def add_wal(self, database: Database, folder: str, name: str, packed: Path) -> None:
        await asyncio.to_thread(postgres_physical.add_wal, packed, self._folder(database, folder), name)

    async def end_recovery(self, database: Database, software: Software, folder: str) -> None:
        seal = partial(self._servers.seal, database.id)
        await tools.in_thread(postgres_physical.end_recovery, software, self._folder(database, folder), seal)

    async def remove_wal(self, database: Database, folder: str) -> None:
        await asyncio.to_thread(folders.remove, self._folder(database, folder) / postgres_physical.WAL)

    def _folder(self, database: Database, folder: str) -> Path:
        return self._servers.folder(database.id, folder)

    def _archive(self, database: Database, folder: str) -> Path:
        return self._folder(database, folder) / ARCHIVE
