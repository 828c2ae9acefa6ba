"""The prober: checks the monitors that this process holds when they are due.

Three loops: one renews the lease and refreshes the monitors, one starts the checks that are due, one records results.
They do not wait for each other, so a slow database delays no check and a slow target delays no write. Checks of one
monitor never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from moorage.core.db.commits import Commits
from moorage.core.db.store import Database
from moorage.core.kit.ids import new_uuid
from moorage.core.reconciler.rounds import SETTLED_INTERVAL_S
from moorage.core.telemetry import Telemetry
from moorage.products.monitors.probing import leases
from moorage.products.monitors.probing.beats import Beat, Outcome
from moorage.products.monitors.probing.canary import CanaryCheck
from moorage.products.monitors.probing.checks import CheckTarget
from moorage.products.monitors.probing.leases import LEASE_MS, Holding
from moorage.products.monitors.probing.pace import Lag, LogLimiter, Pace
from moorage.products.monitors.probing.schedule import Entry, Schedule
from moorage.products.monitors.probing.writing import ResultWriter

REFRESH_INTERVAL_S = 3.0
REFRESH_RETRY_S = 1.0  # after a refresh that failed
MIN_REFRESH_INTERVAL_S = 0.2  # between refreshes on wake: thousands of monitors may be created in a row
TICK_MS = 100  # Checks start in batches, at most this late: starting them one by one costs a third more.
IDLE_TURN_INTERVAL_S = 5.0  # without any monitor
MAX_TURN_INTERVAL_S = 1.0  # A longer time between two turns means that the clock was set.
BACK_MS, AHEAD_MS = 1_000, 5_000  # clock changes between two turns that do not count as a set clock
CANCEL_TIMEOUT_S = 1.0  # for cancelled checks to end on stop
CANCELLED_POLL_MS = 100  # before a check is started again while a cancelled one of the same monitor still ends


class Checks(Protocol):
    """The part of `checks.Checker` that the prober uses."""

    async def check(self, target: CheckTarget) -> Outcome: ...


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
        """Create a prober that runs at most `most` checks concurrently.

        `owns_store` means that no other process uses the database.
        """
        self._db = db
        self._checker = checker
        self._telemetry = telemetry
        self._owns_store = owns_store
        self._most = most
        # Limit per organization: hanging targets of one organization must not delay the checks of others.
        self._share = most - most // 4
        self._running: Counter[int] = Counter()  # running checks by organization
        self._steady = steady
        self._token = new_uuid()
        self._is_registered = False
        self._is_stopping = False
        self._lease_end = float("-inf")
        self._schedule = Schedule()
        self._unreadable: dict[int, int] = {}  # revisions of monitors with secrets that cannot be decrypted
        self._ready: deque[Entry] = deque()  # due, waiting for a free slot
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turned_at: int | None = None
        self._active_at = float("-inf")
        self._wake = asyncio.Event()  # refresh the monitors
        self._turn = asyncio.Event()  # start due checks
        self._refresh_lock = asyncio.Lock()
        self._pace = Pace(telemetry, steady)
        self._canary = CanaryCheck(canary, telemetry, steady)
        self._results = ResultWriter(db, telemetry, self._token, steady)
        self._log_limit = LogLimiter(steady)
        metrics = telemetry.metrics.monitors
        self._counts = {status: metrics.checks.labels(status) for status in ("UP", "DOWN")}
        self._dropped, self._waiting = metrics.dropped, metrics.waiting

    async def run(self) -> None:
        """Check until cancelled. `stop` writes the results that are still pending then."""
        loops = [asyncio.create_task(loop) for loop in (self._refreshes(), self._turns(), self._results.run())]
        try:
            await asyncio.gather(*loops)
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            self._cancel_all()

    def wake(self) -> None:
        """Refresh soon: a monitor was created, changed, paused, resumed or deleted."""
        self._wake.set()

    async def stop(self) -> None:
        """Cancel checks, write pending results, release the monitors. Safe to repeat."""
        self._is_stopping = True
        self._cancel_all()
        async with self._refresh_lock:
            self._cancel_all()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=CANCEL_TIMEOUT_S)
            await self._results.flush()
            if not self._is_registered:
                return
            try:
                await self._db.write(partial(leases.leave, token=self._token))
            except Exception as error:  # noqa: BLE001 - others take over anyway when the lease expires
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
        """Return whether the loop that starts checks makes progress; for `/ready`."""
        return not self._is_stopping and self._steady() - self._active_at < 10 * MAX_TURN_INTERVAL_S

    async def _refreshes(self) -> None:
        commits = self._db.commits or Commits()
        while not self._is_stopping:
            is_eager, refreshed_at = self._wake.is_set(), self._steady()
            self._wake.clear()
            seen = commits.count
            pause_s, is_settled = REFRESH_INTERVAL_S, False
            try:
                await self.refresh(is_eager=is_eager)
                seen, is_settled = commits.count, self._is_settled
            except Exception as error:  # noqa: BLE001 - the loop survives any error of a refresh
                pause_s = REFRESH_RETRY_S
                if self._log_limit("refresh"):
                    self._telemetry.crashed(None, error, where="monitors")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            if is_settled and not self._wake.is_set():
                await commits.wait(seen, self._wake, SETTLED_INTERVAL_S)
                self._is_registered = False  # Its lease may have expired meanwhile.
            await asyncio.sleep(refreshed_at + MIN_REFRESH_INTERVAL_S - self._steady())

    @property
    def _is_settled(self) -> bool:
        """Whether no monitor exists that this prober, the only one, would check."""
        holds_any = self._schedule.entries or self._unreadable
        return self._owns_store and self._db.commits is not None and self._is_registered and not holds_any

    async def refresh(self, *, is_eager: bool = False) -> None:
        """Renew the lease and update the schedule with new, changed and lost monitors."""
        async with self._refresh_lock:
            has_more = True
            while has_more and not self._is_stopping:
                requested_at = self._steady()
                holding = await self._hold(is_eager)
                if holding is None:
                    await self._replace_token()
                    continue
                self._lease_end = requested_at + LEASE_MS / 1000
                self._update_schedule(holding)
                has_more = holding.has_more
                if not has_more and holding.surplus:
                    await self._release(holding.surplus)

    async def _hold(self, is_eager: bool) -> Holding | None:
        if not self._is_registered:
            await self._db.write(partial(leases.register, token=self._token, is_alone=self._owns_store))
            self._is_registered = True
        known = self._unreadable | self._schedule.revisions()
        return await self._db.write(partial(leases.hold, token=self._token, known=known, is_eager=is_eager))

    def _update_schedule(self, holding: Holding) -> None:
        now = self._db.env.clock.now()
        for monitor_id in self._schedule.entries.keys() - (holding.held - holding.unreadable.keys()):
            _cancel(self._schedule.drop(monitor_id))
        for held in holding.news:
            _cancel(self._schedule.put(held, now))
        known = self._unreadable | holding.unreadable
        self._unreadable = {each: known[each] for each in known.keys() & (holding.held - self._schedule.entries.keys())}
        if self._unreadable and self._log_limit("unreadable"):
            ids = sorted(self._unreadable)[:20]
            self._telemetry.log.error("monitors are not checked: their secrets cannot be decrypted", monitors=ids)
        self._turn.set()

    async def _replace_token(self) -> None:
        """Drop all monitors after the lease was lost, and continue under a new token."""
        count = len(self._schedule.entries)
        self._telemetry.log.warning("lost the lease: other processes took over its monitors", monitors=count)
        self._cancel_all()
        await self._results.flush()
        self._token = self._results.token = new_uuid()
        self._is_registered = False

    async def _release(self, count: int) -> None:
        ids = self._schedule.idle(count)
        for monitor_id in ids:
            _cancel(self._schedule.drop(monitor_id))
        # Results count only while the monitor is held.
        await self._results.flush()
        await self._db.write(partial(leases.release, token=self._token, ids=ids))

    async def _turns(self) -> None:
        while True:
            self._turn.clear()
            try:
                self.start_due()
            except Exception as error:  # noqa: BLE001 - the loop survives any error of a turn
                self._telemetry.crashed(None, error, where="monitors")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._turn.wait()

    def start_due(self) -> None:
        """Start every check that is due and has a free slot: one turn of the loop."""
        now = self._db.env.clock.now()
        self._active_at = self._steady()
        if self._is_stopping or (not self._owns_store and self._steady() >= self._lease_end):
            return
        if not self._schedule.entries:
            self._turned_at = None
        if self._turned_at is not None and not -BACK_MS <= now - self._turned_at <= AHEAD_MS:
            self._ready.clear()
            self._schedule.replan(now)
        self._turned_at = now
        self._ready.extend(self._schedule.due(now))
        self._start_ready(now)
        self._waiting.set(len(self._ready))
        if self._pace.is_behind and self._log_limit("behind"):
            lag = self.lag()
            self._telemetry.log.warning("checks of monitors are late", worst_ms=lag.worst_ms, waiting=lag.waiting)

    def _start_ready(self, now: int) -> None:
        postponed = []
        while self._ready and len(self._tasks) < self._most:
            entry = self._ready.popleft()
            if self._running[entry.target.org_id] < self._share:
                self._start(entry, now)
            else:
                postponed.append(entry)
        self._ready.extendleft(reversed(postponed))

    def _pause_s(self) -> float:
        due = self._schedule.next_due()
        if not self._schedule.entries and not self._ready and not self._tasks:
            return IDLE_TURN_INTERVAL_S
        if due is None or self._ready:
            return MAX_TURN_INTERVAL_S
        tick = -(-due // TICK_MS) * TICK_MS
        return min(max(tick - self._db.env.clock.now(), 1) / 1000, MAX_TURN_INTERVAL_S)

    def _start(self, entry: Entry, now: int) -> None:
        if self._schedule.entries.get(entry.id) is not entry or entry.task is not None or entry.due > now:
            return  # The monitor was dropped or replanned while its check waited.
        if entry.id in self._tasks:
            self._schedule.postpone(entry, now + CANCELLED_POLL_MS)
            return
        lag_ms = now - entry.due
        self._pace.record_start(lag_ms, entry.begin(now))
        task = asyncio.create_task(self._check(entry, entry.target, entry.slot, now))
        self._tasks[entry.id] = entry.task = task
        self._running[entry.target.org_id] += 1
        task.add_done_callback(partial(self._on_done, entry, entry.target.org_id))

    async def _check(self, entry: Entry, target: CheckTarget, slot: int, began: int) -> None:
        outcome = await self._checker.check(target)
        is_local_fault = await self._canary.is_local_fault(outcome)
        self._pace.record_missed(entry.end())
        if is_local_fault:
            self._dropped.labels("canary").inc()
            return
        lag_ms = max(began - slot, 0)
        beat = Beat(target.org_id, target.monitor_id, slot, began, outcome, lag_ms, entry.missed)
        entry.missed = 0
        self._counts[beat.status].inc()
        self._results.add(beat)

    def _on_done(self, entry: Entry, org_id: int, task: asyncio.Task[None]) -> None:
        del self._tasks[entry.id]
        self._running[org_id] -= 1
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._dropped.labels("crashed").inc()
            if self._log_limit("check"):
                self._telemetry.crashed(None, error, where="monitors")
        if entry.task is task:
            self._schedule.plan_next(entry, self._db.env.clock.now())
        if self._ready or entry.due <= (self._turned_at or 0) + MAX_TURN_INTERVAL_S * 1000:
            self._turn.set()

    def _cancel_all(self) -> None:
        for monitor_id in list(self._schedule.entries):
            _cancel(self._schedule.drop(monitor_id))
        self._ready.clear()


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
