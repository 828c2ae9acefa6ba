"""Keeping databases within the disk of their tier.

One that has used it up takes no more data but can be read and emptied, and says so. Its log counts as well: it is on
the same disk.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from moorage.core.db.store import Database as Store
from moorage.core.kit import folders
from moorage.core.telemetry import Telemetry
from moorage.products.databases.metrics.service import DiskLook
from moorage.products.databases.metrics.tables import REASON
from moorage.products.databases.servers import Servers
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.threads import Aside
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.sandbox.usage.open_files import UnnamedFiles

EVERY_S = 60.0  # To walk through a folder of many tables takes a while.
WALK_S = 60.0
TELL_S = 10.0
WARN_S = 600.0
ROOMY = 0.95  # One that was full takes data again below this part of its disk, and not at every byte that goes.
GB, MB = 2**30, 2**20
GROWTH = 16 * MB  # between two looks: so much while the disk of the machine is nearly full, and it may not grow on
NO_ROOM = f"{REASON}: this machine has almost no disk space left, so no more data can be added until there is some"


def is_full(used: int, disk_gb: int, was_full: bool) -> bool:
    """Tell whether a database may not grow any more."""
    limit = disk_gb * GB
    return used >= limit * ROOMY if was_full else used > limit


def reason_of(used: int, disk_gb: int) -> str:
    return f"{REASON} ({used / GB:.2f} of {disk_gb} GB): no more data can be added; delete data or choose a larger tier"


@dataclass
class Watched:
    """What is remembered of one database between two looks."""

    looked_at: float = 0.0
    tier: str | None = None
    folder: str | None = None
    used: int | None = None
    unnamed: UnnamedFiles | None = None
    aside: Aside = field(default_factory=Aside)


class DiskWatch:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._settings = db.env.settings
        self._servers = servers
        self._telemetry = telemetry
        self._watched: dict[int, Watched] = {}
        self._warned_at: float | None = None

    async def look(self, found: Database, primary: Server) -> DiskLook | None:
        """Measure a database and stop it from growing, or let it grow again; None where it is not time for that."""
        its = self._watched.setdefault(found.id, Watched())
        is_same = (its.tier, its.folder) == (found.instance_type, primary.folder)
        if is_same and time.monotonic() - its.looked_at < EVERY_S:
            return None
        try:
            used = await its.aside.run(partial(self._used_bytes, its, found, primary), WALK_S)
            has_grown, its.used = its.used is not None and used - its.used >= GROWTH, used
            is_starved = (has_grown or found.is_full) and not self.has_room()
            full = is_starved or is_full(used, found.tier.disk, found.is_full)
            # Users can take back what was said to some servers, and a restore brings a folder with an older say: so
            # it is said again. That does nothing to a server which knows.
            if full or found.is_full or its.folder != primary.folder:
                await self._tell(its, found, primary, full)
        except (ServerFailed, TimeoutError) as error:
            self._telemetry.log.warning("a database is not kept within its disk", database=found.id, why=str(error))
            return None
        its.looked_at, its.tier, its.folder = time.monotonic(), found.instance_type, primary.folder
        has_reason = found.is_full and found.status_reason is not None
        reason = NO_ROOM if is_starved else reason_of(used, found.tier.disk)
        return DiskLook(used, full, reason if full and not has_reason else None)

    def _used_bytes(self, its: Watched, found: Database, primary: Server) -> int:
        """Return what the files of a server take, and those that it has deleted and holds open; in a thread."""
        place = str(self._servers.place(found.id, primary.folder))
        state = self._servers.engine.states().get(primary.key)
        if its.unnamed is None or its.folder != primary.folder:
            its.unnamed = UnnamedFiles({self._servers.inside(place): place}, is_boxed=self._servers.is_sandboxed)
        pids = process_tree.with_descendants([state.app_pid] if state and state.app_pid else [])
        return its.unnamed.used_bytes(pids) + folders.used_bytes(place, its.unnamed.note)

    async def _tell(self, its: Watched, found: Database, primary: Server, full: bool) -> None:
        """Say to a server what it may take. The row follows, so that this happens again after a crash in between."""
        access = await self._servers.access(found, primary)
        names = (await self._servers.secrets(found)).names
        kind = self._servers.kind(found)
        await its.aside.run(partial(kind.set_read_only, access, names, full), TELL_S)
        if full != found.is_full:
            self._telemetry.log.info("a database is full" if full else "a database has room again", database=found.id)

    def keep_only(self, database_ids: Collection[int]) -> None:
        """Forget all other databases."""
        for gone in [each for each in self._watched if each not in database_ids]:
            del self._watched[gone]

    def check_machine(self) -> bool:
        """Tell whether there is room on this machine, and warn every now and then where there is not."""
        if self.has_room():
            return True
        now, reserve_mb = time.monotonic(), self._settings.disk_reserve_mb
        free = shutil.disk_usage(self._settings.data).free
        if self._warned_at is None or now - self._warned_at >= WARN_S:
            self._warned_at = now
            self._telemetry.log.warning(
                "the disk of the databases is almost full", free_mb=free // MB, reserve_mb=reserve_mb
            )
        return False

    def has_room(self) -> bool:
        return shutil.disk_usage(self._settings.data).free >= self._settings.disk_reserve_mb * MB
