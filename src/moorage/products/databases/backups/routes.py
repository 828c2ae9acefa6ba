"""HTTP routes of backups and restores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.schemas import (
    BackupItem,
    DatabaseBackups,
    RestoreDatabaseInput,
    UpdateBackupsInput,
)
from moorage.products.databases.routes import follow_change
from moorage.products.databases.schemas import Done
from moorage.products.databases.states import BACKUP, CHANGING

_CHANGED_BY = (
    ("config", "its fields themselves, such as cronExpression"),
    ("items", "POST /v1/databases/{name}/backups"),
)


def make_router() -> Router:
    router = Router("Databases")
    _add_backups(router)
    _add_restore(router)
    return router


def _follow_backup(tx: Tx, caller: Caller, answer: BackupItem, path: Mapping[str, Any]) -> Progress:
    database = service.get(tx, caller.org_id, path["name"])
    backup = backups.get_by_name(tx, caller.org_id, database, answer.name)
    return Progress(BackupItem.of(backup), backup.status in BACKUP.terminal)


def _follow_policy(tx: Tx, caller: Caller, answer: DatabaseBackups, path: Mapping[str, Any]) -> Progress:
    """Follow the restart of a server that starts or stops to archive its log."""
    database = service.get(tx, caller.org_id, path["name"])
    current = DatabaseBackups.of(database, backups.all_of(tx, caller.org_id, database))
    return Progress(current, database.status not in CHANGING)


def _add_backups(router: Router) -> None:
    @router.get("/databases/{name}/backups")
    def list_backups(tx: Tx, caller: Caller, name: str) -> DatabaseBackups:
        """Return the backup policy of a database, and its backups, newest first.

        `config` is null while backups are disabled. A backup is `completed` once the stored file was read back and
        checked; `verifiedAt` is the time of its last restore test.
        """
        database = service.get(tx, caller.org_id, name)
        assert caller.standing is not None
        backups.check_plan(tx, caller.org_id, caller.standing)
        if not database.tier.paid:
            return DatabaseBackups(None, [])
        return DatabaseBackups.of(database, backups.all_of(tx, caller.org_id, database))

    @router.post("/databases/{name}/backups", min_role=Role.MEMBER, follow=_follow_backup)
    def make_backup(tx: Tx, caller: Caller, name: str) -> BackupItem:
        """Create a backup now; it is `running` until the stored file was checked."""
        assert caller.standing is not None
        return BackupItem.of(backups.make_now(tx, caller.org_id, caller.as_actor, caller.standing, name))

    @router.patch("/databases/{name}/backups", min_role=Role.ADMIN, changed_by=_CHANGED_BY, follow=_follow_policy)
    def update_backups(tx: Tx, caller: Caller, name: str, body: UpdateBackupsInput) -> DatabaseBackups:
        """Change the schedule, method and retention of backups.

        With the method `physical` the server's log is stored too, so that any point in time can be restored. Switching
        this on or off restarts the server: the database is `updating` for a moment.
        """
        assert caller.standing is not None
        database = backups.change_policy(tx, caller.org_id, caller.as_actor, caller.standing, name, body.changes())
        return DatabaseBackups.of(database, backups.all_of(tx, caller.org_id, database))


def _add_restore(router: Router) -> None:
    @router.post("/databases/{name}/restore", min_role=Role.ADMIN, follow=follow_change)
    def restore_database(tx: Tx, caller: Caller, name: str, body: RestoreDatabaseInput) -> Done:
        """Replace the data of a database with a backup.

        The database stays available while the backup is loaded and checked, then it is down for about a second. A
        safety backup of the current data is created first. On an error the database is unchanged, and `statusReason`
        has the reason. With `targetTime` and a physical backup any later point in time can be restored.
        """
        assert caller.standing is not None
        backups.restore(
            tx,
            caller.org_id,
            caller.as_actor,
            caller.standing,
            name,
            body.backup_name,
            is_confirmed=body.confirm,
            target_ms=body.target_ms,
        )
        return Done(True)
