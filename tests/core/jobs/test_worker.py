"""The job worker: order, outcome and retries of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, tables
from moorage.core.jobs.states import JobStatus
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import LEASE_MS, Worker
from moorage.core.worker.run import Handlers, Run
from moorage.errors import LostLease, RetryLater

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


class Count(msgspec.Struct, frozen=True, tag="test.count"):
    number: int


def make_worker(db: Database, handlers: Handlers, *, slots: int = 4) -> Worker:
    return Worker(db, handlers, Telemetry(quiet=True), slots=slots)


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.stop(grace_s=1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def statuses(db: Database) -> dict[str, int]:
    return dict(await db.read(lambda tx: tx.all(tables.COUNTS)))


async def until(condition: object, timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


async def add(db: Database, number: int = 0, **options: object) -> int | None:
    return await db.write(lambda tx: jobs.add(tx, Count(number), **options))  # type: ignore[arg-type]


async def test_a_job_runs_soon_after_its_transaction_commits(db: Database) -> None:
    seen: list[int] = []
    handlers = Handlers()
    handlers.add(Count, lambda tx, payload: seen.append(payload.number))

    async with working(make_worker(db, handlers)):
        await add(db, 7)
        await until(lambda: _is(db, {"done": 1}))

    assert seen == [7]


async def test_a_transaction_that_fails_leaves_no_job(db: Database) -> None:
    def unit(tx: Tx) -> None:
        jobs.add(tx, Count(1))
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        await db.write(unit)

    assert await statuses(db) == {}


async def test_jobs_with_the_same_key_run_one_at_a_time_and_in_order(db: Database) -> None:
    running, most, order = 0, 0, []

    async def handle(run: Run, payload: Count) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(payload.number)
        await asyncio.sleep(0.01)
        running -= 1

    handlers = Handlers()
    handlers.add(Count, handle)
    for number in range(6):
        await add(db, number, key="same")

    async with working(make_worker(db, handlers)):
        await until(lambda: _is(db, {"done": 6}))

    assert most == 1
    assert order == [0, 1, 2, 3, 4, 5]


async def test_jobs_with_different_keys_run_side_by_side(db: Database) -> None:
    together = asyncio.Barrier(3)

    async def handle(run: Run, payload: Count) -> None:
        await asyncio.wait_for(together.wait(), 10)

    handlers = Handlers()
    handlers.add(Count, handle)
    for number in range(3):
        await add(db, number, key=f"key {number}")

    async with working(make_worker(db, handlers)):
        await until(lambda: _is(db, {"done": 3}))


async def test_a_busy_lane_does_not_hold_up_another(db: Database) -> None:
    release = asyncio.Event()

    async def handle(run: Run, payload: Count) -> None:
        if payload.number < 0:
            await release.wait()

    handlers = Handlers()
    handlers.add(Count, handle)
    for number in (-1, -2):
        await add(db, number, lane=Lane.CHORES)

    async with working(make_worker(db, handlers, slots=2)):
        await add(db, 1, lane=Lane.INTERACTIVE)
        await until(lambda: _is(db, {"running": 2, "done": 1}))
        release.set()
        await until(lambda: _is(db, {"done": 3}))


async def test_a_job_that_wants_another_try_gets_it_later(db: Database, clock: ManualClock) -> None:
    attempts = []

    async def handle(run: Run, payload: Count) -> None:
        attempts.append(run.attempt)
        if run.attempt < 3:
            raise RetryLater(after_s=60, why="not yet")

    handlers = Handlers()
    handlers.add(Count, handle)
    worker = make_worker(db, handlers)
    await add(db)

    for _ in range(3):
        await worker.run_due(turns=2)
        clock.advance(60_000)

    assert attempts == [1, 2, 3]
    assert await statuses(db) == {"done": 1}


async def test_a_job_that_never_succeeds_fails_and_its_feature_hears_of_it(db: Database, clock: ManualClock) -> None:
    told: list[int] = []

    async def handle(run: Run, payload: Count) -> None:
        raise RetryLater(after_s=1, why="the other side is away")

    handlers = Handlers()
    handlers.add(Count, handle, on_failure=lambda tx, payload: told.append(payload.number))
    worker = make_worker(db, handlers)
    await add(db, 9, max_attempts=2)

    for _ in range(3):
        await worker.run_due()
        clock.advance(1_000)

    assert told == [9]
    assert await statuses(db) == {"failed": 1}


async def test_any_other_exception_fails_the_job_and_undoes_what_it_wrote(db: Database) -> None:
    def handle(tx: Tx, payload: Count) -> None:
        jobs.add(tx, Count(99))
        raise ZeroDivisionError("oops")

    handlers = Handlers()
    handlers.add(Count, handle)
    worker = make_worker(db, handlers)
    await add(db)

    await worker.run_due()

    assert await statuses(db) == {"failed": 1}


async def test_a_kind_that_nothing_handles_fails_instead_of_waiting_for_ever(db: Database) -> None:
    worker = make_worker(db, Handlers())
    await add(db)

    await worker.run_due()

    assert await statuses(db) == {"failed": 1}


async def test_a_second_job_with_the_same_dedupe_key_is_not_added_while_one_waits(db: Database) -> None:
    handlers = Handlers()
    handlers.add(Count, lambda tx, payload: None)
    worker = make_worker(db, handlers)

    first = await add(db, dedupe_key="sweep")
    second = await add(db, dedupe_key="sweep")
    await worker.run_due()
    third = await add(db, dedupe_key="sweep")

    assert first is not None
    assert second is None
    assert third is not None


async def test_a_job_that_is_queued_again_beside_an_equal_one_runs_and_stops_no_other(
    db: Database, clock: ManualClock
) -> None:
    runs: list[int] = []

    async def add_equal_and_retry(run: Run, payload: Count) -> None:
        runs.append(payload.number)
        if len(runs) == 1:
            await add(db, 2, key="sweep", dedupe_key="sweep")
            raise RetryLater(after_s=0, why="the first attempt")

    handlers = Handlers()
    handlers.add(Count, add_equal_and_retry)
    await add(db, 1, key="sweep", dedupe_key="sweep")
    await make_worker(db, handlers).run_due(turns=3)
    await add(db, 3, key="sweep", dedupe_key="sweep")
    await make_worker(db, handlers)._claim(Lane.INTERACTIVE, 1)  # by a worker that dies
    await add(db, 4, key="sweep", dedupe_key="sweep")
    await add(db, 5)
    clock.advance(LEASE_MS)
    await make_worker(db, handlers).run_due(turns=3)

    assert sorted(runs) == [1, 1, 2, 3, 4, 5]
    assert await statuses(db) == {"done": 5}


async def test_a_worker_that_lost_its_lease_can_neither_write_nor_finish(db: Database, clock: ManualClock) -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    outcome: list[type[BaseException]] = []
    wrote: list[str] = []

    async def slow(run: Run, payload: Count) -> None:
        entered.set()
        await release.wait()
        try:
            await run.write(lambda tx: wrote.append("late"))
        except LostLease as error:
            outcome.append(type(error))
            raise

    late, heir = Handlers(), Handlers()
    late.add(Count, slow)
    heir.add(Count, lambda tx, payload: wrote.append("heir"))
    first, second = make_worker(db, late), make_worker(db, heir)
    await add(db)

    await first._turn()
    await entered.wait()
    clock.advance(LEASE_MS)
    await second.run_due(turns=2)
    release.set()
    await asyncio.gather(*first._tasks)

    assert wrote == ["heir"]
    assert outcome == [LostLease]
    assert await statuses(db) == {"done": 1}


async def test_a_job_whose_workers_keep_dying_is_ended(db: Database, clock: ManualClock) -> None:
    told: list[int] = []
    handlers = Handlers()
    handlers.add(Count, lambda tx, payload: None, on_failure=lambda tx, payload: told.append(payload.number))
    await add(db, 3, max_attempts=2)

    for _ in range(2):
        dead = make_worker(db, handlers)
        await dead._claim(Lane.INTERACTIVE, 1)
        clock.advance(LEASE_MS)
        await make_worker(db, handlers)._release_expired()

    assert told == [3]
    assert await statuses(db) == {"failed": 1}


async def test_runs_that_end_with_their_worker_do_not_count_for_a_while(db: Database, clock: ManualClock) -> None:
    told: list[int] = []
    handlers = Handlers()
    handlers.add(
        Count,
        lambda tx, payload: None,
        on_failure=lambda tx, payload: told.append(payload.number),
        uncounted_ms=10 * MINUTE_MS,
    )
    job_id = await add(db, 3, max_attempts=1)

    attempts, pauses_s = [], []
    while (found := await db.read(lambda tx: tx.find(tables.FIND, id=job_id))) and found.status == JobStatus.QUEUED:
        pauses_s.append((found.run_at - clock.now()) // 1000)
        clock.now_ms = found.run_at
        attempts += [job.attempts for job in await make_worker(db, handlers)._claim(Lane.INTERACTIVE, 1)]
        clock.advance(LEASE_MS)
        await make_worker(db, handlers)._release_expired()

    assert attempts == list(range(1, len(attempts) + 1))
    assert pauses_s[:9] == [0, 0, 1, 3, 7, 15, 31, 60, 60]
    assert told == [3]
    assert found is not None
    assert clock.now() - found.created_at >= 10 * MINUTE_MS


async def test_an_event_reaches_every_feature_that_listens(db: Database) -> None:
    heard: list[str] = []
    handlers = Handlers()
    handlers.listen(Count, lambda tx, event: heard.append("projects"))
    handlers.listen(Count, lambda tx, event: heard.append("databases"))
    worker = make_worker(db, handlers)
    await add(db)

    await worker.run_due()

    assert heard == ["projects", "databases"]


async def _is(db: Database, wanted: dict[str, int]) -> bool:
    return await statuses(db) == wanted
