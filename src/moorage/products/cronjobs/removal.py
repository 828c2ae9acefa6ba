"""Forgetting a cronjob whose runs have been stopped: their logs, its builds and secrets, then itself."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import folders
from moorage.core.vault import service as vault
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.tables import Cronjob

AT_ONCE = 500


async def remove(db: Database, releases: Unpacked, logs: Path, found: Cronjob) -> None:
    """Forget a cronjob. The row goes last, so whatever stops this is made up for by the next try."""
    await asyncio.to_thread(folders.remove, logs / "cronjobs" / str(found.id))
    while await db.write(partial(_remove_executions, org_id=found.org_id, found=found)) == AT_ONCE:
        continue
    digests = await db.write(partial(_remove_rest, org_id=found.org_id, found=found))
    await releases.remove_unused(db, digests)


def _remove_executions(tx: Tx, org_id: int, found: Cronjob) -> int:
    some = tx.all(tables.SOME_EXECUTIONS, org_id=org_id, cronjob_id=found.id, most=AT_ONCE)
    for each in some:
        tx.run(tables.DELETE_EXECUTION, org_id=org_id, id=each.id)
    return len(some)


def _remove_rest(tx: Tx, org_id: int, found: Cronjob) -> list[str]:
    """Remove what else there is; return the digests that it was built into."""
    builds = tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=found.id)
    for build in builds:
        building.remove(tx, org_id, build)
    vault.remove_all(tx, org_id, found.resource)
    tx.run(tables.DELETE, org_id=org_id, id=found.id)
    return [build.digest for build in builds if build.digest is not None]
