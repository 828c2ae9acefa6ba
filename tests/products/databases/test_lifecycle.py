"""Lifecycle of databases: create, change, stop, delete, resume after a kill."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, ask, die_before, yard_of
from tests.products.databases.support import Team, make_project
from tests.runtime.engines.engine_support import groups_of

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core import jobs
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database as Store
from moorage.core.jobs import Lane
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.databases import operator as operating
from moorage.products.databases import reconciler, service
from moorage.products.databases.servers import SPARES, servers_of
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.wiring import EmptyTrash
from moorage.products.projects import service as projects
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox.runs import cgroups as run_groups

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

REFUSED = (psycopg.OperationalError, pymysql.err.OperationalError)
TABLES = ("CREATE TABLE ships (n int)", "INSERT INTO ships VALUES (1), (2)")
SHIPS = "SELECT n FROM ships ORDER BY n"
ALL_SHIPS = [(1,), (2,)]
QUOTAS, PERIOD = ("cpu.max", "cpu.cfs_quota_us"), "cpu.cfs_period_us"
SECRETS = {"password", "admin", "replica"}


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


async def servers(yard: Yard) -> list[Server]:
    found = await yard.team.row()
    return await yard.team.db.read(lambda tx: servers_of(tx, found.org_id, found.id))


async def delete(team: Team, name: str = "orders") -> None:
    asked = await team.api.delete(f"/v1/databases/{name}", token=team.tokens[Role.MEMBER])
    assert asked.status == 200, asked.body


async def address(team: Team, project_id: int) -> str | None:
    """Return the database URL of the project's app."""
    return await team.db.read(lambda tx: vault.find(tx, team.org_id, projects.resource_of(project_id), "DATABASE_URL"))


async def is_well(yard: Yard) -> bool:
    """Tell whether the database runs on its first folder without a status reason."""
    found = await yard.team.row()
    keys = [server.key for server in await servers(yard)]
    is_running = (found.status, found.status_reason) == ("running", None)
    return is_running and list(yard.servers.engine.states()) == keys and await yard.folders() == ["s1"]


async def test_a_database_takes_the_folder_that_was_prepared_after_the_one_before(yard: Yard) -> None:
    await yard.make()
    await yard.settle()
    spare = next((yard.team.db.env.settings.folder("engines") / SPARES).iterdir()) / "PG_VERSION"
    prepared = spare.stat().st_ino

    await delete(yard.team)
    await yard.run_jobs()
    found = await yard.make(name="orders")

    assert (yard.servers.folder(found.id, "s1") / "data" / "PG_VERSION").stat().st_ino == prepared
    assert await yard.ask("SELECT 1") == [(1,)]


async def test_a_database_of_a_release_that_was_replaced_starts_with_the_later_one_and_shows_it(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    before = {"software": "postgresql-16.4", "engine_version": "16.4", "engine_exact": True, "engine_note": None}
    for name, value in before.items():
        await yard.team.db.write(
            partial(service.set_column, org_id=found.org_id, database=found, name=name, value=value)
        )
    await yard.servers.stop(await yard.primary())

    await yard.settle()

    read = await yard.team.read()
    assert (await yard.team.row()).software == "postgresql-16.14"
    assert (read["version"], read["engineExact"]) == ("16.4.0", False)
    assert "PostgreSQL 16.14" in read["engineVersion"]
    assert read["engineNote"].startswith("PostgreSQL 16.14 runs in place of 16.4")
    assert await yard.ask(SHIPS) == ALL_SHIPS


# CPU limits.


async def quotas(yard: Yard) -> set[float | None]:
    """Return the CPU limits in the cgroups (v1, v2) of its servers; None for none."""
    found: set[float | None] = set()
    for server in await servers(yard):
        state = await yard.servers.engine.look(server.key)
        found |= {
            _quota(file) for folder in groups_of([state.pid]) for name in QUOTAS for file in Path(folder).glob(name)
        }
    return found


def _quota(file: Path) -> float | None:
    told = file.read_text() if file.name == "cpu.max" else file.read_text() + (file.parent / PERIOD).read_text()
    quota, period = told.split()
    return None if quota in ("max", "-1") else int(quota) / int(period)


def given(cpu: float | None) -> set[float | None]:
    """Return the expected CPU limits; unprivileged users rarely have cgroups."""
    return {cpu} if "cpu" in run_groups.find().controllers else set()


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])
async def test_a_server_has_the_processors_of_its_tier_whenever_it_was_made_or_started(yard: Yard, kind: str) -> None:
    found = await yard.make(kind)
    when_made = await quotas(yard)
    await yard.servers.stop(await yard.primary())

    await yard.settle()

    assert (when_made, await quotas(yard)) == (given(0.5), given(0.5))
    assert found.tier.cpu == 0.5


