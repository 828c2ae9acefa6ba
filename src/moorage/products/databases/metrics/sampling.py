"""Looking at every database that runs: what its servers use, what its engine was asked for, how full its disk is.

A round takes a quarter of a minute, over which the databases are spread, and is written at once. Connections for
asking are kept. A server that does not answer has no figures; the others never wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from moorage.core.db.store import Database as Store
from moorage.core.telemetry import Telemetry
from moorage.products.databases.disk import DiskWatch
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.service import Sample, ServerLook, Visit
from moorage.products.databases.servers import Servers
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.threads import Aside
from moorage.runtime.database_servers.ports import Access, Counters, ServerFailed, ServerKind, StatisticsSession
from moorage.runtime.engines.ports import ReplicaState
from moorage.runtime.sandbox.usage import process_tree

EVERY_S = 15.0
SPREAD_S = 12.0  # The rest of a round is for answers that come late.
WELCOME_S = 1.0
AT_ONCE = 8
ANSWER_S = 5.0
YOUNG_S = 60.0  # What a younger server has used since its start is what it uses.
SLACK_MS = 2_000  # The start of a process is told in ticks of another clock: a little more or less is no other start.

Found = tuple[Database, list[Server]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server said, and when: by a clock that is never set."""

    counters: Counters
    at_s: float


class Line:
    """The connection to one server that is kept for asking."""

    def __init__(self) -> None:
        self._session: StatisticsSession | None = None
        self._before: Reading | None = None
        self._aside = Aside()

    async def ask(self, kind: ServerKind, access: Access, at: int) -> Sample:
        """Return what a server says, without an answer where it says nothing in time."""
        try:
            return await self._aside.run(partial(self._ask, kind, access, at), ANSWER_S)
        except (ServerFailed, TimeoutError):
            return Sample(at)

    def close(self) -> None:
        """Hang up, when the question that may be open is over."""
        self._aside.after(self._hang_up)

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _ask(self, kind: ServerKind, access: Access, at: int) -> Sample:
        if self._session is not None:
            try:
                return self._read(self._session, at)
            except ServerFailed:  # It was started anew meanwhile, most likely.
                self._hang_up()
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
        begun = time.monotonic()
        counters = session.counters()
        before, self._before = self._before, Reading(counters, (begun + time.monotonic()) / 2)
        return difference(before, self._before, at)


def difference(before: Reading | None, after: Reading, at: int) -> Sample:
    """Return what happened between two readings; a counter that went back was reset, and says nothing."""
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
class Used:
    """How much processor time a server had used at a moment."""

    by: tuple[int, int]  # what watches over it, and counts
    cpu_us: int
    at_s: float


