"""The job worker: claims due jobs, runs them and renews their leases.

A job runs at least once. Its lease is renewed while it runs. A worker that dies or hangs stops renewing, and another
worker runs the job; later writes of the first worker fail the lease check.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import field

from moorage.core import jobs
from moorage.core.db.commits import Commits
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.jobs import Lane, tables
from moorage.core.jobs.states import JobStatus
from moorage.core.jobs.tables import JobRow
from moorage.core.kit.decoding import decode
from moorage.core.kit.ids import new_uuid
from moorage.core.kit.records import dataclass
from moorage.core.telemetry import Telemetry
from moorage.core.telemetry.logs import trace
from moorage.core.worker.run import Handler, Handlers, Run, hold
from moorage.errors import LostLease, RetryLater

LEASE_MS = 15_000
LEASE_RENEWAL_INTERVAL_S = 5.0
POLL_S = 1.0  # while jobs wait for a slot, and where other processes add jobs
MAX_PAUSE_S = 5.0
MAX_ERROR_CHARS = 2_000
MAX_REQUEUE_DELAY_MS = 60_000  # after repeated deaths of the worker: the job may be the cause
_WHY = "the worker runs the jobs of every organization"


# Minimum slots of a lane. Notices mostly wait for receivers, and a few slow receivers must not block the others.
MIN_SLOTS = {Lane.NOTICES: 32}
# Lanes in which an organization gets at most as many slots as remain free: half of them if no other organization uses
# the lane.
SHARED_LANES = frozenset({Lane.NOTICES})


@across_organizations(_WHY)
def _next_times(tx: Tx) -> tuple[int | None, int | None]:
    """Return when the next job is due, and when the oldest lease expires."""
    return tx.find(tables.NEXT_DUE), tx.find(tables.OLDEST_LEASE)


@dataclass
class Worker:
    db: Database
    handlers: Handlers
    telemetry: Telemetry
    slots: int = 4
    lanes: tuple[Lane, ...] = tuple(Lane)
    # Only one process writes to SQLite, so jobs that are running at startup belong to a dead process.
    owns_store: bool = False
    lease: str = field(default_factory=new_uuid)
    _running: dict[int, Lane] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False
    _release_at: float = 0.0  # Leases of other workers are not released before this time.
    _heartbeat_at: float = 0.0

    async def run(self) -> None:
        """Run jobs until `stop`."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        self.db.env.hooks.add(jobs.JOB_ADDED, self.lease, wake)
        renewal = asyncio.create_task(self._renew_leases())
        try:
            if self.owns_store:
                await self.db.write(lambda tx: tx.run(tables.EXPIRE_ALL))
            await self._loop()
        finally:
            self.db.env.hooks.remove(jobs.JOB_ADDED, self.lease)
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def run_due(self, *, turns: int = 1) -> None:
        """Claim due jobs and wait for them, `turns` times; for tests and tools."""
        for _ in range(turns):
            await self._turn()
            while self._tasks:
                await asyncio.wait(self._tasks)
                await asyncio.sleep(0)  # The done callbacks run in the next iteration of the event loop.

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop claiming, wait `grace_s`, and cancel the rest, which run elsewhere."""
        self._stopping = True
        self._wake.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def wake(self) -> None:
        """Claim due jobs now instead of at the next poll."""
        self._wake.set()

    def clock_was_set(self) -> None:
        """Let other workers renew: by the new time, valid leases may appear expired."""
        self._release_at = time.monotonic() + LEASE_MS / 1000
        self._wake.set()

    def is_alive(self) -> bool:
        """Check that the loop made progress in the last 10 polls, for `/ready`."""
        return not self._stopping and time.monotonic() - self._heartbeat_at < 10 * POLL_S

    async def _loop(self) -> None:
        commits = self.db.commits or Commits()
        while not self._stopping:
            self._heartbeat_at = time.monotonic()
            self._wake.clear()
            pause_s, seen = POLL_S, commits.count
            try:
                await self._turn()
                seen = commits.count
                pause_s = await self._pause_s()
            except Exception as error:  # noqa: BLE001 - an error must not end the worker loop
                self.telemetry.crashed(None, error, where="worker")
                await asyncio.sleep(POLL_S)
            if not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, POLL_S)):
                        await self._wake.wait()
            if pause_s > POLL_S and not self._wake.is_set():
                await commits.wait(seen, self._wake, pause_s - POLL_S)

    async def _pause_s(self) -> float:
        """Return the seconds until the next job is due or a lease expires."""
        if self.db.commits is None:
            return POLL_S
        due, lease = await self.db.peek(_next_times)
        at = min(due or sys.maxsize, lease or sys.maxsize)
        now = self.db.env.clock.now()
        # A due job waits for a slot or for another job of its key; the end of a job starts a turn.
        return POLL_S if at <= now else min((at - now) / 1000, MAX_PAUSE_S)

    async def _turn(self) -> None:
        now = self.db.env.clock.now()
        due, lease = await self.db.peek(_next_times)
        if lease is not None and lease <= now and time.monotonic() >= self._release_at:
            await self._release_expired()
            due = now
        if due is None or due > now:
            return
        for lane in self.lanes:
            free = max(self.slots, MIN_SLOTS.get(lane, 0)) - sum(1 for other in self._running.values() if other is lane)
            if free > 0:
                for job in await self._claim(lane, free):
                    self._start(job, lane)

    async def _claim(self, lane: Lane, most: int) -> list[JobRow]:
        def unit(tx: Tx) -> list[JobRow]:
            until = tx.now + LEASE_MS
            claim = {"lane": lane, "now": tx.now, "until": until, "lease": self.lease, "most": most}
            query = tables.CLAIM_IN_SHARES if lane in SHARED_LANES else tables.CLAIM
            return tx.all(query, machine_id=tx.env.machine.id, **claim)

        try:
            claimed = await self.db.write(unit)
        except UniqueClash:
            # Another process claimed a job of the same key at the same time; the next turn retries.
            self._wake.set()
            return []
        return sorted(claimed, key=lambda job: (job.run_at, job.id))

    def _start(self, job: JobRow, lane: Lane) -> None:
        self._running[job.id] = lane
        task = asyncio.create_task(self._run(job))
        self._tasks.add(task)

        def on_done(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del self._running[job.id]
            self._wake.set()

        task.add_done_callback(on_done)

    async def _run(self, job: JobRow) -> None:
        trace.set(job.trace_id)
        started = time.perf_counter()
        waited_s = (self.db.env.clock.now() - job.run_at) / 1000
        outcome = await self._outcome(job)
        seconds = time.perf_counter() - started
        self.telemetry.job(job.kind, job.lane, outcome, seconds, waited_s, job=job.id, attempt=job.attempts)

    async def _outcome(self, job: JobRow) -> str:
        handler = self.handlers.by_kind.get(job.kind)
        try:
            if handler is None or handler.run is None:
                await self._fail(job, None, f"this process has no handler for jobs of kind {job.kind}")
                return "failed"
            await self._handle(job, handler)
            return "done"
        except LostLease:
            return "lost"
        except RetryLater as later:
            return await self._retry(job, handler, later)
        except Exception as error:  # noqa: BLE001 - any other exception fails the job
            self.telemetry.crashed(job.trace_id, error, where=f"job {job.kind}")
            await self._fail(job, handler, f"{type(error).__name__}: {error}")
            return "failed"

    async def _handle(self, job: JobRow, handler: Handler) -> None:
        assert handler.run is not None
        payload = decode(job.payload, handler.payload)
        if handler.is_async:
            await handler.run(Run(self.db, job, self.lease), payload)
            await self.db.write(lambda tx: self._end(tx, job, JobStatus.DONE))
            return
        run = handler.run

        def unit(tx: Tx) -> None:
            hold(tx, job.id, self.lease)
            tx.trace_id = job.trace_id
            run(tx, payload)
            self._end(tx, job, JobStatus.DONE)

        await self.db.write(unit)

    async def _retry(self, job: JobRow, handler: Handler | None, later: RetryLater) -> str:
        if job.attempts >= job.max_attempts:
            await self._fail(job, handler, f"gave up after {job.attempts} attempts: {later.why}")
            return "failed"
        delay = int(later.after_s * 1000)
        await self._write_unless_lost(lambda tx: self._end(tx, job, JobStatus.QUEUED, later.why, tx.now + delay))
        return "retry"

    async def _fail(self, job: JobRow, handler: Handler | None, why: str) -> None:
        await self._write_unless_lost(lambda tx: self._fail_unit(tx, job, handler, why))

    @across_organizations(_WHY)
    def _fail_unit(self, tx: Tx, job: JobRow, handler: Handler | None, why: str) -> None:
        hold(tx, job.id, self.lease)
        if handler is not None and handler.on_failure is not None:
            handler.on_failure(tx, decode(job.payload, handler.payload))
        self._end(tx, job, JobStatus.FAILED, why)

    async def _write_unless_lost(self, unit: Callable[[Tx], None]) -> None:
        try:
            await self.db.write(unit)
        except LostLease:
            return

    @across_organizations(_WHY)
    def _end(self, tx: Tx, job: JobRow, to: JobStatus, why: str | None = None, run_at: int = 0) -> None:
        error = why[:MAX_ERROR_CHARS] if why else None
        if tx.run(tables.FINISH, id=job.id, lease=self.lease, to=to, run_at=run_at, error=error, now=tx.now) == 0:
            raise LostLease(f"job {job.id} is no longer ours")

    async def _renew_leases(self) -> None:
        """Renew the leases of all running jobs in one transaction, periodically."""
        while True:
            await asyncio.sleep(LEASE_RENEWAL_INTERVAL_S)
            held = list(self._running)
            if not held:
                continue
            try:
                await self.db.write(lambda tx: self._renew(tx, held))  # noqa: B023
            except Exception as error:  # noqa: BLE001 - an unreachable database must not end the renewal
                self.telemetry.crashed(None, error, where="leases")

    @across_organizations(_WHY)
    def _renew(self, tx: Tx, held: list[int]) -> None:
        tx.run_many(tables.RENEW, [{"id": job_id, "lease": self.lease, "until": tx.now + LEASE_MS} for job_id in held])

    async def _release_expired(self) -> None:
        """Requeue the jobs of dead workers; fail those without attempts left."""
        held = list(self._running)
        exhausted = await self.db.write(lambda tx: self._release_unit(tx, held))
        for job in exhausted:
            why = f"gave up after {job.attempts} attempts: the platform stopped each time it ran"
            await self._fail(job, self.handlers.by_kind.get(job.kind), why)

    @across_organizations(_WHY)
    def _release_unit(self, tx: Tx, held: list[int]) -> list[JobRow]:
        # After the clock was set forward, own leases appear expired. Without renewal their jobs would run twice, and
        # both runs would pass the lease check.
        self._renew(tx, held)
        for job in tx.all(tables.EXPIRED, now=tx.now):
            handler = self.handlers.by_kind.get(job.kind)
            if handler is not None and tx.trusted_now - job.created_at < handler.uncounted_ms:
                delay_ms = min((2 ** min(job.attempts - 1, 16) - 1) * 1000, MAX_REQUEUE_DELAY_MS)
                tx.run(tables.REQUEUE_LOST, id=job.id, now=tx.now, run_at=tx.now + delay_ms)
        tx.run(tables.RELEASE_EXPIRED, now=tx.now)
        exhausted = []
        for job in tx.all(tables.EXHAUSTED, now=tx.now):
            until = tx.now + LEASE_MS
            if tx.run(tables.TAKE_EXHAUSTED, id=job.id, now=tx.now, lease=self.lease, until=until):
                exhausted.append(job)
        return exhausted
