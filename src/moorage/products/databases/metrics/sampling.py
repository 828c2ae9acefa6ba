"""Measures running databases: CPU, memory, engine statistics and disk usage.

A round takes 15 s; the measurements are spread over it and stored in one transaction. Connections to servers are
persistent. A server that does not answer has no values, and does not delay the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from moorage.core.db.store import Database as Store
from moorage.core.kit.records import dataclass
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.products.databases.disk import DiskWatch
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.service import Measurement, Sample, ServerUsage
from moorage.products.databases.servers import Servers
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.threads import SingleCallThread
from moorage.runtime.database_servers.ports import Access, Counters, ServerFailed, ServerKind, StatisticsSession
from moorage.runtime.engines.ports import ReplicaState

ROUND_INTERVAL_S = 15.0
SPREAD_S = 12.0  # The rest of a round is for late answers.
NEW_DATABASE_POLL_INTERVAL_S = 1.0
MAX_CONCURRENT_MEASUREMENTS = 8
STATISTICS_TIMEOUT_S = 5.0
YOUNG_S = 60.0  # For a younger server the first CPU value is the average since its start.
START_TOLERANCE_MS = 2_000  # A start time is converted from ticks of another clock, so it varies a little.

DatabaseServers = tuple[Database, list[Server]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of a server, and the monotonic time when they were read."""

    counters: Counters
    at_s: float


class StatisticsReader:
    """Persistent connection to one server that computes samples from its counters."""

    def __init__(self) -> None:
        self._session: StatisticsSession | None = None
        self._before: Reading | None = None
        self._thread = SingleCallThread()

    async def read(self, kind: ServerKind, access: Access, at: int) -> Sample:
        """Return a sample; one without an answer if the server fails or is too slow."""
        try:
            return await self._thread.run(partial(self._reconnect_and_read, kind, access, at), STATISTICS_TIMEOUT_S)
        except (ServerFailed, TimeoutError):
            return Sample(at)

    def close(self) -> None:
        """Disconnect after the current call has returned."""
        self._thread.after(self._disconnect)

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _reconnect_and_read(self, kind: ServerKind, access: Access, at: int) -> Sample:
        if self._session is not None:
            try:
                return self._read(self._session, at)
            except ServerFailed:  # The server was probably restarted.
                self._disconnect()
        self._before = None
        session = kind.session(access)
        try:
            sample = self._read(session, at)
        except ServerFailed:
            session.close()
            raise
        self._session = session
        return sample

    def _read(self, session: StatisticsSession, at: int) -> Sample:
        started = time.monotonic()
        counters = session.counters()
        before, self._before = self._before, Reading(counters, (started + time.monotonic()) / 2)
        return difference(before, self._before, at)


def difference(before: Reading | None, after: Reading, at: int) -> Sample:
    """Return the sample between two readings; a counter that was reset gives None."""
    now = after.counters
    then = before.counters if before is not None else None
    queries = _grown(then.queries if then else None, now.queries)
    hits = _grown(then.cache_hits if then else None, now.cache_hits)
    reads = _grown(then.cache_reads if then else None, now.cache_reads)
    span_ms = round((after.at_s - before.at_s) * 1000) if before is not None else 0
    knows_cache = hits is not None and reads is not None
    return Sample(
        at=at,
        answered=True,
        connections=now.connections,
        max_connections=now.max_connections,
        queries=queries,
        queries_ms=span_ms if queries is not None else 0,
        cache_hits=hits if knows_cache else None,
        cache_reads=reads if knows_cache else None,
    )


