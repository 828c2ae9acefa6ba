"""The scheduler: fires the timetable's ticks, each exactly once, however many schedulers run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field

from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.jobs import tables
from moorage.jobs.tables import Due
from moorage.jobs.timetable import Tick, TickHandler, tick_to_fire
from moorage.telemetry import Telemetry

POLL_S = 1.0
BATCH = 500
TOGETHER = 50  # Ticks of one transaction. Thousands fall on the same minute, and a commit each would take seconds.


@dataclass
class Scheduler:
    db: Database
    telemetry: Telemetry
    handlers: dict[str, TickHandler] = field(default_factory=dict)
    skip: str = ""  # a kind that this process cannot handle, and others can
    _beat_at: float = 0.0

    async def run(self) -> None:
        """Fire what is due until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            pause_s = POLL_S
            try:
                await self.turn()
                pause_s = await self._pause_s()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever a turn meets
                self.telemetry.crashed(None, error, where="scheduler")
            await asyncio.sleep(pause_s)

    def is_alive(self) -> bool:
        return time.monotonic() - self._beat_at < 10 * POLL_S

    async def turn(self) -> int:
        """Fire everything that is due. Return how many ticks fired."""
        fired = 0
        upcoming = await self.db.peek(lambda tx: tx.find(tables.NEXT_TICK, skip=self.skip))
        if upcoming is None or upcoming > self.db.env.clock.now():
            return 0
        while due := await self.db.read(lambda tx: tx.all(tables.DUE, now=tx.now, most=BATCH, skip=self.skip)):
            fired += await _all(self._fire(due[at : at + TOGETHER]) for at in range(0, len(due), TOGETHER))
        return fired

    async def _pause_s(self) -> float:
        """Return how long nothing is due; never longer than a poll, because an earlier tick may be added meanwhile."""
        upcoming: int | None = await self.db.peek(lambda tx: tx.find(tables.NEXT_TICK, skip=self.skip))
        if upcoming is None:
            return POLL_S
        return min(max(upcoming - self.db.env.clock.now(), 0) / 1000, POLL_S)

    async def _fire(self, due: Sequence[Due]) -> int:
        """Fire some ticks in one transaction; where one of them fails, each in its own, so that the others fire."""
        try:
            return await self.db.write(lambda tx: sum([self._unit(tx, each) for each in due]))
        except Exception:
            if len(due) == 1:
                raise
        return await _all(self._fire([each]) for each in due)

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


async def _all(fires: Iterable[Awaitable[int]]) -> int:
    """Wait for all of them, then raise what one of them raised; return the sum."""
    outcomes = await asyncio.gather(*fires, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return sum(outcome for outcome in outcomes if isinstance(outcome, int))