async def test_both_servers_of_a_pair_have_the_processors_of_their_tier(yard: Yard) -> None:
    await yard.make(architecture="replicaset")

    assert len(await servers(yard)) == 2
    assert await quotas(yard) == given(0.5)


async def test_a_new_server_may_use_the_whole_machine_until_it_is_provisioned(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[float | None]] = []
    provision = yard.parts.lifecycle._provision

    async def watched(found: Database, primary: Server) -> str:
        version = await provision(found, primary)
        seen.append(await quotas(yard))
        return version

    monkeypatch.setattr(yard.parts.lifecycle, "_provision", watched)
    await yard.make()

    assert [*seen, await quotas(yard)] == [given(None), given(0.5)]


async def test_a_platform_that_died_before_it_limited_a_server_does_so_when_it_is_back(yard: Yard) -> None:
    found = await yard.make()
    primary = await yard.primary()
    await yard.servers.stop(primary)
    await yard.servers.start(found, primary, new=yard.servers.software(found))
    before = await quotas(yard)

    await yard.carry_on()

    assert (before, await quotas(yard)) == (given(None), given(0.5))
    assert await is_well(yard)


# The platform is killed before each write of a job.


@pytest.mark.deep
async def test_a_database_whose_making_was_cut_short_is_made_once(yard: Yard) -> None:
    for number in itertools.count(1):
        await yard.team.create()
        if not await die_before(yard, number):
            break
        await yard.carry_on()

        assert await is_well(yard)
        assert await yard.ask("SELECT 1") == [(1,)]
        assert await quotas(yard) == given(0.5)
        await delete(yard.team)
        await yard.run_jobs()
    assert number > 4


@pytest.mark.deep
async def test_a_change_of_tier_that_was_cut_short_is_made(yard: Yard) -> None:
    await yard.make()
    await yard.ask(*TABLES)

    for number, after, cpu in zip(itertools.count(1), itertools.cycle(("mini", "micro")), itertools.cycle((1.0, 0.5))):
        await yard.team.post("/orders/change-tier", json={"instanceType": after})
        if not await die_before(yard, number):
            break
        await yard.carry_on()

        assert await is_well(yard)
        assert (await yard.team.read())["instanceType"] == after
        assert await yard.ask(SHIPS) == ALL_SHIPS
        assert await quotas(yard) == given(cpu)
    assert number > 3


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mysql", marks=pytest.mark.twin)])
async def test_a_change_of_password_that_was_cut_short_leaves_one_that_counts(yard: Yard, kind: str) -> None:
    project_id = await make_project(yard.team, "shop")
    found = await yard.make(kind, projectId=project_id)

    for number in itertools.count(1):
        before = await yard.password()
        await yard.team.post("/orders/rotate-password")
        if not await die_before(yard, number):
            break
        await yard.carry_on()

        now = await yard.password()
        assert await is_well(yard)
        assert await yard.ask("SELECT 1") == [(1,)]
        with pytest.raises(REFUSED):
            ask(found, before, "SELECT 1")
        assert now in (await address(yard.team, project_id) or "")
        assert set(await yard.team.db.read(lambda tx: vault.names(tx, found.org_id, found.resource))) == SECRETS
    assert number > 3


