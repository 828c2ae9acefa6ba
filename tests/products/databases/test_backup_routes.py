"""Backups over the API: roles and refused requests. No server runs here."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client import Reply
from tests.conftest import RunJobs
from tests.products.databases.support import Team, make_team

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import timetable
from moorage.core.kit.clock import DAY_MS, ManualClock, to_wire
from moorage.products.databases import service
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.service import StoredBackup
from moorage.products.databases.tables import Backup

pytestmark = pytest.mark.anyio

CONFIG = {
    "enabled": True,
    "method": "logical",
    "cronExpression": "0 3 * * *",
    "retentionPeriod": "7d",
    "backupsToKeep": 7,
    "lastVerifiedRestore": None,
}


@pytest.fixture
async def orders(team: Team) -> Team:
    """A team with a database that is running according to its rows."""
    await team.create(backup="enabled")
    await team.set_running()
    return team


async def add_backup(team: Team, *, method: str = "logical", is_done: bool = True, cause: str = "user") -> Backup:
    """Add the row of a completed backup."""

    def unit(tx: Tx) -> Backup:
        found = service.get(tx, team.org_id, "orders")
        made = backups.add(tx, team.org_id, found, cause, method)
        if is_done:
            first = "s1/000000010000000000000002" if method == "physical" else None
            backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, first))
        return backups.get(tx, team.org_id, made.id)

    return await team.db.write(unit)


async def patch(team: Team, role: Role = Role.ADMIN, **body: Any) -> Reply:
    return await team.api.patch("/v1/databases/orders/backups", token=team.tokens[role], json=body)


async def restore(team: Team, name: str, role: Role = Role.ADMIN, **given: Any) -> Reply:
    return await team.post("/orders/restore", role, json={"backupName": name, "confirm": True, **given})


async def test_the_policy_and_all_backups_are_listed_newest_first(orders: Team, clock: ManualClock) -> None:
    older = await add_backup(orders)
    clock.advance(60_000)
    newer = await add_backup(orders, is_done=False, cause="schedule")

    listed = (await orders.get("/orders/backups", Role.VIEWER)).data

    assert listed["config"] == CONFIG
    assert [item["name"] for item in listed["items"]] == [newer.name, older.name]
    assert listed["items"][1] == {
        "name": older.name,
        "status": "completed",
        "method": "logical",
        "totalSize": 5,
        "startedAt": to_wire(older.started_at),
        "completedAt": to_wire(older.started_at),
        "expiresAt": to_wire(older.started_at + 7 * DAY_MS),
        "verifiedAt": None,
        "reason": None,
        "cause": "user",
    }


async def test_without_a_policy_there_is_no_config_but_what_exists_is_listed(team: Team) -> None:
    await team.create()
    await team.set_running()
    made = await add_backup(team)

    listed = (await team.get("/orders/backups")).data

    assert listed["config"] is None
    assert [item["name"] for item in listed["items"]] == [made.name]


async def test_a_database_of_the_free_tier_has_no_backups(team: Team) -> None:
    await team.create(instanceType="free")
    await team.set_running()

    listed = (await team.get("/orders/backups")).data
    asked = await team.post("/orders/backups", Role.MEMBER)
    changed = await patch(team, enabled=True)
    restored = await restore(team, "any", confirm=False)

    assert listed == {"config": None, "items": []}
    assert [reply.status for reply in (asked, changed, restored)] == [402, 402, 402]


@pytest.mark.settings(billing="manual")
async def test_on_an_unpaid_plan_there_are_no_backups_at_all(app: App, db: Database) -> None:
    team = await make_team(app, db, plan=Plan.FREE)
    await team.create(instanceType="free")
    await team.set_running()

    replies = [
        await team.get("/orders/backups"),
        await team.post("/orders/backups", Role.MEMBER),
        await patch(team, enabled=True),
        await restore(team, "any"),
    ]

    assert [reply.status for reply in replies] == [402, 402, 402, 402]


async def test_a_backup_that_was_asked_for_is_running(orders: Team) -> None:
    made = await orders.post("/orders/backups", Role.MEMBER)

    assert made.status == 200
    assert (made.data["status"], made.data["cause"], made.data["completedAt"]) == ("running", "user", None)


async def test_there_is_one_backup_at_a_time(orders: Team) -> None:
    await orders.post("/orders/backups", Role.MEMBER)

    second = await orders.post("/orders/backups", Role.MEMBER)

    assert second.status == 409


async def test_a_database_that_does_not_run_is_not_backed_up(team: Team) -> None:
    await team.create()

    asked = await team.post("/orders/backups", Role.MEMBER)

    assert asked.status == 409


async def test_roles_decide_who_may_do_what(orders: Team) -> None:
    made = await add_backup(orders)

    assert (await orders.post("/orders/backups", Role.VIEWER)).status == 403
    assert (await patch(orders, Role.MEMBER, enabled=False)).status == 403
    assert (await restore(orders, made.name, Role.MEMBER)).status == 403


async def test_another_organization_sees_nothing(orders: Team, stranger: Team) -> None:
    assert (await stranger.get("/orders/backups")).status == 404
    assert (await stranger.post("/orders/backups", Role.MEMBER)).status == 404
    assert (await patch(stranger, enabled=True)).status == 404
    assert (await restore(stranger, "any")).status == 404


async def test_a_policy_is_changed_field_by_field(orders: Team) -> None:
    changed = await patch(orders, cronExpression="30 1 * * 1", retentionPeriod="30d", backupsToKeep=3)

    config = {**CONFIG, "cronExpression": "30 1 * * 1", "retentionPeriod": "30d", "backupsToKeep": 3}
    assert changed.data == {"config": config, "items": []}
    assert (await orders.read())["backupsToKeep"] == 3


async def test_the_timetable_follows_the_policy(orders: Team) -> None:
    row = await orders.row()

    async def planned() -> str | None:
        entry = await orders.db.read(lambda tx: timetable.find(tx, orders.org_id, backups.KIND, str(row.id)))
        return entry.expression if entry else None

    await patch(orders, cronExpression="30 1 * * 1")
    changed = await planned()
    await patch(orders, enabled=False)
    removed = await planned()

    assert (changed, removed) == ("30 1 * * 1", None)
    assert (await orders.get("/orders/backups")).data["config"] is None
    assert (await orders.read())["backupsToKeep"] is None


async def test_a_policy_that_begins_has_the_usual_number_of_backups(team: Team) -> None:
    await team.create()
    await team.set_running()

    changed = await patch(team, enabled=True)

    assert changed.data["config"] == CONFIG


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cronExpression", "61 * * * *"),
        ("cronExpression", "0 0 30 2 *"),
        ("retentionPeriod", "0d"),
        ("retentionPeriod", "366d"),
        ("retentionPeriod", "7"),
        ("backupsToKeep", 0),
        ("backupsToKeep", 366),
        ("method", "magical"),
        ("enabled", "yes"),
    ],
)
async def test_a_bad_policy_is_refused_by_its_field(orders: Team, field: str, value: Any) -> None:
    refused = await patch(orders, **{field: value})

    assert refused.status == 400
    assert set(refused.error["fields"]) == {field}
    assert (await orders.get("/orders/backups")).data["config"] == CONFIG


async def test_only_postgresql_has_physical_backups(team: Team) -> None:
    await team.create(type="mysql", version="8.4.2")
    await team.set_running()

    refused = await patch(team, enabled=True, method="physical")

    assert refused.status == 400
    assert set(refused.error["fields"]) == {"method"}


async def test_a_server_that_is_to_archive_is_changed_by_a_job(orders: Team) -> None:
    changed = await patch(orders, method="physical")

    assert changed.data["config"]["method"] == "physical"
    assert (await orders.read())["status"] == "updating"
    assert (await patch(orders, method="logical")).status == 409


async def test_a_restore_has_to_be_meant(orders: Team) -> None:
    made = await add_backup(orders)

    refused = await restore(orders, made.name, confirm=False)
    left_out = await orders.post("/orders/restore", Role.ADMIN, json={"backupName": made.name})

    assert [refused.status, left_out.status] == [400, 400]
    assert set(refused.error["fields"]) == {"confirm"}
    assert (await orders.read())["status"] == "running"


async def test_what_is_restored_must_be_a_backup_that_was_completed(orders: Team) -> None:
    running = await add_backup(orders, is_done=False)

    assert (await restore(orders, "nothing")).status == 404
    assert (await restore(orders, running.name)).status == 409


async def test_a_database_that_changes_is_not_restored(orders: Team) -> None:
    made = await add_backup(orders)
    await restore(orders, made.name)

    second = await restore(orders, made.name)
    unknown = await restore(orders, "nothing")

    assert [second.status, unknown.status] == [409, 409]
    assert (await orders.read())["status"] == "updating"


async def test_a_restore_is_answered_at_once_and_recorded(orders: Team) -> None:
    made = await add_backup(orders)

    asked = await restore(orders, made.name)

    feed = (await orders.api.get("/v1/activity", token=orders.tokens[Role.OWNER])).data
    assert asked.data == {"ok": True}
    assert "database.restore_requested" in str(feed)


async def test_a_moment_needs_a_physical_backup_that_is_older(orders: Team, clock: ManualClock) -> None:
    logical = await add_backup(orders)
    clock.advance(60_000)
    physical = await add_backup(orders, method="physical")
    clock.advance(60_000)

    replies = [
        await restore(orders, logical.name, targetTime=to_wire(clock.now())),
        await restore(orders, physical.name, targetTime=to_wire(clock.now() + 1)),
        await restore(orders, physical.name, targetTime=to_wire(physical.started_at - 1)),
        await restore(orders, physical.name, targetTime="yesterday"),
        await restore(orders, physical.name, targetTime="2026-01-01T00:00:00"),
    ]

    assert [(reply.status, set(reply.error["fields"])) for reply in replies] == [(400, {"targetTime"})] * 5
    assert (await restore(orders, physical.name, targetTime=to_wire(clock.now()))).data == {"ok": True}


async def test_a_backup_whose_job_fails_for_good_is_failed(orders: Team, run_jobs: RunJobs) -> None:
    await orders.post("/orders/backups", Role.MEMBER)

    await run_jobs()

    [item] = (await orders.get("/orders/backups")).data["items"]
    assert item["status"] == "failed"
    assert item["reason"]
