"""The platform's scheduled maintenance: snapshots, and deletion of expired data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from moorage.accounts.identity.organizations import freed_names, invitations
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.webhooks import service as webhooks
from moorage.core import jobs
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db import migrate
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.jobs import Lane, tables, timetable
from moorage.core.jobs.states import JobStatus
from moorage.core.jobs.timetable import Tick, TickHandler
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.cron import Cron
from moorage.core.worker.run import Handlers, Run
from moorage.platform.opening import store_path
from moorage.products.functions import code
from moorage.products.projects import jobs as project_jobs
from moorage.settings import Settings

PLATFORM = 0
DONE_JOBS_KEPT_MS = 7 * DAY_MS
FAILED_JOBS_KEPT_MS = 30 * DAY_MS


class SnapshotStore(msgspec.Struct, frozen=True, tag="platform.snapshot_store"):
    """Take the nightly snapshot of the store."""


class Sweep(msgspec.Struct, frozen=True, tag="platform.sweep"):
    """Delete expired jobs, keys, events and invitations."""


class CollectArtifacts(msgspec.Struct, frozen=True, tag="platform.collect_artifacts"):
    """Delete unused artifacts, unpacked code and releases."""


SCHEDULE: dict[str, tuple[str, msgspec.Struct]] = {
    "platform.snapshot": ("17 3 * * *", SnapshotStore()),
    "platform.sweep": ("*/10 * * * *", Sweep()),
    "platform.collect": ("41 * * * *", CollectArtifacts()),
}


def register(
    handlers: Handlers, ticks: dict[str, TickHandler], artifacts: ArtifactStore, releases: Sequence[Unpacked]
) -> None:
    async def snapshot(run: Run, _: SnapshotStore) -> None:
        if run.db.dialect == "sqlite":
            await asyncio.to_thread(snapshot_store, run.db.env.settings, run.db.env.clock.now())

    async def collect(run: Run, _: CollectArtifacts) -> None:
        await artifacts.collect()
        await code.collect(run.db, run.db.env.settings)
        for each in releases:
            await each.collect(run.db)

    handlers.add(SnapshotStore, snapshot)
    handlers.add(CollectArtifacts, collect)
    handlers.add(Sweep, sweep)
    for kind in SCHEDULE:
        ticks[kind] = _on_tick


async def ensure(db: Database, _now: int) -> None:
    """Add every task to the timetable."""
    await db.write(_plan)


@across_organizations("the platform's own timetable")
def _plan(tx: Tx) -> None:
    for kind, (expression, _) in SCHEDULE.items():
        timetable.ensure(tx, PLATFORM, kind, "", Cron.parse(expression))


@across_organizations("the platform's own timetable")
def _on_tick(tx: Tx, tick: Tick) -> None:
    jobs.add(tx, SCHEDULE[tick.kind][1], key=tick.kind, dedupe_key=tick.kind, lane=Lane.CHORES)


@across_organizations("retention is the same for every organization")
def sweep(tx: Tx, _: Sweep) -> None:
    tx.run(tables.FORGET, status=JobStatus.DONE, before=tx.trusted_now - DONE_JOBS_KEPT_MS)
    tx.run(tables.FORGET, status=JobStatus.FAILED, before=tx.trusted_now - FAILED_JOBS_KEPT_MS)
    idempotency.sweep(tx)
    invitations.expire(tx)
    session_list.sweep(tx)
    freed_names.sweep(tx)
    webhooks.sweep(tx)
    project_jobs.sweep(tx)


def snapshot_store(settings: Settings, now_ms: int) -> Path:
    """Take the nightly snapshot and delete the oldest ones."""
    snapshot = copy_store(settings, f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%SZ}")
    # Snapshots with a later name come from a clock that was ahead. They go first, or they would displace this one.
    nightly = sorted(snapshot.parent.glob("[0-9]*.db"), key=lambda path: (path.name <= snapshot.name, path.name))
    for old in nightly[: -settings.snapshots_to_keep]:
        old.unlink()
    return snapshot


def copy_store(settings: Settings, name: str) -> Path:
    """Copy the store into its snapshots folder and check the copy."""
    folder = settings.folder("store") / "snapshots"
    folder.mkdir(exist_ok=True, mode=0o700)
    migrate.copy_sqlite(store_path(settings), folder / f"{name}.db")
    return folder / f"{name}.db"
