"""What differs between servers on folders of this machine and servers behind agents."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from moorage.core.kit.records import dataclass
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import Access, Credentials, ServerKind, ServerOptions, Software
from moorage.runtime.database_servers.queries.model import QueryRunner
from moorage.runtime.database_servers.server_folders import Restored
from moorage.runtime.engines.ports import CannotStart, ServerSpec


class FolderGone(CannotStart):
    """The files of a server are missing, so another attempt is useless."""


CERTIFICATES = "agent"  # name of an agent's certificates in the vault
FOLDER_GONE = "its data folder is gone or incomplete; nothing was started in its place"


@dataclass(frozen=True, slots=True)
class Secrets:
    credentials: Credentials
    admin: str
    replica: str
    agent: str | None = None  # certificates of its agent


class Folders(Protocol):
    """Folders of a database, each named like `s1`."""

    async def make(self, database: Database, software: Software, folder: str) -> None:
        """Create a server's folder from the template, replacing a previous one."""
        ...

    async def remove(self, database: Database, folder: str) -> None:
        """End a scratch server on a folder, and delete it with its temporary copy. Safe to repeat."""
        ...

    async def find_restored(self, database: Database, job_id: int) -> Restored | None: ...

    async def finish_restored(self, database: Database, building: str, job_id: int, replaces: str) -> Restored: ...

    async def mark_superseded(self, database: Database, folder: str, now: int) -> None: ...

    async def sweep(self, database: Database, used: Collection[str], superseded: int, abandoned: int) -> None:
        """Delete replaced folders and leftovers of dead jobs that are older than these times."""
        ...


class Trash(Protocol):
    """Files of deleted databases."""

    async def put(self, database: Database) -> None: ...

    async def take_back(self, database: Database) -> None: ...

    async def purge(self, database: Database) -> None: ...


class PhysicalBackups(Protocol):
    """Base backups and archived WAL of PostgreSQL servers, and folders that are recovered from them."""

    async def copy(self, database: Database, software: Software, access: Access, target: Path) -> tuple[int, str]:
        """Write a base backup to a file; return its number of files and the first WAL segment that it needs."""
        ...

    async def archived(self, database: Database, folder: str) -> list[str]:
        """Return the archived WAL files of a server's folder, oldest first."""
        ...

    async def fetch_wal(self, database: Database, folder: str, name: str, target: Path) -> None:
        """Write an archived WAL file to a compressed file."""
        ...

    async def drop_wal(self, database: Database, folder: str, name: str) -> None: ...

    async def finish_segment(self, database: Database, access: Access) -> None:
        """Archive the WAL of all acknowledged transactions."""
        ...

    async def begin_recovery(self, database: Database, backup: Path, folder: str) -> None: ...

    async def add_wal(self, database: Database, folder: str, name: str, packed: Path) -> None: ...

    async def end_recovery(self, database: Database, software: Software, folder: str) -> None:
        """Verify the files; a scratch server on the folder then replays the WAL."""
        ...

    async def remove_wal(self, database: Database, folder: str) -> None:
        """Delete the WAL that a scratch server has replayed."""
        ...


class Host(Protocol):
    has_agents: bool

    @property
    def folders(self) -> Folders: ...

    @property
    def trash(self) -> Trash: ...

    @property
    def physical(self) -> PhysicalBackups: ...

    def kind(self, database: Database) -> ServerKind: ...

    def runner(self, database: Database) -> QueryRunner: ...

    def access(self, database: Database, server: Server, secrets: Secrets) -> Access:
        """Return how the platform connects to a server. Called before each call of its kind or runner."""
        ...

    async def prepare(
        self, database: Database, server: Server, options: ServerOptions, new: Software | None
    ) -> ServerSpec:
        """Return the spec of a server; `new` is the software of a server whose folder may not exist yet.

        Raises FolderGone if its files are incomplete.
        """
        ...

    async def started(self, database: Database, server: Server, new: Software | None) -> None:
        """Complete a start after the workload runs. Raises FolderGone and CannotStart."""
        ...

    def scratch(self, database: Database, folder: str, options: ServerOptions) -> AbstractAsyncContextManager[Access]:
        """Run a private server on a folder for the duration of the block."""
        ...

    def used_bytes(self, database: Database, server: Server) -> int:
        """Return the size of a server's files. Blocks."""
        ...
