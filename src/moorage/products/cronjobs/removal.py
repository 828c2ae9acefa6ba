"""Removes a cronjob after its runs stopped: logs, runs, builds, secrets, its row."""

from __future__ import annotations

from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.launching import LOGS
from moorage.products.cronjobs.tables import Cronjob
from moorage.runtime.engines.ports import Logs, Programs
from moorage.runtime.images.building import cache as layer_cache

BATCH_SIZE = 500  # runs deleted in one transaction


async def remove(db: Database, programs: Programs, logs: Logs, cronjob: Cronjob) -> None:
    """Remove a cronjob. Its row goes last, so an interrupted removal is repeated."""
    await logs.forget(f"{LOGS}/{cronjob.id}")
    while await db.write(partial(_remove_executions, org_id=cronjob.org_id, cronjob=cronjob)) == BATCH_SIZE:
        continue
    digests = await db.write(partial(_remove_rest, org_id=cronjob.org_id, cronjob=cronjob))
    await programs.remove_unused(digests)


def _remove_executions(tx: Tx, org_id: int, cronjob: Cronjob) -> int:
    executions = tx.all(tables.SOME_EXECUTIONS, org_id=org_id, cronjob_id=cronjob.id, most=BATCH_SIZE)
    for each in executions:
        tx.run(tables.DELETE_EXECUTION, org_id=org_id, id=each.id)
    return len(executions)


def _remove_rest(tx: Tx, org_id: int, cronjob: Cronjob) -> list[str]:
    """Remove builds, secrets and the row; return the digests of its artifacts."""
    builds = tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob.id)
    for build in builds:
        building.remove(tx, org_id, build)
    vault.remove_all(tx, org_id, cronjob.resource)
    layer_cache.drop(tx, org_id, building.cache_of(cronjob))
    tx.run(tables.DELETE, org_id=org_id, id=cronjob.id)
    return [build.digest for build in builds if build.digest is not None]
