"""Generations of routes: a replica is stopped only when no live gateway sends it requests any more.

Each gateway has a row with the generation that it serves and a heartbeat. A change of routes that must reach all of
them increases the generation in its own transaction. A gateway reads the generation before the routes, so its row never
has a generation whose routes it does not serve. With SQLite there is one gateway, in the same process.
"""

from __future__ import annotations

import asyncio
import time

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.gateways import tables
from moorage.core.kit.clock import DAY_MS

LEASE_MS = 20_000  # A gateway without a heartbeat for this long is not waited for.
STALE_MS = DAY_MS
POLL_INTERVAL_S = 0.25
_WHY = "a gateway serves all organizations"


@across_organizations(_WHY)
def advance(tx: Tx) -> None:
    """Begin a generation, in the transaction that changes routes; waits for other transactions that do so."""
    if tx.dialect == "postgresql":
        tx.run(tables.ADVANCE)


@across_organizations(_WHY)
def current(tx: Tx) -> int:
    """Return the newest generation; read it before the routes."""
    return (tx.find(tables.CURRENT) or 0) if tx.dialect == "postgresql" else 0


@across_organizations(_WHY)
def serve(tx: Tx, key: str, generation: int) -> None:
    """Record that a gateway is live and serves a generation. Safe to repeat."""
    tx.run(tables.SERVE, key=key, generation=generation, now=tx.now)


@across_organizations(_WHY)
def lagging(tx: Tx, generation: int) -> list[str]:
    """Return the keys of live gateways that serve an older generation."""
    return tx.all(tables.LAGGING, generation=generation, lease_ms=LEASE_MS, now=tx.now)


@across_organizations(_WHY)
def forget(tx: Tx, key: str) -> None:
    tx.run(tables.FORGET, key=key)


@across_organizations(_WHY)
def forget_stale(tx: Tx) -> None:
    """Delete the rows of gateways that ended without deleting their own."""
    tx.run(tables.FORGET_STALE, stale_ms=STALE_MS, now=tx.now)


async def wait_until_served(db: Database, within_s: float) -> list[str]:
    """Wait until all live gateways serve the current generation; return the late gateways after `within_s`."""
    if db.dialect != "postgresql":
        return []
    generation = await db.read(current)
    give_up_at = time.monotonic() + within_s
    while keys := await db.read(lambda tx: lagging(tx, generation)):
        if time.monotonic() > give_up_at:
            return keys
        await asyncio.sleep(POLL_INTERVAL_S)
    return []
