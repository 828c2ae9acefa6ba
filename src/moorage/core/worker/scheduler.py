"""The scheduler: fires each tick exactly once, also with several schedulers.

Once a minute, and right after a change of the system clock, it corrects times that were stored while the clock was
ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field

from moorage.core.db.commits import Commits
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import corrections, tables
from moorage.core.jobs.corrections import Correction
from moorage.core.jobs.tables import Due
from moorage.core.jobs.timetable import Tick, TickHandler, tick_to_fire
from moorage.core.kit.clock import to_wire
from moorage.core.kit.records import dataclass
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import LEASE_MS

POLL_S = 1.0  # after a failed turn, and where other processes add entries
MAX_PAUSE_S = 5.0
BATCH = 500
CORRECTION_INTERVAL_S = 60.0
TICKS_PER_COMMIT = 50  # Thousands of ticks can be due in the same minute; a commit for each would take seconds.


@dataclass
class Scheduler:
    db: Database
    telemetry: Telemetry
    handlers: dict[str, TickHandler] = field(default_factory=dict)
    skip: tuple[str, str] = ("", "")  # kinds that only other processes can handle; "" for none
    steady: Callable[[], float] = time.monotonic
    _heartbeat_at: float = 0.0
    _correct_at: float = float("-inf")
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    # The verified next tick of each entry. It stays correct until the clock is set.
    _verified: dict[int, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Fire due ticks until cancelled."""
        commits = self.db.commits or Commits()
        while True:
            self._heartbeat_at = time.monotonic()
            self._wake.clear()
            pause_s = POLL_S
            seen = commits.count
            try:
                await self.turn()
                seen = commits.count
                pause_s = await self._pause_s()
            except Exception as error:  # noqa: BLE001 - an error must not end the scheduler loop
                self.telemetry.crashed(None, error, where="scheduler")
            # A commit may have added an earlier tick. Bursts of commits cost one turn every POLL_S.
            await self._sleep(min(pause_s, POLL_S))
            if pause_s > POLL_S and not self._wake.is_set():
                await commits.wait(seen, self._wake, pause_s - POLL_S)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def is_alive(self) -> bool:
        return time.monotonic() - self._heartbeat_at < 10 * POLL_S

    def correct_soon(self) -> None:
        """Check all stored times in the next turn, because the clock was set."""
        self._verified = {}
        self._correct_at = float("-inf")
        self._wake.set()

    async def turn(self) -> int:
        """Fire all due ticks and return their number."""
        fired = 0
        if self.steady() >= self._correct_at:
            self._correct_at = self.steady() + CORRECTION_INTERVAL_S
            await self._correct()
        upcoming = await self.db.peek(lambda tx: tx.find(tables.NEXT_TICK, **self._skipped))
        if upcoming is None or upcoming > self.db.env.clock.now():
            return 0
        while due := await self.db.read(lambda tx: tx.all(tables.DUE, now=tx.now, most=BATCH, **self._skipped)):
            fired += await _gather(
                self._fire(due[at : at + TICKS_PER_COMMIT]) for at in range(0, len(due), TICKS_PER_COMMIT)
            )
        return fired

    @property
    def _skipped(self) -> dict[str, str]:
        return dict(zip(("skipped", "also_skipped"), self.skip, strict=True))

    async def _correct(self) -> None:
        verified: dict[int, int] = {}
        after = 0
        while entries := await self.db.read(lambda tx: corrections.find_ahead(tx, after)):  # noqa: B023
            after = entries[-1].id
            new = [entry for entry in entries if self._verified.get(entry.id) != entry.next_run_at]
            verified.update((entry.id, entry.next_run_at) for entry in entries)
            wrong = await asyncio.to_thread(_find_wrong, new, self.db.env.clock.now())
            if wrong:
                self._warn(await self.db.write(lambda tx: corrections.correct_ticks(tx, wrong)))  # noqa: B023
                for entry in wrong:
                    del verified[entry.id]
        self._verified = verified
        if await self.db.read(lambda tx: corrections.has_jobs_ahead(tx, LEASE_MS)):
            self._warn(await self.db.write(lambda tx: corrections.correct_jobs(tx, LEASE_MS)))

    def _warn(self, made: Sequence[Correction]) -> None:
        for each in made:
            before, after = to_wire(each.before), to_wire(each.after)
            self.telemetry.log.warning(
                "corrected a time that a wrong clock had stored",
                row=each.what,
                column=each.column,
                before=before,
                after=after,
            )

    async def _pause_s(self) -> float:
        """Return the seconds until the next tick, capped: an earlier one may be added."""
        longest_s = POLL_S if self.db.commits is None else MAX_PAUSE_S
        upcoming: int | None = await self.db.peek(lambda tx: tx.find(tables.NEXT_TICK, **self._skipped))
        if upcoming is None:
            return longest_s
        return min(max(upcoming - self.db.env.clock.now(), 0) / 1000, longest_s)

    async def _fire(self, due: Sequence[Due]) -> int:
        """Fire ticks in one transaction; if one fails, fire each in its own transaction."""
        try:
            return await self.db.write(lambda tx: sum([self._unit(tx, each) for each in due]))
        except Exception:
            if len(due) == 1:
                raise
        return await _gather(self._fire([each]) for each in due)

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


def _find_wrong(entries: Sequence[Due], now: int) -> list[Due]:
    return [entry for entry in entries if entry.next_run_at > corrections.right_tick(entry, now)]


async def _gather(fires: Iterable[Awaitable[int]]) -> int:
    """Wait for all, then raise the first exception or return the sum."""
    outcomes = await asyncio.gather(*fires, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return sum(outcome for outcome in outcomes if isinstance(outcome, int))
