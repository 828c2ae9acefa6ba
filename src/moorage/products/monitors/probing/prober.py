"""The prober: checks each monitor of which this process has the lease, at its moment, and never twice at once.

Three loops: one renews the lease and learns what there is to check, one begins checks as they fall due, one writes down
what they found. None waits for another, so a slow store delays no check and a slow target no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from moorage.core.db.store import Database
from moorage.core.kit.ids import new_uuid
from moorage.core.telemetry import Telemetry
from moorage.products.monitors.probing import leases
from moorage.products.monitors.probing.beats import Beat, Outcome
from moorage.products.monitors.probing.canary import Doubt
from moorage.products.monitors.probing.checks import Target
from moorage.products.monitors.probing.leases import LEASE_MS, Holding
from moorage.products.monitors.probing.pace import Lag, Pace, Seldom
from moorage.products.monitors.probing.schedule import Entry, Schedule
from moorage.products.monitors.probing.writing import Writing

RENEW_S = 3.0
AGAIN_S = 1.0  # after a look that failed
WOKEN_S = 0.2  # Looks that somebody asks for come no closer: thousands of monitors may be made in a row.
TICK_MS = 100  # Checks begin a few at a time, at most so late: one by one they would cost a third more.
TURN_S = 1.0  # Between two turns there is never more, so a clock that says otherwise was set.
BACK_MS, AHEAD_MS = 1_000, 5_000  # What a clock may be off without being taken for one that was set.
ENDING_S = 1.0  # that a check may take to end which was called off
STILL_ENDS_MS = 100  # when a monitor is looked at again of which a check still ends that was called off


class Checks(Protocol):
    """What the prober needs of `probing.Checker`."""

    async def check(self, target: Target) -> Outcome: ...


class Prober:
    def __init__(
        self,
        db: Database,
        checker: Checks,
        telemetry: Telemetry,
        *,
        owns_store: bool,
        most: int = 500,
        canary: Callable[[], Awaitable[bool]] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`owns_store`: no other process has it. `most` checks run at once. `steady` is a clock that nobody sets."""
        self._db = db
        self._checker = checker
        self._telemetry = telemetry
        self._owns_store = owns_store
        self._most = most
        # No organization has all of the room: one whose targets hang would hold up everybody else's.
        self._share = most - most // 4
        self._busy: Counter[int] = Counter()  # checks that run, by organization
        self._steady = steady
        self._token = new_uuid()
        self._is_registered = False
        self._is_stopping = False
        self._lease_end = float("-inf")
        self._schedule = Schedule()
        self._unreadable: dict[int, int] = {}  # revisions of monitors that cannot be checked
        self._ready: deque[Entry] = deque()  # due, and without room
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turned_at: int | None = None
        self._beat_at = float("-inf")
        self._wake = asyncio.Event()
        self._stir = asyncio.Event()
        self._one_look = asyncio.Lock()
        self._pace = Pace(telemetry, steady)
        self._doubt = Doubt(canary, telemetry, steady)
        self._writing = Writing(db, telemetry, self._token, steady)
        self._seldom = Seldom(steady)
        metrics = telemetry.metrics.monitors
        self._counts = {status: metrics.checks.labels(status) for status in ("UP", "DOWN")}
        self._dropped, self._waiting = metrics.dropped, metrics.waiting

    async def run(self) -> None:
        """Check until cancelled. What is found and not written by then is written by `stop`."""
        loops = [asyncio.create_task(loop) for loop in (self._keep(), self._turns(), self._writing.run())]
        try:
            await asyncio.gather(*loops)
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            self._call_off_all()

    def wake(self) -> None:
        """Look at once: a monitor was made, changed, paused, resumed or deleted."""
        self._wake.set()

    async def stop(self) -> None:
        """Begin nothing more, write down what was found, and leave the monitors to others at once. Safe to repeat."""
        self._is_stopping = True
        self._call_off_all()
        async with self._one_look:
            self._call_off_all()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=ENDING_S)
            await self._writing.flush()
            if not self._is_registered:
                return
            try:
                await self._db.write(partial(leases.leave, token=self._token))
            except Exception as error:  # noqa: BLE001 - others take over without this, once the lease runs out
                self._telemetry.crashed(None, error, where="monitors")
            self._is_registered = False

    def lag(self) -> Lag:
        now = self._db.env.clock.now()
        oldest = now - self._ready[0].due if self._ready else 0
        return Lag(
            monitors=len(self._schedule.entries),
            in_flight=len(self._tasks),
            waiting=len(self._ready),
            worst_ms=max(self._pace.worst_ms, oldest),
            missed=self._pace.missed,
        )

    def is_alive(self) -> bool:
        """Tell whether checks have been begun lately, or would have been; `/ready` asks."""
        return not self._is_stopping and self._steady() - self._beat_at < 10 * TURN_S

    # What there is to check.

    async def _keep(self) -> None:
        while not self._is_stopping:
            is_eager, looked_at = self._wake.is_set(), self._steady()
            self._wake.clear()
            pause_s = RENEW_S
            try:
                await self.look(is_eager=is_eager)
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever a look meets
                pause_s = AGAIN_S
                if self._seldom("look"):
                    self._telemetry.crashed(None, error, where="monitors")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            await asyncio.sleep(looked_at + WOKEN_S - self._steady())

    async def look(self, *, is_eager: bool = False) -> None:
        """Renew the lease, and learn what there is to check."""
        async with self._one_look:
            has_more = True
            while has_more and not self._is_stopping:
                asked_at = self._steady()
                holding = await self._hold(is_eager)
                if holding is None:
                    await self._begin_anew()
                    continue
                self._lease_end = asked_at + LEASE_MS / 1000
                self._adopt(holding)
                has_more = holding.has_more
                if not has_more and holding.surplus:
                    await self._give_back(holding.surplus)

    async def _hold(self, is_eager: bool) -> Holding | None:
        if not self._is_registered:
            await self._db.write(partial(leases.register, token=self._token, is_alone=self._owns_store))
            self._is_registered = True
        known = self._unreadable | self._schedule.revisions()
        return await self._db.write(partial(leases.hold, token=self._token, known=known, is_eager=is_eager))

    def _adopt(self, holding: Holding) -> None:
        now = self._db.env.clock.now()
        for monitor_id in self._schedule.entries.keys() - (holding.held - holding.unreadable.keys()):
            _call_off(self._schedule.drop(monitor_id))
        for held in holding.news:
            _call_off(self._schedule.put(held, now))
        known = self._unreadable | holding.unreadable
        self._unreadable = {each: known[each] for each in known.keys() & (holding.held - self._schedule.entries.keys())}
        if self._unreadable and self._seldom("unreadable"):
            self._telemetry.log.error("monitors whose secrets cannot be read", monitors=sorted(self._unreadable)[:20])
        self._stir.set()

    async def _begin_anew(self) -> None:
        """Let go of everything: others took this process for dead. From here on it is another one to them."""
        count = len(self._schedule.entries)
        self._telemetry.log.warning("others took over the monitors of this process", monitors=count)
        self._call_off_all()
        await self._writing.flush()
        self._token = self._writing.token = new_uuid()
        self._is_registered = False

    async def _give_back(self, count: int) -> None:
        ids = self._schedule.idle(count)
        for monitor_id in ids:
            _call_off(self._schedule.drop(monitor_id))
        # What was found out about them counts only as long as they are held.
        await self._writing.flush()
        await self._db.write(partial(leases.give_back, token=self._token, ids=ids))

    # Checks.

    async def _turns(self) -> None:
        while True:
            self._stir.clear()
            try:
                self.turn()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever a turn meets
                self._telemetry.crashed(None, error, where="monitors")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._stir.wait()

    def turn(self) -> None:
        """Begin every check that is due and has room."""
        now = self._db.env.clock.now()
        self._beat_at = self._steady()
        if self._is_stopping or (not self._owns_store and self._steady() >= self._lease_end):
            return
        if self._turned_at is not None and not -BACK_MS <= now - self._turned_at <= AHEAD_MS:
            self._ready.clear()
            self._schedule.plan_anew(now)
        self._turned_at = now
        self._ready.extend(self._schedule.due(now))
        self._begin_ready(now)
        self._waiting.set(len(self._ready))
        if self._pace.is_behind and self._seldom("behind"):
            lag = self.lag()
            self._telemetry.log.warning("monitors are behind", worst_ms=lag.worst_ms, waiting=lag.waiting)

    def _begin_ready(self, now: int) -> None:
        put_off = []
        while self._ready and len(self._tasks) < self._most:
            entry = self._ready.popleft()
            if self._busy[entry.target.org_id] < self._share:
                self._begin(entry, now)
            else:
                put_off.append(entry)
        self._ready.extendleft(reversed(put_off))

    def _pause_s(self) -> float:
        due = self._schedule.next_due()
        if due is None or self._ready:
            return TURN_S
        tick = -(-due // TICK_MS) * TICK_MS
        return min(max(tick - self._db.env.clock.now(), 1) / 1000, TURN_S)

    def _begin(self, entry: Entry, now: int) -> None:
        if self._schedule.entries.get(entry.id) is not entry or entry.task is not None or entry.due > now:
            return  # It is gone, or was planned anew while it waited.
        if entry.id in self._tasks:
            self._schedule.postpone(entry, now + STILL_ENDS_MS)
            return
        lag_ms = now - entry.due
        self._pace.note(lag_ms, entry.begin(now))
        task = asyncio.create_task(self._check(entry, entry.target, entry.slot, now))
        self._tasks[entry.id] = entry.task = task
        self._busy[entry.target.org_id] += 1
        task.add_done_callback(partial(self._ended, entry, entry.target.org_id))

    async def _check(self, entry: Entry, target: Target, slot: int, began: int) -> None:
        outcome = await self._checker.check(target)
        is_ours = await self._doubt.is_ours(outcome)
        self._pace.miss(entry.end())
        if is_ours:
            self._dropped.labels("canary").inc()
            return
        lag_ms = max(began - slot, 0)
        beat = Beat(target.org_id, target.monitor_id, slot, began, outcome, lag_ms, entry.missed)
        entry.missed = 0
        self._counts[beat.status].inc()
        self._writing.add(beat)

    def _ended(self, entry: Entry, org_id: int, task: asyncio.Task[None]) -> None:
        del self._tasks[entry.id]
        self._busy[org_id] -= 1
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._dropped.labels("crashed").inc()
            if self._seldom("check"):
                self._telemetry.crashed(None, error, where="monitors")
        if entry.task is task:
            self._schedule.go_on(entry, self._db.env.clock.now())
        if self._ready or entry.due <= (self._turned_at or 0) + TURN_S * 1000:
            self._stir.set()

    def _call_off_all(self) -> None:
        for monitor_id in list(self._schedule.entries):
            _call_off(self._schedule.drop(monitor_id))
        self._ready.clear()


def _call_off(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
