"""Generations of routes: which gateways serve them, and which are waited for."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import update
from tests.conftest import POSTGRES

from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.gateways import service
from moorage.core.gateways.tables import gateway
from moorage.core.machines import service as machines
from moorage.gateway.reconciler import key_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.both_stores,
    pytest.mark.parametrize("db", [POSTGRES], indirect=True),  # SQLite has one gateway, which nothing waits for.
]

ONE, TWO = key_of(1), key_of(2)


async def serve(db: Database, key: str) -> None:
    """Let a gateway serve the newest routes."""
    await db.write(lambda tx: service.serve(tx, key, service.current(tx)))


async def silence(db: Database, key: str) -> None:
    """Let the last heartbeat of a gateway be older than its lease."""
    changed = gateway.c.heartbeat_at - 2 * service.LEASE_MS
    command = Command(update(gateway).where(gateway.c.key == arg("key")).values(heartbeat_at=changed))
    await db.write(lambda tx: tx.run(command, key=key))


async def lagging(db: Database) -> list[str]:
    return await db.read(lambda tx: service.lagging(tx, service.current(tx)))


async def test_gateways_lag_from_a_new_generation_until_they_serve_it(db: Database) -> None:
    await serve(db, ONE)
    await serve(db, TWO)
    before = await lagging(db)

    await db.write(service.advance)
    await serve(db, TWO)

    assert before == []
    assert await lagging(db) == [ONE]
    await serve(db, ONE)
    assert await lagging(db) == []


async def test_a_heartbeat_with_an_old_generation_keeps_a_gateway_waited_for(db: Database) -> None:
    await db.write(service.advance)
    await db.write(lambda tx: service.serve(tx, ONE, 0))

    assert await service.wait_until_served(db, within_s=0.0) == [ONE]


async def test_a_gateway_without_a_heartbeat_is_not_waited_for(db: Database) -> None:
    await serve(db, ONE)
    await serve(db, TWO)
    await db.write(service.advance)
    await silence(db, TWO)
    await serve(db, ONE)

    assert await service.wait_until_served(db, within_s=60.0) == []


async def test_waiting_ends_when_the_last_gateway_has_switched(db: Database) -> None:
    await serve(db, ONE)
    await db.write(service.advance)

    waiting = asyncio.create_task(service.wait_until_served(db, within_s=60.0))
    await asyncio.sleep(3 * service.POLL_INTERVAL_S)
    was_done = waiting.done()
    await serve(db, ONE)

    assert (was_done, await waiting) == (False, [])


async def test_concurrent_changes_have_generations_of_their_own(db: Database) -> None:
    await asyncio.gather(*(db.write(service.advance) for _ in range(10)))

    assert await db.read(service.current) == 10


async def test_a_removed_machine_leaves_no_gateway(app: object, db: Database) -> None:
    await serve(db, TWO)
    await db.write(service.advance)

    await db.write(lambda tx: tx.env.hooks.call(machines.REMOVED, tx, 2))

    assert await lagging(db) == []
