"""Physical backups of servers behind agents: the agent makes and unpacks them on its volume."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moorage.products.databases.tables import Database
from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.agent.client import AgentAway, AgentClient
from moorage.runtime.database_servers.agent.remote import ANSWER_TIMEOUT_S
from moorage.runtime.database_servers.ports import Access, ServerFailed, Software
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical

SEGMENT_BYTES = 16 * 2**20  # of a WAL file
ARCHIVE_TIMEOUT_S = ANSWER_TIMEOUT_S + postgres_physical.ARCHIVE_TIMEOUT_S


class AgentPhysicalBackups:
    def __init__(self, find_client: Callable[[Database], AgentClient]) -> None:
        self._find_client = find_client  # raises ServerFailed while there is none

    async def copy(self, database: Database, software: Software, access: Access, target: Path) -> tuple[int, str]:
        return await tools.in_thread(self._copy, database, access, target)

    def _copy(self, database: Database, access: Access, target: Path) -> tuple[int, str]:
        client = self._find_client(database)
        with _file_of(client, "copy") as name:
            first = str(client.call("copy", access, name, returns=str))
            client.download(name, target)
        return postgres_physical.check(target), first

    async def archived(self, database: Database, folder: str) -> list[str]:
        try:
            found: list[str] = await self._call(database, "archived", folder, returns=list[str])
        except AgentAway:
            return []  # Its volume keeps them.
        return postgres_physical.wal_files(found)

    async def fetch_wal(self, database: Database, folder: str, name: str, target: Path) -> None:
        await tools.in_thread(self._fetch_wal, database, folder, name, target)

    def _fetch_wal(self, database: Database, folder: str, name: str, target: Path) -> None:
        client = self._find_client(database)
        target.unlink(missing_ok=True)
        with _file_of(client, "wal") as file:
            client.call("compress_wal", folder, name, file)
            client.download(file, target)

    async def drop_wal(self, database: Database, folder: str, name: str) -> None:
        await self._call(database, "drop_wal", folder, name)

    async def finish_segment(self, database: Database, access: Access) -> None:
        await self._call(database, "finish_segment", access, timeout_s=ARCHIVE_TIMEOUT_S)

    async def begin_recovery(self, database: Database, backup: Path, folder: str) -> None:
        size = (await asyncio.to_thread(backup.stat)).st_size
        needed = size + max(size, database.disk_bytes)
        await tools.in_thread(self._send, database, backup, needed, "begin_recovery", folder)

    async def add_wal(self, database: Database, folder: str, name: str, packed: Path) -> None:
        await tools.in_thread(self._send, database, packed, 2 * SEGMENT_BYTES, "add_wal", folder, name)

    def _send(self, database: Database, file: Path, needed: int, verb: str, *arguments: Any) -> None:
        """Upload a file for a call, whose last argument is its name; `needed` is the room for it, packed and not."""
        client = self._find_client(database)
        if client.call("free_bytes", returns=int, timeout_s=ANSWER_TIMEOUT_S) < needed:
            raise ServerFailed("its volume has no room for the restored data beside the current data")
        with _file_of(client, "recovery") as name:
            client.upload(file, name)
            client.call(verb, *arguments, name)

    async def end_recovery(self, database: Database, software: Software, folder: str) -> None:
        await asyncio.to_thread(self._find_client(database).call, "end_recovery", folder)

    async def remove_wal(self, database: Database, folder: str) -> None:
        await self._call(database, "remove_wal", folder)

    async def _call(self, database: Database, verb: str, *arguments: Any, **options: Any) -> Any:
        options.setdefault("timeout_s", ANSWER_TIMEOUT_S)
        return await asyncio.to_thread(self._find_client(database).call, verb, *arguments, **options)


@contextlib.contextmanager
def _file_of(client: AgentClient, stem: str) -> Iterator[str]:
    """Return a new name of a file on the agent's volume; remove the file afterwards."""
    name = f"{stem}-{secrets.token_hex(8)}"
    try:
        yield name
    finally:
        with contextlib.suppress(ServerFailed):  # The agent is away; the sweep of old files removes it.
            client.call("remove_file", name, timeout_s=ANSWER_TIMEOUT_S)
