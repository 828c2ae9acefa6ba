"""Lanes in which organizations share the slots of a worker."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import MIN_SLOTS, Worker
from moorage.core.worker.run import Handlers, Run

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

SLOTS = MIN_SLOTS[Lane.NOTICES]


class Send(msgspec.Struct, frozen=True, tag="test.send"):
    org_id: int
    number: int


class Sending:
    """A worker whose jobs of organization 1 wait until the test releases them."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.begun: Counter[int] = Counter()  # by organization
        self.release = asyncio.Event()
        handlers = Handlers()
        handlers.add(Send, self._send)
        self.worker = Worker(db, handlers, Telemetry(quiet=True), lanes=(Lane.NOTICES,))

    async def _send(self, run: Run, payload: Send) -> None:
        self.begun[payload.org_id] += 1
        if payload.org_id == 1:
            await self.release.wait()

    async def add(self, org_id: int, count: int, *, key: str | None = None) -> None:
        def unit(tx: Tx) -> None:
            for number in range(count):
                jobs.add(tx, Send(org_id, number), lane=Lane.NOTICES, key=key)

        await self.db.write(unit)

    async def begin(self, expected: dict[int, int]) -> None:
        """Claim due jobs until these numbers of jobs have begun."""
        async with asyncio.timeout(10):
            while self.begun != expected:
                await self.worker._turn()
                await asyncio.sleep(0.005)


async def test_slow_jobs_of_one_organization_leave_slots_for_others(db: Database, clock: ManualClock) -> None:
    sending = Sending(db)
    await sending.add(1, 3 * SLOTS)
    await sending.begin({1: SLOTS // 2})
    await sending.add(2, 5)
    await sending.add(3, 2 * SLOTS)

    await sending.begin({1: SLOTS // 2, 2: 5, 3: 2 * SLOTS})

    sending.release.set()
    await sending.worker.run_due(turns=20)
    assert sending.begun == {1: 3 * SLOTS, 2: 5, 3: 2 * SLOTS}


async def test_jobs_with_one_key_still_run_one_at_a_time_in_a_shared_lane(db: Database, clock: ManualClock) -> None:
    sending = Sending(db)
    await sending.add(1, 3, key="receiver")
    await sending.begin({1: 1})

    await sending.worker._turn()
    await asyncio.sleep(0.01)
    begun = dict(sending.begun)
    sending.release.set()
    await sending.worker.run_due(turns=5)

    assert begun == {1: 1}
    assert sending.begun == {1: 3}
