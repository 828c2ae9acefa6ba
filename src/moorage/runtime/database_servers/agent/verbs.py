"""Calls that an agent serves. Their types are the protocol: arguments and results are JSON of them.

The platform names a server by its folder and port, and sends the password of ADMIN with each call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.database_servers import server_folders
from moorage.runtime.database_servers.agent.model import AgentConfig
from moorage.runtime.database_servers.agent.process import Processes
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import (
    ARCHIVE,
    Access,
    Counters,
    Credentials,
    Extension,
    ServerFailed,
    ServerOptions,
    Software,
    StatisticsSession,
)
from moorage.runtime.database_servers.postgres import physical_backups as postgres_physical
from moorage.runtime.database_servers.queries.model import Result, TableDetail, TableSummary, Watchdog
from moorage.runtime.database_servers.queries.runners import runner_of
from moorage.runtime.database_servers.server_folders import WORK, Restored, checked_name

SCRATCH_TIMEOUT_S = 600.0


class Verbs:
    """Each public method is a call. They run in threads, several at a time."""

    def __init__(
        self,
        config: AgentConfig,
        processes: Processes,
        root: Path,
        find_software: Callable[[], Software],
        on_end: Callable[[int], None],
    ) -> None:
        self._config = config
        self._processes = processes
        self._root = root
        self._find_software = find_software
        self._on_end = on_end
        self._kind, self._runner = kind_of(config.type), runner_of(config.type)
        self._making = threading.Lock()
        self._sessions: dict[Access, StatisticsSession] = {}
        self._sessions_lock = threading.Lock()
        self._watchdogs: dict[str, Watchdog] = {}

    # Folders.

    def has_folder(self, folder: str) -> bool:
        """Tell whether a folder has all files of a server; starts the server if it is the configured one."""
        is_complete = server_folders.is_complete(self._kind, self._path(folder), self._config.database_id)
        if is_complete and folder == self._config.folder:
            self._processes.start(folder, self._config.options, self._on_end)
        return is_complete

    def make_folder(self, folder: str) -> None:
        """Create a folder from the template, and start the server if it is the configured one. Safe to repeat."""
        with self._making:
            if folder == self._config.folder and self.has_folder(folder):
                return
            server_folders.make(self._kind, self._find_software(), self._path(folder), self._config.database_id)
            self.has_folder(folder)

    def remove_folder(self, folder: str) -> None:
        self._processes.stop_scratch(folder, 0.0)
        path = self._path(folder)
        for each in (path, path.with_name(f".{folder}.new")):
            folders.remove(each)

    def find_restored(self, job_id: int) -> Restored | None:
        return server_folders.find_restored(self._root, job_id)

    def finish_restored(self, building: str, job_id: int, replaces: str) -> Restored:
        return server_folders.finish_restored(self._root, building, job_id, replaces)

    def mark_superseded(self, folder: str, now: int) -> None:
        server_folders.mark_superseded(self._path(folder), now)

    def sweep(self, used: list[str], superseded: int, abandoned: int) -> None:
        server_folders.sweep(self._root, used, superseded, abandoned)

    def used_bytes(self, folder: str) -> int:
        return folders.used_bytes(self._path(folder))

    def free_bytes(self) -> int:
        """Return the free space of the volume."""
        figures = os.statvfs(self._root)
        return figures.f_bavail * figures.f_frsize

    # Scratch servers.

    def start_scratch(self, folder: str, options: ServerOptions, password: str) -> None:
        self._path(folder)
        self._processes.start_scratch(folder, options, password, SCRATCH_TIMEOUT_S)

    def stop_scratch(self, folder: str, grace_s: float) -> None:
        self._processes.stop_scratch(folder, grace_s)

    # Administration: see ServerKind.

    def ping(self, access: Access) -> bool:
        return self._kind.ping(self._at(access))

    def set_admin_password(self, access: Access) -> None:
        self._kind.set_admin_password(self._find_software(), self._at(access))

    def provision(self, access: Access, credentials: Credentials, replica_password: str | None) -> None:
        self._kind.provision(self._at(access), credentials, replica_password)

    def set_password(self, access: Access, credentials: Credentials) -> None:
        self._kind.set_password(self._at(access), credentials)

    def set_read_only(self, access: Access, credentials: Credentials, on: bool) -> None:
        self._kind.set_read_only(self._at(access), credentials, on)

    def end_sessions(self, access: Access) -> None:
        self._kind.end_sessions(self._at(access))

    def version(self, access: Access) -> str:
        return self._kind.version(self._at(access))

    def extensions(self, access: Access, credentials: Credentials) -> list[Extension]:
        return self._kind.extensions(self._at(access), credentials)

    def count_rows(self, access: Access, credentials: Credentials) -> dict[str, int]:
        return self._kind.count_rows(self._at(access), credentials)

    def counters(self, access: Access) -> Counters:
        """Read the counters with a connection that is kept: MySQL counts by session."""
        local = self._at(access)
        with self._sessions_lock:
            session = self._sessions.pop(local, None) or self._kind.session(local)
            try:
                counters = session.counters()
            except ServerFailed:
                session.close()
                raise
            self._sessions[local] = session
            return counters

    # Dumps.

    def dump(self, access: Access, credentials: Credentials, name: str) -> None:
        """Write a dump to a file of this name, which is downloaded and removed afterwards."""
        target = self.file(name)
        target.unlink(missing_ok=True)
        self._kind.dump(self._find_software(), self._at(access), credentials, target)

    def load(self, access: Access, credentials: Credentials, name: str) -> None:
        """Load an uploaded dump."""
        self._kind.load(self._find_software(), self._at(access), credentials, self.file(name))

    def remove_file(self, name: str) -> None:
        self.file(name).unlink(missing_ok=True)

    # Physical backups of PostgreSQL.

    def copy(self, access: Access, name: str) -> str:
        """Write a base backup to a file of this name; return the first WAL segment that it needs."""
        target = self.file(name)
        work = target.with_name(f"{name}.copy")
        used = self.used_bytes(access.folder)
        if self.free_bytes() < 2 * used:
            raise ServerFailed(
                f"its volume has no room for a base backup of {used >> 20} MB, which is packed beside the data: "
                "a larger tier has more, and logical backups need less"
            )
        folders.remove(work)
        work.mkdir(mode=0o700)
        try:
            return postgres_physical.copy(self._find_software(), self._at(access), work, target)[1]
        finally:
            folders.remove(work)

    def archived(self, folder: str) -> list[str]:
        return postgres_physical.archived_files(self._path(folder) / ARCHIVE)

    def compress_wal(self, folder: str, file: str, name: str) -> None:
        """Write an archived WAL file to a file of this name."""
        postgres_physical.compress_wal(self._path(folder) / ARCHIVE, checked_name(file), self.file(name))

    def drop_wal(self, folder: str, file: str) -> None:
        postgres_physical.drop_wal(self._path(folder) / ARCHIVE, checked_name(file))

    def finish_segment(self, access: Access) -> None:
        postgres_physical.finish_segment(self._at(access))

    def begin_recovery(self, folder: str, name: str) -> None:
        """Unpack an uploaded base backup."""
        postgres_physical.begin_recovery(self.file(name), self._path(folder))

    def add_wal(self, folder: str, file: str, name: str) -> None:
        """Add an uploaded WAL file to the folder to recover."""
        postgres_physical.add_wal(self.file(name), self._path(folder), file)

    def end_recovery(self, folder: str) -> None:
        seal = partial(server_folders.seal, database_id=self._config.database_id)
        postgres_physical.end_recovery(self._find_software(), self._path(folder), seal)

    def remove_wal(self, folder: str) -> None:
        folders.remove(self._path(folder) / postgres_physical.WAL)

    # Statements of users: see QueryRunner. The platform ends one by the number that it gave it.

    def run_statement(self, access: Access, credentials: Credentials, sql: str, may_write: bool, call: str) -> Result:
        watchdog = self._watch(call)
        try:
            return self._runner.run(self._at(access), credentials, sql, may_write=may_write, watchdog=watchdog)
        finally:
            self._watchdogs.pop(call, None)

    def tables(self, access: Access, credentials: Credentials, call: str) -> list[TableSummary]:
        try:
            return self._runner.tables(self._at(access), credentials, self._watch(call))
        finally:
            self._watchdogs.pop(call, None)

    def find_table(
        self, access: Access, credentials: Credentials, schema: str, name: str, call: str
    ) -> TableDetail | None:
        try:
            return self._runner.find_table(self._at(access), credentials, schema, name, self._watch(call))
        finally:
            self._watchdogs.pop(call, None)

    def cancel(self, call: str) -> None:
        if (watchdog := self._watchdogs.get(call)) is not None:
            watchdog.fire()

    # Private: no calls.

    def _watch(self, call: str) -> Watchdog:
        return self._watchdogs.setdefault(call, Watchdog())

    def _path(self, folder: str) -> Path:
        return self._root / checked_name(folder)

    def file(self, name: str) -> Path:
        work = self._root / WORK
        work.mkdir(mode=0o700, exist_ok=True)
        return work / checked_name(name)

    def _at(self, access: Access) -> Access:
        return Access(str(self._path(access.folder)), access.port, access.password)
