"""Property: each job takes effect exactly once, with crashes in any order.

Several workers act on one database at random: they claim, finish, retry, die silently and come back late. The effect
and the end of a job are one transaction; the model counts effects.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import pytest
from sqlalchemy import select

from moorage.core import jobs
from moorage.core.db.query import Query, pair
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.jobs.states import JobStatus
from moorage.core.jobs.tables import JobRow, job
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import LEASE_MS, Worker
from moorage.core.worker.run import Handlers, hold
from moorage.errors import LostLease

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


class Effect(msgspec.Struct, frozen=True, tag="test.effect"):
    number: int


@dataclass
class Model:
    db: Database
    clock: ManualClock
    chance: random.Random
    workers: list[Worker]
    held: list[tuple[Worker, JobRow]] = field(default_factory=list)
    effects: Counter[int] = field(default_factory=Counter)
    added: int = 0

    async def add(self) -> None:
        number, key = self.added, self.chance.choice([None, "a", "b"])
        await self.db.write(lambda tx: jobs.add(tx, Effect(number), key=key, max_attempts=1_000))
        self.added += 1

    async def claim(self) -> None:
        worker = self.chance.choice(self.workers)
        claimed = await worker._claim(Lane.INTERACTIVE, self.chance.randint(1, 3))
        self.held += [(worker, job) for job in claimed]

    async def finish(self) -> None:
        """A worker ends a job with a lease that may have expired."""
        if not self.held:
            return
        worker, job = self.held.pop(self.chance.randrange(len(self.held)))
        number = msgspec.json.decode(job.payload, type=Effect).number

        def unit(tx: Tx) -> None:
            hold(tx, job.id, worker.lease)
            worker._end(tx, job, JobStatus.DONE)

        try:
            await self.db.write(unit)
        except LostLease:
            return
        self.effects[number] += 1

    async def retry(self) -> None:
        if not self.held:
            return
        worker, job = self.held.pop(self.chance.randrange(len(self.held)))
        await worker._write_unless_lost(lambda tx: worker._end(tx, job, JobStatus.QUEUED, "again", tx.now + 100))

    async def lose_time(self) -> None:
        self.clock.advance(self.chance.choice([10, 500, LEASE_MS]))

    async def sweep(self) -> None:
        await self.chance.choice(self.workers)._release_expired()

    async def check(self) -> None:
        """No key runs twice, and no job took effect twice."""
        running = await self.db.read(lambda tx: tx.all(_RUNNING_KEYS))
        keys = [key for key, _ in running if key is not None]
        assert len(keys) == len(set(keys))
        assert not [number for number, times in self.effects.items() if times > 1]


_RUNNING_KEYS = Query(select(job.c.key, job.c.id).where(job.c.status == JobStatus.RUNNING.value), pair)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.twin) for seed in range(1, 12))])
async def test_every_job_takes_effect_exactly_once_however_workers_die(
    db: Database, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    workers = [Worker(db, Handlers(), Telemetry(quiet=True)) for _ in range(3)]
    model = Model(db, clock, chance, workers)
    actions = [model.add, model.claim, model.claim, model.finish, model.retry, model.lose_time, model.sweep]

    for _ in range(120):
        await chance.choice(actions)()
        await model.check()
    model.held.clear()
    for _ in range(200):
        clock.advance(LEASE_MS)
        await model.sweep()
        await model.claim()
        while model.held:
            await model.finish()

    assert model.effects == Counter(range(model.added))
