"""Measurements of running databases: usage and engine statistics."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.products.apps.memory_engine import MemoryReplicas
from tests.products.databases.metric_support import (
    PASSWORD,
    SQLITE,
    TWIN_KINDS,
    Fleet,
    ask,
    clients,
    make_database,
    make_server,
    read_servers,
)

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import move
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.engines import make_engine
from moorage.products.databases import service
from moorage.products.databases.metrics import sampling
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.sampling import Reading, Sampler, difference
from moorage.products.databases.metrics.service import Sample, Summary
from moorage.products.databases.metrics.tables import SampleSums
from moorage.products.databases.servers import Servers
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.products.databases.threads import SingleCallThread
from moorage.runtime.database_servers.ports import Counters
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog
from moorage.runtime.engines.ports import ReplicaState

pytestmark = pytest.mark.anyio

PGBENCH = ["-n", "-N", "-c", "4", "-j", "1", "-T", "4"]
STATEMENTS_OF_N = 5  # BEGIN, UPDATE, SELECT, INSERT, END


@pytest.fixture
async def fleet(db: Store) -> AsyncIterator[Fleet]:
    made = Fleet.make(db)
    yield made
    await made.close()


@pytest.fixture
async def sampler(fleet: Fleet) -> AsyncIterator[Sampler]:
    made = Sampler(fleet.db, fleet.servers, Telemetry(quiet=True))
    yield made
    made.close()


async def summary(db: Store, found: Database) -> Summary:
    return await db.read(lambda tx: metrics.summary(tx, found.org_id, found.id, "1h"))


async def total(db: Store, found: Database) -> SampleSums:
    """Return the sums of all samples of a database."""
    return await db.read(lambda tx: metrics._sums(tx, found.org_id, found.id, 3600, 0, 4 * 10**12, 4 * 10**12)[0])


async def until(holds: Callable[[], Any], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def reading(at_s: float, *, queries: int | None = 0, hits: int | None = 0, reads: int | None = 0) -> Reading:
    return Reading(Counters(2, 50, queries, hits, reads), at_s)


def test_what_happened_is_the_difference_of_two_readings_and_the_time_between_them() -> None:
    before, after = reading(5.0, queries=10, hits=4, reads=1), reading(20.25, queries=310, hits=10, reads=3)

    assert difference(before, after, 7) == Sample(7, True, 2, 50, 300, 15_250, 6, 2)


def test_a_first_reading_says_nothing_of_the_time_before_it() -> None:
    assert difference(None, reading(5.0, queries=10), 7) == Sample(7, True, 2, 50, None, 0, None, None)


def test_a_counter_that_went_back_or_is_not_there_says_nothing() -> None:
    before = reading(0.0, queries=10, hits=5, reads=5)

    reset = difference(before, reading(15.0, queries=9, hits=50, reads=4), 7)
    unknown = difference(before, reading(15.0, queries=None, hits=None, reads=6), 7)

    for found in (reset, unknown):
        assert (found.queries, found.queries_ms, found.cache_hits, found.cache_reads) == (None, 0, None, None)
        assert (found.answered, found.connections) == (True, 2)


async def test_a_call_that_takes_too_long_is_not_waited_for_and_not_made_twice() -> None:
    thread, go, calls = SingleCallThread(), threading.Event(), list[int]()

    def call() -> str:
        calls.append(1)
        go.wait(20)
        return "done"

    for _ in range(3):
        with pytest.raises(TimeoutError):
            await thread.run(call, 0.05)
    go.set()
    await until(lambda: asyncio.sleep(0, not thread.is_busy))

    assert await thread.run(call, 10) == "done"
    assert len(calls) == 2


async def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await SingleCallThread().run(fail, 10)


@TWIN_KINDS
@SQLITE
async def test_what_a_server_uses_and_who_is_connected_is_noted(
    fleet: Fleet, sampler: Sampler, db: Store, type_: str, clock: ManualClock
) -> None:
    found = await fleet.start(type_)

    with clients(found, 2):
        await sampler.round()
    [server] = await read_servers(db, found)
    whole = await summary(db, found)

    assert server.memory_bytes is not None
    assert 2**22 < server.memory_bytes < 2**29
    assert server.started_at is not None
    assert clock.now() - MINUTE_MS < server.started_at <= clock.now()
    assert server.cpu_milli is not None
    assert (server.seen_restarts, server.seen_at) == (0, clock.now())
    assert (whole.up, whole.connections) == (True, 2)
    assert (whole.max_connections or 0) > 2
    assert whole.figures.qps is None


@TWIN_KINDS
@SQLITE
async def test_statements_between_two_looks_are_counted_and_the_looks_themselves_are_not(
    fleet: Fleet, sampler: Sampler, db: Store, type_: str
) -> None:
    found = await fleet.start(type_)
    await sampler.round()

    with clients(found) as [client]:
        await asyncio.to_thread(ask, client, "SELECT 1", 500)
    await sampler.round()
    busy = await total(db, found)
    for _ in range(3):
        await sampler.round()
    idle = await total(db, found)

    assert busy.queries == pytest.approx(500, abs=10)
    assert idle.queries == pytest.approx(busy.queries or 0, abs=2)
    assert (idle.looks, idle.answers) == (5, 5)


@pytest.mark.deep
@SQLITE
async def test_qps_is_what_pgbench_counts_itself(fleet: Fleet, sampler: Sampler, db: Store) -> None:
    found = await fleet.start("postgresql")
    its = {"PGHOST": "127.0.0.1", "PGPORT": str(found.port), "PGUSER": found.username, "PGDATABASE": found.db_name}
    software = fleet.servers.software(found)

    def pgbench(*args: str) -> str:
        env = {**its, "PGPASSWORD": PASSWORD, **software.tools_env}
        argv = [str(Path(software.tools) / "pgbench"), *args]
        done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
        return done.stdout

    await asyncio.to_thread(pgbench, "-i", "-q", "-s", "1")
    moments = [time.monotonic()]
    await sampler.round()
    moments.append(time.monotonic())
    said = await asyncio.to_thread(pgbench, *PGBENCH)
    moments.append(time.monotonic())
    await sampler.round()
    moments.append(time.monotonic())
    counted = re.search(r"actually processed: (\d+)", said)
    whole = await total(db, found)

    assert counted is not None
    statements = int(counted[1]) * STATEMENTS_OF_N
    assert whole.queries == pytest.approx(statements, rel=0.02)
    qps = (await summary(db, found)).figures.qps or 0
    # The two readings were made somewhere within the rounds.
    assert 0.98 * statements / (moments[3] - moments[0]) <= qps <= 1.02 * statements / (moments[2] - moments[1])
    assert (whole.cache_hits or 0) > (whole.cache_reads or 0) >= 0


@TWIN_KINDS
@SQLITE
async def test_a_server_that_crashed_is_asked_again_and_nothing_is_made_up_for_the_time_between(
    fleet: Fleet, sampler: Sampler, db: Store, type_: str, clock: ManualClock
) -> None:
    found = await fleet.start(type_)
    await sampler.round()
    with clients(found) as [client]:
        await asyncio.to_thread(ask, client, "SELECT 1", 300)
    await sampler.round()
    before = await total(db, found)
    first, *_ = await fleet.processes(found)
    os.kill(first, signal.SIGKILL)

    async def is_back() -> bool:
        clock.advance(15_000)
        await sampler.round()
        [server] = await read_servers(db, found)
        return server.seen_restarts == 1 and (await summary(db, found)).up is True

    [earlier] = await read_servers(db, found)
    await until(is_back)
    after = await total(db, found)
    with clients(found) as [client]:
        await asyncio.to_thread(ask, client, "SELECT 1", 200)
    await sampler.round()
    [server] = await read_servers(db, found)

    assert after.queries == pytest.approx(before.queries or 0, abs=5)
    assert (await total(db, found)).queries == pytest.approx((after.queries or 0) + 200, abs=10)
    assert (server.started_at or 0) >= (earlier.started_at or 0)


@SQLITE
async def test_a_server_that_hangs_has_no_figures_and_holds_up_nobody(
    fleet: Fleet, sampler: Sampler, db: Store, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(sampling, "STATISTICS_TIMEOUT_S", 2.0)
    hung, other = await fleet.start("postgresql"), await fleet.start("mysql", "other")
    await sampler.round()
    stopped = await fleet.processes(hung)
    with ExitStack() as stack:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
            stack.callback(_go_on, pid)
        clock.advance(15_000)
        await sampler.round()
        clock.advance(15_000)
        await sampler.round()
        while_it_hangs = [(await summary(db, each)).up for each in (hung, other)]

    async def answers() -> bool:
        clock.advance(15_000)
        await sampler.round()
        return (await summary(db, hung)).up is True

    await until(answers)

    assert while_it_hangs == [False, True]


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@SQLITE
async def test_of_the_free_tier_only_what_it_uses_is_measured(fleet: Fleet, sampler: Sampler, db: Store) -> None:
    found = await fleet.start("postgresql", tier="free")

    await sampler.round()

    [server] = await read_servers(db, found)
    assert server.memory_bytes is not None
    assert (await summary(db, found)).up is None


@SQLITE
async def test_a_database_that_has_just_come_up_is_welcomed_once(fleet: Fleet, sampler: Sampler, db: Store) -> None:
    found = await fleet.start("postgresql")

    await sampler.measure_new()
    [first] = await read_servers(db, found)
    await sampler.measure_new()

    assert (first.memory_bytes or 0) > 0
    assert (await total(db, found)).looks == 1


@SQLITE
async def test_the_connection_for_asking_ends_with_the_database(fleet: Fleet, sampler: Sampler, db: Store) -> None:
    found = await fleet.start("postgresql")
    await sampler.round()

    def inside() -> list[str]:
        with clients(found) as [client]:
            rows = client.execute("SELECT usename FROM pg_stat_activity WHERE datname IS NOT NULL")
            return sorted(name for (name,) in rows.fetchall())

    kept = await asyncio.to_thread(inside)
    await db.write(lambda tx: move(tx, DATABASE, service.get(tx, 1, found.name), to=DatabaseStatus.STOPPED))
    await sampler.round()

    async def is_alone() -> bool:
        return await asyncio.to_thread(inside) == ["ada"]

    assert kept == ["ada", "moorage"]
    await until(is_alone)


@SQLITE
async def test_the_loop_looks_by_itself_and_lets_go_when_it_ends(fleet: Fleet, sampler: Sampler, db: Store) -> None:
    found = await fleet.start("mysql")

    async def is_seen() -> bool:
        return (await summary(db, found)).up is True

    running = asyncio.create_task(sampler.run())
    await until(is_seen)
    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()
    assert sampler._readers == {}


@dataclass
class SlowEngine(MemoryReplicas):
    """A slow engine that records the maximum number of concurrent calls."""

    asking: int = 0
    most: int = 0
    times: list[float] = field(default_factory=list)

    async def look(self, key: str) -> ReplicaState | None:
        self.asking += 1
        self.most = max(self.most, self.asking)
        self.times.append(time.monotonic())
        await asyncio.sleep(0.01)
        self.asking -= 1
        if key == "d3":
            raise ConnectionError("this one always fails")
        return ReplicaState(key, 1, 1, 1, "waiting", restarts=4)


def make_servers(db: Store, engine: MemoryReplicas) -> Servers:
    """Servers without processes."""
    engines = db.env.settings.folder("engines")
    engines.mkdir(parents=True)
    ports = replace(
        make_engine(db.env.settings, "databases", is_sandboxed=True, volumes_in="databases"), workloads=engine
    )
    return Servers(db, ports, SoftwareCatalog([], engines), is_sandboxed=True)


@SQLITE
async def test_a_round_looks_at_few_at_a_time_and_what_one_meets_costs_no_other(db: Store) -> None:
    engine = SlowEngine()
    servers = make_servers(db, engine)
    made = [await make_database(db, name=f"number{number}", tier="free") for number in range(30)]
    for each in made:
        await make_server(db, each)

    await Sampler(db, servers, Telemetry(quiet=True)).round()

    rows = [server for each in made for server in await read_servers(db, each)]
    assert engine.most == sampling.MAX_CONCURRENT_MEASUREMENTS
    assert [row.key for row in rows if row.seen_at is None] == ["d3"]
    assert {row.seen_restarts for row in rows if row.seen_at is not None} == {4}


@SQLITE
async def test_a_round_is_spread_over_its_time_and_written_once(db: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, writes, write = SlowEngine(), list[int](), db.write
    servers = make_servers(db, engine)
    for number in range(5):
        await make_server(db, await make_database(db, name=f"number{number}", tier="free"))

    async def counted(unit: Any) -> Any:
        writes.append(1)
        return await write(unit)

    monkeypatch.setattr(db, "write", counted)
    await Sampler(db, servers, Telemetry(quiet=True)).round(spread_s=1.0)

    gaps = [after - before for before, after in zip(engine.times, engine.times[1:], strict=False)]
    assert len(engine.times) == 5
    assert min(gaps) > 0.05
    assert writes == [1]


@SQLITE
async def test_what_was_seen_to_restart_stays_counted_when_what_counts_begins_anew(db: Store) -> None:
    servers = make_servers(db, MemoryReplicas())
    found = await make_database(db, tier="free")
    server = await make_server(db, found)
    look = metrics.ServerUsage(server, db.env.clock.now(), 6, None, 1, 2**20)
    await db.write(lambda tx: metrics.record(tx, [metrics.Measurement(found, [look])]))

    await Sampler(db, servers, Telemetry(quiet=True)).round()

    [stored] = await read_servers(db, found)
    assert (stored.seen_restarts, stored.memory_bytes, stored.cpu_milli) == (6, None, None)
