"""Drills: a backup counts as proved once it was restored where nobody sees it, and everything was there."""

from __future__ import annotations

import asyncio
from functools import partial

from moorage.core.artifacts.objects import ArtifactsUnavailable
from moorage.core.db.tx import Tx
from moorage.core.kit import folders
from moorage.core.worker.run import Run
from moorage.errors import RetryLater
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.jobs import AWAY_S, FAILURES, DrillBackup, sentence
from moorage.products.databases.backups.restoring import Rebuilder
from moorage.products.databases.servers import Servers
from moorage.products.databases.states import BackupStatus
from moorage.products.databases.tables import Backup, Database


class Driller:
    def __init__(self, servers: Servers, rebuilder: Rebuilder) -> None:
        self._servers = servers
        self._rebuilder = rebuilder

    async def handle(self, run: Run, job: DrillBackup) -> None:
        """Restore a backup beside its database, and write down what came of it. The database itself is not touched."""
        found = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        if found is None or found.deleted_at is not None or backup is None or backup.status != BackupStatus.COMPLETED:
            return
        folder = f"drill-{backup.id}"
        try:
            await self._rebuilder.build(found, backup, None, folder)
        except ArtifactsUnavailable as error:
            raise RetryLater(after_s=AWAY_S, why=f"the artifact store: {error}") from error
        except FAILURES as error:
            why = sentence(error)
            record = partial(backups.record_failed_drill, org_id=found.org_id, found=found, backup=backup, why=why)
            await run.write(record)
        else:
            await run.write(partial(_set_proved, org_id=found.org_id, found=found, backup=backup))
        finally:
            await asyncio.to_thread(folders.remove, self._servers.place(found.id, folder))


def _set_proved(tx: Tx, org_id: int, found: Database, backup: Backup) -> None:
    backups.set_verified(tx, org_id, backup)
    now = service.find_by_id(tx, org_id, found.id)
    if now is not None and (now.status_reason or "").startswith(backups.DRILL_FAILED):
        service.set_column(tx, org_id, now, "status_reason", None)
