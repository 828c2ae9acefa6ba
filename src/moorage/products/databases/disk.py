"""Enforces the disk size of a database's tier.

A database that exceeds it becomes read-only except for deletes, and shows the reason in its status. The size includes
the WAL or binlog, which is on the same disk.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from dataclasses import field
from functools import partial

from moorage.core.db.store import Database as Store
from moorage.core.kit.records import dataclass
from moorage.core.telemetry import Telemetry
from moorage.products.databases.metrics.service import DiskUsage
from moorage.products.databases.metrics.tables import REASON
from moorage.products.databases.servers import Servers
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.threads import SingleCallThread
from moorage.runtime.database_servers.ports import ServerFailed

MEASURE_INTERVAL_S = 60.0  # Walking a folder with many tables takes a while.
WALK_TIMEOUT_S = 60.0
READ_ONLY_TIMEOUT_S = 10.0
WARN_INTERVAL_S = 600.0
WRITABLE_RATIO = 0.95  # A full database becomes writable below this part of its disk, so that it does not flap.
GB, MB = 2**30, 2**20
GROWTH = 16 * MB  # A database that grows so much between two measurements becomes full on an almost full machine.
NO_ROOM = f"{REASON}: this machine has almost no disk space left, so no more data can be added until there is some"


def is_full(used: int, disk_gb: int, was_full: bool) -> bool:
    """Tell whether a database has to be read-only."""
    limit = disk_gb * GB
    return used >= limit * WRITABLE_RATIO if was_full else used > limit


def reason_of(used: int, disk_gb: int) -> str:
    return f"{REASON} ({used / GB:.2f} of {disk_gb} GB): no more data can be added; delete data or choose a larger tier"


@dataclass
class DiskState:
    """Last measurement of a database."""

    measured_at: float = 0.0
    tier: str | None = None
    folder: str | None = None
    used: int | None = None
    key: str | None = None  # of the server that was measured
    thread: SingleCallThread = field(default_factory=SingleCallThread)


class DiskWatch:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._settings = db.env.settings
        self._servers = servers
        self._telemetry = telemetry
        self._states: dict[int, DiskState] = {}  # by database id
        self._warned_at: float | None = None

    async def measure(self, database: Database, primary: Server) -> DiskUsage | None:
        """Measure a database and make it read-only or writable; None if not due."""
        state = self._states.setdefault(database.id, DiskState())
        is_same = (state.tier, state.folder) == (database.instance_type, primary.folder)
        if is_same and time.monotonic() - state.measured_at < MEASURE_INTERVAL_S:
            return None
        try:
            await self._servers.access(database, primary)
            used = await state.thread.run(partial(self._used_bytes, state, database, primary), WALK_TIMEOUT_S)
            has_grown, state.used = state.used is not None and used - state.used >= GROWTH, used
            is_starved = (has_grown or database.is_full) and not self.has_room()
            full = is_starved or is_full(used, database.tier.disk, database.is_full)
            # Apply the mode again: users can undo it on some servers, and a restore may have undone it. A server that
            # has the mode already is not changed.
            if full or database.is_full or state.folder != primary.folder:
                await self._set_read_only(state, database, primary, full)
        except (ServerFailed, TimeoutError) as error:
            self._telemetry.log.warning("cannot enforce the disk limit", database=database.id, why=str(error))
            return None
        state.measured_at, state.tier, state.folder = time.monotonic(), database.instance_type, primary.folder
        has_reason = database.is_full and database.status_reason is not None
        reason = NO_ROOM if is_starved else reason_of(used, database.tier.disk)
        return DiskUsage(used, full, reason if full and not has_reason else None)

    def _used_bytes(self, state: DiskState, database: Database, primary: Server) -> int:
        """Return the size of a server's files. Blocks."""
        state.key = primary.key
        return self._servers.host.used_bytes(database, primary)

    async def _set_read_only(self, state: DiskState, database: Database, primary: Server, full: bool) -> None:
        """Change the server before the row, so that a crash in between repeats the change."""
        access = await self._servers.access(database, primary)
        credentials = (await self._servers.secrets(database)).credentials
        kind = self._servers.kind(database)
        await state.thread.run(partial(kind.set_read_only, access, credentials, full), READ_ONLY_TIMEOUT_S)
        if full != database.is_full:
            self._telemetry.log.info("database full" if full else "database has room again", database=database.id)

    def keep_only(self, database_ids: Collection[int]) -> None:
        for gone in [each for each in self._states if each not in database_ids]:
            if (key := self._states.pop(gone).key) is not None:
                self._servers.metrics.forget(key)

    def check_machine(self) -> bool:
        """Tell whether the disk has room; logs a warning every 10 minutes if not."""
        if self.has_room():
            return True
        now, reserve_mb = time.monotonic(), self._settings.disk_reserve_mb
        free = shutil.disk_usage(self._settings.data).free
        if self._warned_at is None or now - self._warned_at >= WARN_INTERVAL_S:
            self._warned_at = now
            self._telemetry.log.warning(
                "the disk of the databases is almost full", free_mb=free // MB, reserve_mb=reserve_mb
            )
        return False

    def has_room(self) -> bool:
        """Tell whether the disk of this machine has room; behind agents, each database has a volume of its own."""
        return (
            self._servers.host.has_agents
            or shutil.disk_usage(self._settings.data).free >= self._settings.disk_reserve_mb * MB
        )