async def test_a_deletion_that_was_cut_short_is_finished_and_can_be_taken_back(yard: Yard) -> None:
    project_id = await make_project(yard.team, "shop")
    found = await yard.make(projectId=project_id)
    await yard.ask(*TABLES)
    linked = await address(yard.team, project_id)
    trash = yard.team.db.env.settings.folder("trash") / f"database-{found.id}"

    for number in itertools.count(1):
        await delete(yard.team)
        if not await die_before(yard, number):
            break
        await yard.carry_on()

        assert (await yard.team.get("/orders")).status == 404
        assert (dict(yard.servers.engine.states()), yard.servers.root(found.id).exists()) == ({}, False)
        assert (trash.is_dir(), await address(yard.team, project_id)) == (True, None)
        await yard.team.db.write(lambda tx: operating.undelete(tx, found.id))
        await yard.carry_on()
        assert await is_well(yard)
        assert await yard.ask(SHIPS) == ALL_SHIPS
        assert await address(yard.team, project_id) == linked
    assert number > 2


# Failures.


@pytest.mark.deep
async def test_a_port_that_somebody_has_taken_meanwhile_fails_a_new_database_and_is_named(yard: Yard) -> None:
    await yard.team.create()
    found = await yard.team.row()

    with socket.create_server(("127.0.0.1", found.port)):
        await yard.run_jobs()

    read = await yard.team.read()
    assert read["status"] == "failed"
    assert f"port {found.port} is in use by another program" in read["statusReason"]
    assert dict(yard.servers.engine.states()) == {}


