"""Reads the gateway's access log as it grows, and counts every line exactly once.

One transaction stores the figures of a batch and the read position after it, so a crash neither loses nor doubles a
line. That holds for every consumer of the lines: analytics is one, other products add theirs. A rotated file is deleted
after its last line is counted and before the next file is read: in the opposite order, a crash between the two steps
would make the rotated file be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.products.analytics import counting, tables
from moorage.products.analytics.counting import Consumer, FindHost, PositionConflict
from moorage.products.analytics.log_files import Batch, Fingerprint, LogFile, fingerprint_of, open_all
from moorage.products.analytics.tables import LogPosition
from moorage.products.functions.records.spool import ensure_id
from moorage.settings import Settings

POLL_S = 1.0


class Ingest:
    """Counts the access log of one folder.

    `find_host` returns the owner of a host; requests to other hosts are not counted. The consumers of `also` get the
    requests of every project, even if its analytics is switched off.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        telemetry: Telemetry,
        find_host: FindHost,
        also: Iterable[Consumer] = (),
    ) -> None:
        self._db = db
        self._telemetry = telemetry
        self._find_host = find_host
        self._consumers: tuple[Consumer, ...] = (counting.count_visits, *also)
        self._folder = settings.folder("logs")
        self._id = ""
        self._position: LogPosition | None = None
        self._fingerprint: Fingerprint | None = None  # of the files when they were last counted
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Poll the log and count new lines until cancelled."""
        await Rounds(self._telemetry, "analytics", POLL_S).run(self._catch_up_if_changed)

    async def _catch_up_if_changed(self) -> None:
        # Two system calls in the event loop cost less than a thread, once a second on an idle platform.
        fingerprint = fingerprint_of(self._folder)
        if fingerprint != self._fingerprint:
            await self.catch_up()
            self._fingerprint = fingerprint

    async def catch_up(self) -> None:
        """Count every line that was written before the call."""
        async with self._lock:
            while not await self._pass():
                continue

    async def _pass(self) -> bool:
        """Count the new lines of every file; return False if another process counted too."""
        try:
            if not self._id:
                self._id = await asyncio.to_thread(ensure_id, self._folder)
                self._position = await self._db.read(self._find_position)
            with ExitStack() as opened:
                files = [opened.enter_context(file) for file in await asyncio.to_thread(open_all, self._folder)]
                for file in _partly_read_first(files, self._position):
                    await self._drain(file)
        except PositionConflict:
            self._position = await self._db.read(self._find_position)
            return False
        except BaseException:
            self._id = ""  # The stored position is unknown now: the next pass reads it again.
            raise
        return True

    async def _drain(self, file: LogFile) -> None:
        if self._position is not None:
            file.resume_at(self._position)
        while (batch := await asyncio.to_thread(file.read)) is not None:
            if batch.unreadable:
                self._telemetry.log.warning("the access log has lines that cannot be parsed", lines=batch.unreadable)
            await self._db.write(partial(self._store, batch=batch))
            self._position = batch.to
        if file.is_rotated:
            await asyncio.to_thread(file.delete)

    @across_organizations("one batch has requests for many projects")
    def _store(self, tx: Tx, batch: Batch) -> None:
        counting.store(tx, self._id, self._position, batch.to, batch.hits, self._find_host, self._consumers)

    @across_organizations("access logs belong to the platform")
    def _find_position(self, tx: Tx) -> LogPosition | None:
        return tx.find(tables.FIND_POSITION, folder=self._id)


def _partly_read_first(files: list[LogFile], position: LogPosition | None) -> Iterable[LogFile]:
    """Move the partly read file to the front; all others are unread."""
    return files if position is None else sorted(files, key=lambda file: not file.resume_at(position))


@across_organizations("the host name determines the organization")
def find_own_host(tx: Tx, host: str) -> tuple[int, int] | None:
    """Return the organization id and project id of a subdomain of the platform."""
    name, dot, domain = host.partition(".")
    if not dot or domain != tx.env.settings.domain:
        return None
    return tx.find(tables.PROJECT_NAMED, name=name)
