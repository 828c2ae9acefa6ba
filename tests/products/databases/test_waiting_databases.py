"""`?wait=` on the routes of databases; the rows change here, without a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.products.databases.support import Team
from tests.waiting import answer_of

from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx, move
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.service import StoredBackup
from moorage.products.databases.states import DATABASE, BackupStatus, DatabaseStatus
from moorage.products.databases.tables import Database

pytestmark = pytest.mark.anyio

STORED = StoredBackup("0" * 64, 5, 1, None)


async def finish(team: Team, *statuses: DatabaseStatus, end: Callable[[Tx, Database], None]) -> None:
    """Do the work of a job once the database is in one of these states."""

    def unit(tx: Tx) -> None:
        database = service.find(tx, team.org_id, "orders")
        if database is not None and database.status in statuses:
            end(tx, database)

    await team.db.write(unit)


async def test_a_new_database_that_waits_is_running_and_has_its_addresses(team: Team) -> None:
    body = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}

    async def work() -> None:
        if (await team.get("/orders")).status == 200 and (await team.read())["status"] == "pending":
            await team.set_running()

    reply = await answer_of(team.post("?wait=60", json=body), work)

    assert (reply.status, reply.data["status"]) == (200, "running")
    assert reply.data["privateUrl"] is not None
    assert reply.data == await team.read()


async def test_a_change_of_tier_and_a_new_password_wait_until_the_database_runs_again(team: Team) -> None:
    await team.create()
    await team.set_running()

    async def work() -> None:
        await finish(
            team, DatabaseStatus.UPDATING, end=lambda tx, row: move(tx, DATABASE, row, to=DatabaseStatus.RUNNING)
        )

    changed = await answer_of(team.post("/orders/change-tier?wait=60", json={"instanceType": "mini"}), work)
    rotated = await answer_of(team.post("/orders/rotate-password?wait=60"), work)

    assert changed.data["status"] == "running"
    assert rotated.data == {"ok": True, "status": "running"}


async def test_a_backup_and_a_restore_wait_for_their_end(team: Team) -> None:
    await team.create(backup="enabled")
    await team.set_running()

    def complete(tx: Tx, row: Database) -> None:
        for each in backups.all_of(tx, team.org_id, row):
            if each.status == BackupStatus.RUNNING:
                backups.complete(tx, team.org_id, each.id, STORED)

    async def back_up() -> None:
        await finish(team, DatabaseStatus.RUNNING, end=complete)

    async def restore() -> None:
        await finish(
            team, DatabaseStatus.UPDATING, end=lambda tx, row: move(tx, DATABASE, row, to=DatabaseStatus.RUNNING)
        )

    made = await answer_of(team.post("/orders/backups?wait=60"), back_up)
    chosen = {"backupName": made.data["name"], "confirm": True}
    restored = await answer_of(team.post("/orders/restore?wait=60", json=chosen), restore)

    assert (made.data["status"], made.data["totalSize"]) == ("completed", 5)
    assert restored.data == {"ok": True, "status": "running"}


async def test_a_deletion_waits_until_the_database_is_gone(team: Team) -> None:
    await team.create()
    await team.set_running()
    token = team.tokens[Role.OWNER]

    async def work() -> None:
        await finish(
            team,
            DatabaseStatus.DELETING,
            end=lambda tx, row: service.set_column(tx, team.org_id, row, "deleted_at", tx.now),
        )

    reply = await answer_of(team.api.delete("/v1/databases/orders?wait=60", token=token), work)

    assert reply.data == {"async": True, "status": "deleted"}
    assert (await team.get("/orders")).status == 404
