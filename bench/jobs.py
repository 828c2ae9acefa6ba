"""How long a job waits: from the call that adds it, through its commit, to the first line of its handler."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
import uvloop

from bench import stores
from bench.figures import Figure, at_most, percentile
from moorage.core import jobs
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers

BAR = at_most(10)
FINISH_S = 30.0


class Ping(msgspec.Struct, frozen=True, tag="bench.ping"):
    number: int


@dataclass(frozen=True)
class Sizes:
    jobs: int
    most_pause_s: float  # between one job and the next
    backlog: int  # jobs that wait all at once


FULL = Sizes(jobs=500, most_pause_s=0.02, backlog=1_000)
TINY = Sizes(jobs=10, most_pause_s=0.01, backlog=10)


@dataclass
class Times:
    """Moments of each job: when it was asked for, when that was durable, when it started."""

    asked: dict[int, float]
    durable: dict[int, float]
    begun: dict[int, float]

    def waits_ms(self, since: dict[int, float]) -> list[float]:
        return [(self.begun[number] - since[number]) * 1000 for number in self.asked]


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    times, drained = uvloop.run(_measure(folder, sizes))
    asked, durable = times.waits_ms(times.asked), times.waits_ms(times.durable)
    return [
        Figure("jobs: enqueue to start, p50", percentile(asked, 0.5), "ms"),
        Figure("jobs: enqueue to start, p95", percentile(asked, 0.95), "ms", bar=BAR),
        Figure("jobs: commit to start, p95", percentile(durable, 0.95), "ms"),
        Figure(f"jobs: a backlog of {sizes.backlog}", drained, "/s"),
    ]


async def _measure(folder: Path, sizes: Sizes) -> tuple[Times, float]:
    db, _ = await stores.open_seated(folder / "data", 0)
    times = Times({}, {}, {})
    handlers = Handlers()
    handlers.add(Ping, lambda _tx, ping: times.begun.setdefault(ping.number, time.perf_counter()))
    telemetry = Telemetry(quiet=True)
    telemetry.log = structlog.wrap_logger(structlog.ReturnLogger())  # Lines are made, and go nowhere.
    worker = Worker(db, handlers, telemetry, owns_store=True)
    working = asyncio.create_task(worker.run())
    try:
        await _enqueue_all(db, times, sizes)
        await _until_begun(times, sizes.jobs)
        return times, await _drain(db, times, sizes)
    finally:
        await worker.stop()
        await working
        db.close()


async def _until_begun(times: Times, count: int) -> None:
    async with asyncio.timeout(FINISH_S):
        while len(times.begun) < count:
            await asyncio.sleep(0.005)


async def _drain(db: SqliteDatabase, times: Times, sizes: Sizes) -> float:
    """Add many jobs in one transaction; return how many start a second."""
    numbers = range(sizes.jobs, sizes.jobs + sizes.backlog)
    await db.write(lambda tx: _add(tx, *numbers))
    started = time.perf_counter()
    await _until_begun(times, sizes.jobs + sizes.backlog)
    return sizes.backlog / (time.perf_counter() - started)


async def _enqueue_all(db: SqliteDatabase, times: Times, sizes: Sizes) -> None:
    # Pauses of no fixed length: jobs come to an idle worker and to a busy one.
    pauses = random.Random(7)
    for number in range(sizes.jobs):
        times.asked[number] = time.perf_counter()
        await db.write(lambda tx: _add(tx, number))  # noqa: B023 - awaited at once
        times.durable[number] = time.perf_counter()
        await asyncio.sleep(pauses.uniform(0, sizes.most_pause_s))


def _add(tx: Tx, *numbers: int) -> None:
    for number in numbers:
        jobs.add(tx, Ping(number), key=f"bench:{number}")
