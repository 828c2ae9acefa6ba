"""Maintenance: snapshots, expired rows and unused artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db import snapshots
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.jobs import tables
from moorage.core.jobs.states import JobStatus
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers, Run

DONE_JOBS_KEPT_MS = 7 * DAY_MS
FAILED_JOBS_KEPT_MS = 30 * DAY_MS

# Deletes expired rows of a product, of all organizations.
SWEEP: Hook[[Tx], None] = Hook("maintenance.sweep")
# Removes unpacked artifacts of a product that no row refers to.
COLLECT: Hook[[Database], Awaitable[object]] = Hook("maintenance.collect")


class SnapshotStore(msgspec.Struct, frozen=True, tag="platform.snapshot_store"):
    """Copy the store into its snapshots folder."""


class Sweep(msgspec.Struct, frozen=True, tag="platform.sweep"):
    """Delete expired jobs, idempotency keys, events, sessions and invitations."""


class CollectArtifacts(msgspec.Struct, frozen=True, tag="platform.collect_artifacts"):
    """Delete unreferenced artifacts, then unused unpacked code and releases."""


@dataclass(frozen=True)
class Maintenance(Product):
    artifacts: ArtifactStore

    def register(self, handlers: Handlers) -> None:
        handlers.maintain("platform.snapshot", "17 3 * * *", SnapshotStore(), _snapshot)
        handlers.maintain("platform.sweep", "*/10 * * * *", Sweep(), sweep)
        handlers.maintain("platform.collect", "41 * * * *", CollectArtifacts(), self._collect, on_each_machine=True)

    async def _collect(self, run: Run, _: CollectArtifacts) -> None:
        await self.artifacts.collect()
        for collecting in run.db.env.hooks.call(COLLECT, run.db):
            await collecting


async def _snapshot(run: Run, _: SnapshotStore) -> None:
    if run.db.dialect == "sqlite":
        await asyncio.to_thread(snapshots.make_nightly, run.db.env.settings, run.db.env.clock.now())


@across_organizations("rows expire in every organization")
def sweep(tx: Tx, _: Sweep) -> None:
    tx.run(tables.FORGET, status=JobStatus.DONE, before=tx.trusted_now - DONE_JOBS_KEPT_MS)
    tx.run(tables.FORGET, status=JobStatus.FAILED, before=tx.trusted_now - FAILED_JOBS_KEPT_MS)
    idempotency.sweep(tx)
    tx.env.hooks.call(SWEEP, tx)
