"""Expiry of idempotency keys: answers after a day, claims of dead processes with their lease."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select
from tests.core.http.lab import lab, texts_in_store
from tests.core.http.yard import Yard, both_kinds, make_yard

from moorage.core.db.query import Query, scalar
from moorage.core.db.store import Database
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency import once
from moorage.core.http.idempotency.tables import idempotency_key
from moorage.core.kit.clock import DAY_MS, HOUR_MS, ManualClock
from moorage.platform import opening

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


@pytest.fixture
def yard(db: Database) -> Yard:
    return make_yard(db)


@both_kinds
async def test_after_a_day_a_key_is_free_again(yard: Yard, clock: ManualClock, path: str) -> None:
    await yard.order(path)
    clock.advance(DAY_MS - 1)
    await yard.order(path)
    assert yard.orders == ["rope"]

    clock.advance(1)
    fresh = await yard.order(path, "tar")

    assert fresh.status in (200, 202)
    assert yard.orders == ["rope", "tar"]


async def leave_claim(db: Database) -> None:
    """Leave the claim of a process that died during an effect outside of the database."""
    claim = idempotency.Claim(1, "ada", "POST /v1/outside", "order-7", idempotency.fingerprint(b'{"item": "rope"}'))
    await db.write(lambda tx: idempotency.begin(tx, claim))


async def test_a_claim_whose_process_died_blocks_its_key_until_its_lease_expires(
    yard: Yard, db: Database, clock: ManualClock
) -> None:
    await leave_claim(db)

    clock.advance(idempotency.LEASE_MS - 1)
    blocked = await yard.order("/v1/outside")
    clock.advance(1)
    free = await yard.order("/v1/outside")

    assert (blocked.status, free.status) == (409, 200)
    assert yard.orders == ["rope"]


async def test_a_start_releases_the_claims_of_the_process_before_where_the_store_has_one_owner(
    yard: Yard, db: Database
) -> None:
    await leave_claim(db)

    await db.write(opening.prepare)

    status = (await yard.order("/v1/outside")).status
    assert status == (200 if db.dialect == "sqlite" else 409)


async def test_a_claim_at_work_outlasts_its_lease(
    yard: Yard, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "LEASE_RENEWAL_INTERVAL_S", 0.01)
    other = Yard(yard.router, lab(db, yard.router))
    first = asyncio.create_task(yard.order("/v1/slow-outside"))
    await yard.started.wait()

    for _ in range(3):
        clock.advance(idempotency.LEASE_MS - 1)
        async with asyncio.timeout(20):
            while not await is_leased_until(db, clock.now() + idempotency.LEASE_MS):
                await asyncio.sleep(0.01)
    second = await other.order("/v1/slow-outside")
    yard.may_go_on.set()

    assert second.status == 409
    assert (await first).status == 200
    assert yard.orders == ["rope"]


async def is_leased_until(db: Database, moment: int) -> bool:
    column = idempotency_key.c.expires_at
    return await db.read(lambda tx: tx.all(Query(select(column), scalar)) == [moment])


async def test_the_sweep_removes_what_has_expired_and_nothing_else(
    yard: Yard, db: Database, clock: ManualClock
) -> None:
    await yard.order("/v1/sync", key="old")
    clock.advance(HOUR_MS)
    await yard.order("/v1/sync", key="new")
    clock.advance(DAY_MS - HOUR_MS)

    await db.write(idempotency.sweep)

    stored = await texts_in_store(db)
    assert "'old'" not in stored
    assert "'new'" in stored