class Sampler:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._telemetry = telemetry
        self._disks = DiskWatch(db, servers, telemetry)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._lines: dict[int, Line] = {}  # by server
        self._used: dict[int, Used] = {}
        self._visited: set[int] = set()  # databases that are being looked at
        self._welcomed: set[int] = set()

    async def run(self) -> None:
        try:
            await asyncio.gather(self._rounds(), self._welcomes())
        finally:
            self.close()

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._safely(partial(self.round, SPREAD_S))
            due = max(due + EVERY_S, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _welcomes(self) -> None:
        while True:
            await asyncio.sleep(WELCOME_S)
            await self._safely(self.welcome)

    async def _safely(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the loop outlives whatever one round meets
            self._telemetry.crashed(None, error, where="database sampler")

    async def round(self, spread_s: float = 0.0) -> None:
        """Look at every database that runs, evenly over a span of time, and write down what was found."""
        found = await self._db.read(metrics.running)
        self._forget(found)
        if found:
            self._disks.check_machine()
        await self._visit_all(found, spread_s)

    async def welcome(self) -> None:
        """Look at databases that have just come up: nobody should wait a whole round for their first figures."""
        fresh = await self._db.peek(metrics.never_seen) - self._welcomed
        if fresh:
            self._welcomed |= fresh
            await self._visit_all([each for each in await self._db.read(metrics.running) if each[0].id in fresh])

    def _forget(self, found: Sequence[Found]) -> None:
        there, servers = {each.id for each, _ in found}, {server.id for _, its in found for server in its}
        for gone in [each for each in self._lines if each not in servers]:
            self._lines.pop(gone).close()
        self._used = {key: used for key, used in self._used.items() if key in servers}
        self._welcomed &= there
        self._disks.keep_only(there)

    async def _visit_all(self, found: Sequence[Found], spread_s: float = 0.0) -> None:
        step_s = spread_s / max(len(found), 1)
        looks = (self._visit(each, its, number * step_s) for number, (each, its) in enumerate(found))
        visits = [visit for visit in await asyncio.gather(*looks) if visit is not None]
        if visits:
            await self._db.write(partial(metrics.record, visits=visits))

    async def _visit(self, found: Database, its: list[Server], after_s: float) -> Visit | None:
        await asyncio.sleep(after_s)
        async with self._slots:
            if found.id in self._visited:
                return None
            self._visited.add(found.id)
            try:
                return await self._look(found, its)
            except Exception as error:  # noqa: BLE001 - what one database meets must not cost the others their figures
                self._telemetry.crashed(None, error, where="database sampler")
                return None
            finally:
                self._visited.discard(found.id)

    async def _look(self, found: Database, its: list[Server]) -> Visit:
        visit = Visit(found, [await self._look_at(server) for server in its])
        primary = next((server for server in its if server.role == "primary"), None)
        if primary is None:
            return visit
        if found.tier.paid:
            line = self._lines.setdefault(primary.id, Line())
            access = await self._servers.access(found, primary)
            visit.sample = await line.ask(self._servers.kind(found), access, self._now())
        visit.disk = await self._disks.look(found, primary)
        return visit

    async def _look_at(self, server: Server) -> ServerLook:
        state = await self._servers.engine.look(server.key)
        now, at_s = self._now(), time.monotonic()
        # What watches over it counts from nothing when it is started anew; what was seen stays seen.
        restarts = max(server.restarts + (state.restarts if state is not None else 0), server.seen_restarts)
        if state is None or state.phase != "running" or state.app_pid is None:
            self._used.pop(server.id, None)
            return ServerLook(server, now, restarts, server.started_at, None, None)
        memory = await asyncio.to_thread(_memory_of, state.app_pid)
        started_at = _started_at(server, state.app_pid, now)
        cpu_milli = self._cpu_milli(server, state, at_s, now - started_at if started_at else None)
        return ServerLook(server, now, restarts, started_at, cpu_milli, memory)

    def _cpu_milli(self, server: Server, state: ReplicaState, at_s: float, age_ms: int | None) -> int | None:
        """Return the thousandths of a core that were used since the last look, or since a start not long ago."""
        before = self._used.get(server.id)
        self._used[server.id] = Used((state.pid, state.started), state.cpu_us, at_s)
        if before is not None and before.by == (state.pid, state.started):
            used_us, span_s = state.cpu_us - before.cpu_us, at_s - before.at_s
        elif state.restarts == 0 and age_ms is not None and age_ms < YOUNG_S * 1000:
            used_us, span_s = state.cpu_us, age_ms / 1000
        else:
            return None
        return round(used_us / span_s / 1000) if used_us >= 0 and span_s > 0 else None

    def _now(self) -> int:
        return self._db.env.clock.now()


def _memory_of(pid: int) -> int | None:
    """Return what a server holds, what its processes share counted once; None where it has ended just now."""
    return process_tree.memory_bytes(process_tree.with_descendants([pid])) or None


def _started_at(server: Server, pid: int, now: int) -> int | None:
    """Return when the process of a server started, as it was told before where it is the same."""
    ticks = process_tree.started(pid)
    if ticks is None:
        return server.started_at
    age_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - ticks * process_tree.TICK_US
    found = now - age_us // 1000
    is_known = server.started_at is not None and abs(server.started_at - found) <= SLACK_MS
    return server.started_at if is_known else found
