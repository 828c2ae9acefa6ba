"""Restore tests: backups of real servers are restored; results are recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, yard_of
from tests.products.databases.support import Team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.query import Query, arg, scalar
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.jobs import timetable
from moorage.core.jobs.tables import job
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import MINUTE_MS, ManualClock, to_wire
from moorage.products.databases.backups import jobs as backup_jobs
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.service import StoredBackup

pytestmark = pytest.mark.anyio

ON_SQLITE = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


async def drill(app: App, db: Store, run_jobs: RunJobs) -> None:
    """Fire the tick of the restore tests, and run their jobs."""
    kind = backup_jobs.RESTORE_TESTS
    await db.write(lambda tx: app.handlers.ticks[kind](tx, Tick(kind, 0, "", 0)))
    await run_jobs()


@ON_SQLITE
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_a_backup_that_was_restored_is_verified(yard: Yard, app: App, db: Store, kind: str) -> None:
    await yard.make(kind, backup="enabled")
    await yard.ask("CREATE TABLE ships (n int)", "INSERT INTO ships VALUES (1)")
    await yard.back_up()
    yard.clock.advance(MINUTE_MS)

    await drill(app, db, yard.run_jobs)

    listed = (await yard.team.get("/orders/backups")).data
    read = await yard.team.read()
    now = to_wire(yard.clock.now())
    assert [item["verifiedAt"] for item in listed["items"]] == [now]
    assert (listed["config"]["lastVerifiedRestore"], read["lastVerifiedRestore"]) == (now, now)
    assert (read["status"], read["statusReason"]) == ("running", None)
    assert await yard.folders() == ["s1"]
    assert await yard.ask("SELECT n FROM ships") == [(1,)]


@pytest.mark.deep
@ON_SQLITE
async def test_a_physical_backup_is_verified_as_well(yard: Yard, app: App, db: Store) -> None:
    await yard.make()
    await yard.policy(enabled=True, method="physical")
    await yard.run_jobs()

    await drill(app, db, yard.run_jobs)

    [item] = await yard.items()
    assert (item["method"], item["verifiedAt"]) == ("physical", to_wire(yard.clock.now()))
    assert await yard.folders() == ["s1"]


@ON_SQLITE
async def test_a_backup_that_cannot_be_restored_is_told_of(yard: Yard, app: App, db: Store, tmp_path: Path) -> None:
    found = await yard.make()
    (tmp_path / "dump").write_bytes(b"nothing of the kind")
    made = await db.write(lambda tx: backups.add(tx, found.org_id, found, "user", "logical"))
    stored = await app.artifacts.put_file(found.org_id, tmp_path / "dump", owner=backups.owner_of(made))
    done = StoredBackup(stored.digest, stored.size, 1, None)
    await db.write(lambda tx: backups.complete(tx, found.org_id, made.id, done))

    await drill(app, db, yard.run_jobs)
    told = await yard.team.read()
    feed = (await yard.team.api.get("/v1/activity", token=yard.team.tokens[Role.OWNER])).data
    yard.clock.advance(MINUTE_MS)
    await yard.back_up()
    await drill(app, db, yard.run_jobs)

    assert told["status"] == "running"
    assert told["statusReason"].startswith("A backup could not be restored to prove it:")
    assert "database.drill_failed" in str(feed)
    assert (await yard.team.read())["statusReason"] is None


async def test_what_was_verified_is_not_restored_again(team: Team, app: App, db: Store) -> None:
    await team.create()
    found = await team.set_running()

    def unit(tx: Tx) -> None:
        made = backups.add(tx, team.org_id, found, "user", "logical")
        backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, None))
        backups.set_verified(tx, team.org_id, made)
        backup_jobs.plan_restore_tests(tx, backup_jobs.PlanRestoreTests())

    await db.write(unit)

    assert await jobs_of(db, "databases.drill") == 0


async def test_every_database_that_runs_has_its_newest_backup_restored(team: Team, app: App, db: Store) -> None:
    await team.create()
    found = await team.set_running()
    await team.create("idle")

    def unit(tx: Tx) -> None:
        for _ in range(2):
            made = backups.add(tx, team.org_id, found, "user", "logical")
            backups.complete(tx, team.org_id, made.id, StoredBackup("0" * 64, 5, 1, None))
        backup_jobs.plan_restore_tests(tx, backup_jobs.PlanRestoreTests())

    await db.write(unit)

    assert await jobs_of(db, "databases.drill") == 1


async def jobs_of(db: Store, kind: str) -> int:
    count: Query[int] = Query(select(func.count()).where(job.c.kind == arg("kind")), scalar)
    return await db.read(lambda tx: tx.one(count, kind=kind))


async def test_the_chores_are_in_the_timetable(app: App, db: Store) -> None:
    await app.handlers.ensure_maintenance(db, 0)

    found = await db.read(
        lambda tx: [timetable.find(tx, 0, kind, "") for kind in (backup_jobs.RESTORE_TESTS, backup_jobs.SWEEP)]
    )

    assert [entry.expression if entry else None for entry in found] == ["23 4 * * *", "51 * * * *"]
