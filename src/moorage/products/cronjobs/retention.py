"""Deletes old runs with their logs, and images that no run uses."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.launching import log_of
from moorage.products.cronjobs.tables import Execution
from moorage.products.projects.deployments import service as deployments
from moorage.runtime.engines.ports import Logs
from moorage.runtime.images.store import Images

KIND = "cronjobs.trim"
CRON = "23 * * * *"
KEPT_RUNS = 1000  # of each cronjob
RUN_RETENTION_MS = 30 * DAY_MS
BATCH_SIZE = 200  # runs deleted in one transaction


class TrimCronjobs(msgspec.Struct, frozen=True, tag="cronjobs.trim"):
    """Delete old runs and unused images."""


def register(handlers: Handlers, images: Images, logs: Logs) -> None:
    async def trim(run: Run, _: TrimCronjobs) -> None:
        await trim_executions(run, logs)
        await collect_images(run.db, images)

    handlers.maintain(KIND, CRON, TrimCronjobs(), trim, on_each_machine=True)


async def trim_executions(run: Run, logs: Logs) -> None:
    """Delete old runs in batches, logs first so that no log is left without a row."""
    while executions := await run.read(_find_old):
        for each in executions:
            await logs.forget(log_of(each))

        @across_organizations("old runs of all organizations")
        def delete_rows(tx: Tx, executions: list[Execution] = executions) -> None:
            for each in executions:
                tx.run(tables.DELETE_EXECUTION, org_id=each.org_id, id=each.id)

        await run.write(delete_rows)


async def collect_images(db: Database, images: Images) -> None:
    stored = await asyncio.to_thread(images.stored)
    keep = await db.read(partial(_digests_in_use, stored=stored))
    await asyncio.to_thread(images.collect, keep, db.env.clock.trusted_now())


@across_organizations("old runs of all organizations")
def _find_old(tx: Tx) -> list[Execution]:
    before = tx.trusted_now - RUN_RETENTION_MS
    return tx.all(tables.OLD_EXECUTIONS, kept=KEPT_RUNS, before=before, most=BATCH_SIZE, machine_id=tx.env.machine.id)


@across_organizations("organizations share images")
def _digests_in_use(tx: Tx, stored: list[str]) -> set[str]:
    """Return the images of running cronjobs, and of the stored ones those of apps and of cronjob builds."""
    running = {each.image_digest for each in tx.all(tables.RUNNING) if each.image_digest is not None}
    return running | {digest for digest in stored if _is_release(tx, digest.removeprefix("sha256:"))}


@across_organizations("organizations share images")
def _is_release(tx: Tx, digest: str) -> bool:
    return deployments.is_published(tx, digest) or building.is_used(tx, digest)
