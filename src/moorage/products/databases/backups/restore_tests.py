"""Restore tests: restore the newest backup into a temporary folder to verify it."""

from __future__ import annotations

import contextlib
from functools import partial

from moorage.core.artifacts.objects import ArtifactsUnavailable
from moorage.core.db.tx import Tx
from moorage.core.worker.run import Run
from moorage.errors import RetryLater
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.jobs import FAILURES, STORE_RETRY_S, RunRestoreTest, error_message
from moorage.products.databases.backups.restoring import Rebuilder
from moorage.products.databases.servers import Servers
from moorage.products.databases.states import BackupStatus
from moorage.products.databases.tables import Backup, Database
from moorage.runtime.database_servers.ports import ServerFailed


class RestoreTester:
    def __init__(self, servers: Servers, rebuilder: Rebuilder) -> None:
        self._servers = servers
        self._rebuilder = rebuilder

    async def handle(self, run: Run, job: RunRestoreTest) -> None:
        """Restore a backup next to its running database, and record the result."""
        database = await run.read(lambda tx: service.find_by_id(tx, job.org_id, job.database_id))
        backup = await run.read(lambda tx: backups.find(tx, job.org_id, job.backup_id))
        if database is None or database.deleted_at or backup is None or backup.status != BackupStatus.COMPLETED:
            return
        folder = f"drill-{backup.id}"
        try:
            await self._rebuilder.build(database, backup, None, folder)
        except ArtifactsUnavailable as error:
            raise RetryLater(after_s=STORE_RETRY_S, why=f"the artifact store: {error}") from error
        except FAILURES as error:
            why = error_message(error)
            record = partial(backups.record_failed_test, org_id=job.org_id, database=database, backup=backup, why=why)
            await run.write(record)
        else:
            await run.write(partial(_set_verified, org_id=database.org_id, database=database, backup=backup))
        finally:
            with contextlib.suppress(ServerFailed):  # The next sweep removes it.
                await self._servers.host.folders.remove(database, folder)


def _set_verified(tx: Tx, org_id: int, database: Database, backup: Backup) -> None:
    backups.set_verified(tx, org_id, backup)
    now = service.find_by_id(tx, org_id, database.id)
    if now is not None and (now.status_reason or "").startswith(backups.RESTORE_TEST_FAILED):
        service.set_column(tx, org_id, now, "status_reason", None)
