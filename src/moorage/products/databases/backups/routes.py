"""Backups of databases: the policy, those that there are, one more now, and the way back to one."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.schemas import (
    BackupItem,
    DatabaseBackups,
    RestoreDatabaseInput,
    UpdateBackupsInput,
)
from moorage.products.databases.schemas import Done


def make_router() -> Router:
    router = Router("Databases")
    _add_backups(router)
    _add_restore(router)
    return router


def _add_backups(router: Router) -> None:
    @router.get("/databases/{name}/backups")
    def list_backups(tx: Tx, caller: Caller, name: str) -> DatabaseBackups:
        """Return when backups of a database are made, and which there are, newest first.

        `config` is null while no backups are made. A backup is `completed` once it was read back from where it is
        stored; `verifiedAt` says when it was restored to prove it.
        """
        found = service.get(tx, caller.org_id, name)
        assert caller.standing is not None
        backups.check_plan(tx, caller.org_id, caller.standing)
        if not found.tier.paid:
            return DatabaseBackups(None, [])
        return DatabaseBackups.of(found, backups.all_of(tx, caller.org_id, found))

    @router.post("/databases/{name}/backups", floor=Role.MEMBER)
    def make_backup(tx: Tx, caller: Caller, name: str) -> BackupItem:
        """Make a backup now. It is `running` until it was proved that it can be read back."""
        assert caller.standing is not None
        return BackupItem.of(backups.make_now(tx, caller.org_id, caller.as_actor, caller.standing, name))

    @router.patch("/databases/{name}/backups", floor=Role.ADMIN)
    def update_backups(tx: Tx, caller: Caller, name: str, body: UpdateBackupsInput) -> DatabaseBackups:
        """Change when and how backups of a database are made, and how long they are kept.

        With the method `physical` the server's log is kept as well, so that any moment can be restored. To begin or to
        end this the server is started again: the database is `updating` for a moment.
        """
        assert caller.standing is not None
        found = backups.change_policy(tx, caller.org_id, caller.as_actor, caller.standing, name, body.changes())
        return DatabaseBackups.of(found, backups.all_of(tx, caller.org_id, found))


def _add_restore(router: Router) -> None:
    @router.post("/databases/{name}/restore", floor=Role.ADMIN)
    def restore_database(tx: Tx, caller: Caller, name: str, body: RestoreDatabaseInput) -> Done:
        """Replace everything in a database by what a backup holds.

        The database serves on until the backup was loaded beside it and looked through; then it is away for about a
        second. A backup of the present state is made first. Where anything fails the database stays as it is, and
        `statusReason` says why. With `targetTime` and a physical backup any later moment can be restored.
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