def _grown(before: int | None, after: int | None) -> int | None:
    return after - before if before is not None and after is not None and after >= before else None


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU time of a server at one moment."""

    shim: tuple[int, int]  # pid and start time of the shim that counts it
    cpu_us: int
    at_s: float


class Sampler:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._telemetry = telemetry
        self._disks = DiskWatch(db, servers, telemetry)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_MEASUREMENTS)
        self._readers: dict[int, StatisticsReader] = {}  # by server
        self._cpu: dict[int, CpuReading] = {}  # by server
        self._in_progress: set[int] = set()  # databases that are being measured
        self._new_measured: set[int] = set()  # databases that `measure_new` has measured

    async def run(self) -> None:
        try:
            await asyncio.gather(self._rounds(), self._poll_new())
        finally:
            self.close()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._safely(partial(self.round, SPREAD_S))
            due = max(due + ROUND_INTERVAL_S, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _poll_new(self) -> None:
        rounds = Rounds(self._telemetry, "new databases", NEW_DATABASE_POLL_INTERVAL_S, self._db.commits)
        await rounds.run(self.measure_new)

    async def _safely(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an error in one round must not end the loop
            self._telemetry.crashed(None, error, where="database sampler")

    async def round(self, spread_s: float = 0.0) -> None:
        """Measure all running databases, spread over `spread_s`, and store the results."""
        running = await self._db.read(metrics.running)
        self._forget_others(running)
        if running:
            self._disks.check_machine()
        await self._measure_all(running, spread_s)

    async def measure_new(self) -> bool:
        """Measure databases that have just started, without waiting for a round; True if there are none."""
        new = await self._db.peek(metrics.never_seen) - self._new_measured
        if new:
            self._new_measured |= new
            await self._measure_all([each for each in await self._db.read(metrics.running) if each[0].id in new])
        return not new

    def _forget_others(self, running: Sequence[DatabaseServers]) -> None:
        database_ids = {each.id for each, _ in running}
        server_ids = {server.id for _, servers in running for server in servers}
        for gone in [each for each in self._readers if each not in server_ids]:
            self._readers.pop(gone).close()
        self._cpu = {key: reading for key, reading in self._cpu.items() if key in server_ids}
        self._new_measured &= database_ids
        self._disks.keep_only(database_ids)

    async def _measure_all(self, running: Sequence[DatabaseServers], spread_s: float = 0.0) -> None:
        step_s = spread_s / max(len(running), 1)
        calls = (self._measure_safely(each, servers, i * step_s) for i, (each, servers) in enumerate(running))
        measurements = [each for each in await asyncio.gather(*calls) if each is not None]
        if measurements:
            await self._db.write(partial(metrics.record, measurements=measurements))

    async def _measure_safely(self, database: Database, servers: list[Server], after_s: float) -> Measurement | None:
        await asyncio.sleep(after_s)
        async with self._slots:
            if database.id in self._in_progress:
                return None
            self._in_progress.add(database.id)
            try:
                return await self._measure(database, servers)
            except Exception as error:  # noqa: BLE001 - an error of one database must not affect the others
                self._telemetry.crashed(None, error, where="database sampler")
                return None
            finally:
                self._in_progress.discard(database.id)

    async def _measure(self, database: Database, servers: list[Server]) -> Measurement:
        measurement = Measurement(database, [await self._measure_server(server) for server in servers])
        primary = next((server for server in servers if server.role == "primary"), None)
        if primary is None:
            return measurement
        if database.tier.paid:
            reader = self._readers.setdefault(primary.id, StatisticsReader())
            access = await self._servers.access(database, primary)
            measurement.sample = await reader.read(self._servers.kind(database), access, self._now())
        measurement.disk = await self._disks.measure(database, primary)
        return measurement

    async def _measure_server(self, server: Server) -> ServerUsage:
        state = await self._servers.engine.look(server.key)
        now, at_s = self._now(), time.monotonic()
        # A new shim counts restarts from 0; the total must not decrease.
        restarts = max(server.restarts + (state.restarts if state is not None else 0), server.seen_restarts)
        usage = await self._servers.metrics.usage(server.key)
        if state is None or usage is None:
            self._cpu.pop(server.id, None)
            return ServerUsage(server, now, restarts, server.started_at, None, None)
        started_at = _started_at(server, usage.age_ms, now)
        cpu_milli = self._cpu_milli(server, state, at_s, now - started_at if started_at else None)
        return ServerUsage(server, now, restarts, started_at, cpu_milli, usage.memory_bytes or None)

    def _cpu_milli(self, server: Server, state: ReplicaState, at_s: float, age_ms: int | None) -> int | None:
        """Return thousandths of a core since the last measurement or a recent start."""
        before = self._cpu.get(server.id)
        self._cpu[server.id] = CpuReading((state.pid, state.started), state.cpu_us, at_s)
        if before is not None and before.shim == (state.pid, state.started):
            used_us, span_s = state.cpu_us - before.cpu_us, at_s - before.at_s
        elif state.restarts == 0 and age_ms is not None and age_ms < YOUNG_S * 1000:
            used_us, span_s = state.cpu_us, age_ms / 1000
        else:
            return None
        return round(used_us / span_s / 1000) if used_us >= 0 and span_s > 0 else None

    def _now(self) -> int:
        return self._db.env.clock.now()


def _started_at(server: Server, age_ms: int | None, now: int) -> int | None:
    """Return the start time of a server; keeps the stored value if it is close."""
    if age_ms is None:
        return server.started_at
    started_at = now - age_ms
    is_known = server.started_at is not None and abs(server.started_at - started_at) <= START_TOLERANCE_MS
    return server.started_at if is_known else started_at
