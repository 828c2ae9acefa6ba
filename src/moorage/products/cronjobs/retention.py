"""Forgetting runs that ended long ago with what they printed, and images that nobody runs any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.cronjobs import tables
from moorage.products.cronjobs.launching import folder_of
from moorage.products.cronjobs.tables import Execution
from moorage.runtime.images.store import Images

KIND = "cronjobs.trim"
CRON = "23 * * * *"
KEPT_RUNS = 1000  # of each cronjob
KEPT_MS = 30 * DAY_MS
AT_ONCE = 200


class TrimCronjobs(msgspec.Struct, frozen=True, tag="cronjobs.trim"):
    """Forget old runs, and images without use."""


def register(handlers: Handlers, images: Images) -> None:
    async def trim(run: Run, _: TrimCronjobs) -> None:
        await trim_executions(run)
        await collect_images(run.db, images)

    handlers.maintain(KIND, CRON, TrimCronjobs(), trim)


async def trim_executions(run: Run) -> None:
    """Remove in small units: what runs printed first, so that nothing is left which no row leads to."""
    logs = run.db.env.settings.folder("logs")
    while some := await run.read(_old):
        await asyncio.to_thread(_remove_logs, logs, some)

        @across_organizations("old runs of everybody")
        def forget(tx: Tx, gone: list[Execution] = some) -> None:
            for each in gone:
                tx.run(tables.DELETE_EXECUTION, org_id=each.org_id, id=each.id)

        await run.write(forget)


async def collect_images(db: Database, images: Images) -> None:
    keep = await db.read(_digests_in_use)
    await asyncio.to_thread(images.collect, keep, db.env.clock.trusted_now())


@across_organizations("old runs of everybody")
def _old(tx: Tx) -> list[Execution]:
    return tx.all(tables.OLD_EXECUTIONS, kept=KEPT_RUNS, before=tx.trusted_now - KEPT_MS, most=AT_ONCE)


@across_organizations("images are there once for everybody")
def _digests_in_use(tx: Tx) -> set[str]:
    return {each.image_digest for each in tx.all(tables.RUNNING) if each.image_digest is not None}


def _remove_logs(logs: Path, some: list[Execution]) -> None:
    for each in some:
        folders.remove(folder_of(logs, each))
