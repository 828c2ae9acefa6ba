"""Reads the gateway's access log as it grows, and counts every line exactly once.

What a batch of lines adds to the figures and the place after it are one transaction, so a crash anywhere neither loses
nor doubles a line. That holds for every consumer of the lines: analytics is one, features above it may bring others.
A rotated file is deleted when its last line is counted, before a line of the next one is: were it the other way round,
a crash between the two would have it read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.products.analytics import counting, tables
from moorage.products.analytics.counting import Consumer, FindHost, MovedOn
from moorage.products.analytics.log_files import Batch, LogFile, open_all
from moorage.products.analytics.tables import Place
from moorage.products.functions.records.spool import ensure_id
from moorage.settings import Settings

POLL_S = 1.0


class Ingest:
    """Counts the log of one folder. `find_host` says whose a host is; what is nobody's is not counted.

    `also` is told of the same lines as analytics, of every project whether it has analytics or not.
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
        self._place: Place | None = None
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            try:
                await self.catch_up()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever the store or the disk meets
                self._telemetry.crashed(None, error, where="analytics")
            await asyncio.sleep(POLL_S)

    async def catch_up(self) -> None:
        """Count every line that was written before the call."""
        async with self._one_at_a_time:
            while not await self._pass():
                continue

    async def _pass(self) -> bool:
        """Count what is new in every file. Return False where somebody else counted too and one has to look again."""
        try:
            if not self._id:
                self._id = await asyncio.to_thread(ensure_id, self._folder)
                self._place = await self._db.read(self._find_place)
            with ExitStack() as opened:
                files = [opened.enter_context(file) for file in await asyncio.to_thread(open_all, self._folder)]
                for file in _begun_first(files, self._place):
                    await self._drain(file)
        except MovedOn:
            self._place = await self._db.read(self._find_place)
            return False
        except BaseException:
            self._id = ""  # What the store has now is not known, so it is asked again.
            raise
        return True

    async def _drain(self, file: LogFile) -> None:
        if self._place is not None:
            file.go_on_from(self._place)
        while (batch := await asyncio.to_thread(file.read)) is not None:
            if batch.unreadable:
                self._telemetry.log.warning("the access log has lines that are none", lines=batch.unreadable)
            await self._db.write(partial(self._store, batch=batch))
            self._place = batch.to
        if file.is_rotated:
            await asyncio.to_thread(file.delete)

    @across_organizations("one batch has requests for many projects")
    def _store(self, tx: Tx, batch: Batch) -> None:
        counting.store(tx, self._id, self._place, batch.to, batch.hits, self._find_host, self._consumers)

    @across_organizations("logs are the platform's")
    def _find_place(self, tx: Tx) -> Place | None:
        return tx.find(tables.FIND_PLACE, folder=self._id)


def _begun_first(files: list[LogFile], place: Place | None) -> Iterable[LogFile]:
    """Put the file first that was being read; the others have not been begun."""
    return files if place is None else sorted(files, key=lambda file: not file.go_on_from(place))


@across_organizations("a name is a subdomain, and there is one of each")
def find_own_host(tx: Tx, host: str) -> tuple[int, int] | None:
    """Return whose a subdomain of this platform is: the organization's id and the project's."""
    name, dot, domain = host.partition(".")
    if not dot or domain != tx.env.settings.domain:
        return None
    return tx.find(tables.PROJECT_NAMED, name=name)
