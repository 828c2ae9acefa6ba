"""The scheduler: fires the timetable's ticks, each exactly once, however many schedulers run."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.jobs import tables
from moorage.jobs.tables import Due
from moorage.jobs.timetable import Tick, TickHandler, tick_to_fire
from moorage.telemetry import Telemetry

POLL_S = 1.0
BATCH = 200


@dataclass
class Scheduler:
    db: Database
    telemetry: Telemetry
    handlers: dict[str, TickHandler] = field(default_factory=dict)
    _beat_at: float = 0.0

    async def run(self) -> None:
        """Fire what is due until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            try:
                await self.turn()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever a turn meets
                self.telemetry.crashed(None, error, where="scheduler")
            await asyncio.sleep(POLL_S)

    def is_alive(self) -> bool:
        return time.monotonic() - self._beat_at < 10 * POLL_S

    async def turn(self) -> int:
        """Fire everything that is due. Return how many ticks fired."""
        fired = 0
        upcoming = await self.db.peek(lambda tx: tx.find(tables.NEXT_TICK))
        if upcoming is None or upcoming > self.db.env.clock.now():
            return 0
        while due := await self.db.read(lambda tx: tx.all(tables.DUE, now=tx.now, most=BATCH)):
            outcomes = await asyncio.gather(*(self._fire(entry) for entry in due), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                fired += outcome
        return fired

    async def _fire(self, due: Due) -> bool:
        return await self.db.write(lambda tx: self._unit(tx, due))

    @across_organizations("the scheduler fires the entries of every organization")
    def _unit(self, tx: Tx, due: Due) -> bool:
        tick, upcoming = tick_to_fire(due, tx.now)
        if tx.run(tables.ADVANCE, id=due.id, seen=due.next_run_at, next=upcoming, tick=tick) == 0:
            return False
        handler = self.handlers.get(due.kind)
        if tick is None or handler is None:
            return False
        handler(tx, Tick(due.kind, due.org_id, due.ref, tick))
        self.telemetry.metrics.tick_lag.set((tx.now - tick) / 1000)
        return True