@pytest.mark.deep
async def test_a_tier_with_which_a_server_does_not_start_is_taken_back(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.make()
    await yard.ask(*TABLES)
    start = yard.servers.start

    async def refuse(found: Database, server: Server, **how: Any) -> None:
        if found.instance_type == "mini":
            raise CannotStart("there is no room for it")
        await start(found, server, **how)

    monkeypatch.setattr(yard.servers, "start", refuse)
    await yard.team.post("/orders/change-tier", json={"instanceType": "mini"})
    await yard.run_jobs()

    read = await yard.team.read()
    why = "it could not be started with the tier mini, and keeps micro: there is no room for it"
    assert (read["status"], read["instanceType"], read["statusReason"]) == ("running", "micro", why)
    assert await yard.ask(SHIPS) == ALL_SHIPS
    assert await quotas(yard) == given(0.5)


@pytest.mark.deep
async def test_a_server_that_starts_with_no_tier_fails_until_the_operator_has_seen_to_it(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)
    broken = yard.servers.folder(found.id, "s1") / "data" / "postgresql.auto.conf"
    whole = broken.read_text()
    broken.write_text("max_connections = many\n")
    await yard.team.post("/orders/change-tier", json={"instanceType": "mini"})
    await yard.run_jobs()
    await yard.settle()
    failed, states = await yard.team.read(), dict(yard.servers.engine.states())

    broken.write_text(whole)
    await yard.team.db.write(lambda tx: operating.start(tx, found.id))
    await yard.settle()

    assert (failed["status"], failed["instanceType"], states) == ("failed", "micro", {})
    assert "its server does not start" in failed["statusReason"]
    assert await is_well(yard)
    assert await yard.ask(SHIPS) == ALL_SHIPS


# Stopped.


async def test_the_operator_stops_a_database_and_starts_it_again(yard: Yard) -> None:
    found = await yard.make()
    await yard.ask(*TABLES)

    await yard.team.db.write(lambda tx: operating.stop(tx, found.id))
    await yard.settle()
    stopped, states = await yard.team.read(), dict(yard.servers.engine.states())
    await yard.team.db.write(lambda tx: operating.start(tx, found.id))
    await yard.settle()

    assert (stopped["status"], stopped["statusReason"], states) == ("stopped", operating.BY_OPERATOR, {})
    assert await is_well(yard)
    assert await yard.ask(SHIPS) == ALL_SHIPS


@pytest.mark.settings(billing="manual")
async def test_a_database_that_is_not_paid_for_is_down_until_it_is(yard: Yard) -> None:
    await yard.make()
    await yard.ask(*TABLES)

    await pay(yard, Plan.FREE)
    unpaid, states = await yard.team.read(), dict(yard.servers.engine.states())
    await pay(yard, Plan.PRO)

    assert (unpaid["status"], unpaid["statusReason"], states) == ("stopped", reconciler.UNPAID, {})
    assert await is_well(yard)
    assert await yard.ask(SHIPS) == ALL_SHIPS


async def pay(yard: Yard, plan: Plan) -> None:
    await yard.team.db.write(lambda tx: orgs.set_plan(tx, yard.team.org_id, THE_PLATFORM, plan))
    await yard.team.db.write(reconciler.enforce_plans)
    await yard.settle()


# Deleted. No server runs here.


async def make_deleted(team: Team, app: App, run_jobs: RunJobs) -> tuple[Database, Path]:
    """Return a database in the trash, and the folder that waits there."""
    await team.create()
    found = await team.set_running()
    app.products.databases.servers.folder(found.id, "s1").mkdir(parents=True)
    await delete(team)
    await run_jobs()
    return found, team.db.env.settings.folder("trash") / f"database-{found.id}"


async def empty_trash(db: Store, run_jobs: RunJobs) -> None:
    await db.write(lambda tx: jobs.add(tx, EmptyTrash(), lane=Lane.BACKUPS))
    await run_jobs()


@pytest.mark.settings(trash_days=2)
async def test_the_trash_is_kept_for_as_many_days_as_the_operator_says(
    team: Team, app: App, db: Store, run_jobs: RunJobs, clock: ManualClock
) -> None:
    found, folder = await make_deleted(team, app, run_jobs)

    clock.advance(2 * DAY_MS - 1)
    await empty_trash(db, run_jobs)
    is_kept = folder.is_dir() and await db.read(lambda tx: service.find_by_id(tx, found.org_id, found.id)) is not None
    clock.advance(1)
    await empty_trash(db, run_jobs)

    assert is_kept
    assert not folder.exists()
    assert await db.read(lambda tx: service.find_by_id(tx, found.org_id, found.id)) is None
    assert await db.read(lambda tx: servers_of(tx, found.org_id, found.id)) == []
    assert await db.read(lambda tx: vault.names(tx, found.org_id, found.resource)) == []
    with pytest.raises(NotFound):
        await db.write(lambda tx: operating.undelete(tx, found.id))


async def test_a_database_does_not_come_back_while_another_one_has_its_name(
    team: Team, app: App, db: Store, run_jobs: RunJobs
) -> None:
    found, folder = await make_deleted(team, app, run_jobs)
    await team.create()

    with pytest.raises(Conflict, match="another database named 'orders'"):
        await db.write(lambda tx: operating.undelete(tx, found.id))
    await delete(team)
    await run_jobs()
    await db.write(lambda tx: operating.undelete(tx, found.id))
    await run_jobs()

    assert ((await team.row()).id, (await team.read())["status"]) == (found.id, "running")
    assert (folder.exists(), app.products.databases.servers.folder(found.id, "s1").is_dir()) == (False, True)


async def test_an_address_that_a_user_has_put_in_place_of_ours_stays(team: Team, db: Store, run_jobs: RunJobs) -> None:
    project_id = await make_project(team, "shop")
    await team.create(projectId=project_id)
    await team.set_running()
    resource = projects.resource_of(project_id)
    await db.write(lambda tx: vault.put(tx, team.org_id, resource, "DATABASE_URL", "postgresql://elsewhere/orders"))

    await delete(team)
    await run_jobs()

    assert await address(team, project_id) == "postgresql://elsewhere/orders"


async def test_a_database_outlives_the_project_that_it_was_linked_to(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")
    await team.create(projectId=project_id)
    await team.set_running()

    await db.write(lambda tx: tx.env.hooks.of(projects.REMOVE)["databases"](tx, team.org_id, project_id))

    read = await team.read()
    assert (read["status"], read["projectId"]) == ("running", None)
