"""Databases that the first deployment of a project creates."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.builders import make_member
from tests.products.databases.support import Team, make_project, make_team

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit import service as audit
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.products.apps.linked import creating, databases
from moorage.products.apps.linked.creating import Created
from moorage.products.databases import service, tables
from moorage.products.databases.automatic import service as automatic
from moorage.products.projects import pushed
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.runtime.builds.ports import Plan as BuildPlan

pytestmark = pytest.mark.anyio


async def deploy(
    team: Team, db: Store, name: str, *, role: Role | None = Role.MEMBER, engine: str = "postgresql"
) -> Created:
    """Request a database for a deployment by a user of this role; None for a push by webhook."""
    org = await db.read(lambda tx: orgs.get(tx, team.org_id))
    user_id = (await make_member(db, org, role)).id if role is not None else None

    def unit(tx: Tx) -> Created:
        project = projects.get(tx, team.org_id, name)
        started = deployments.start(tx, team.org_id, project, DeploymentRequest(branch="main", user_id=user_id))
        (created,) = tx.env.hooks.call(creating.CREATE, tx, team.org_id, started, "postgresql")
        return created

    return await db.write(unit)


async def names(team: Team) -> list[str]:
    return [each["name"] for each in (await team.get("")).data["items"]]


async def test_a_database_of_the_free_tier_is_created_linked_and_recorded(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")

    created = await deploy(team, db, "shop")

    row = await team.row("shop-db")
    target = projects.target_named("shop")
    (recorded,) = await db.read(lambda tx: audit.all_of(tx, team.org_id, target, pushed.DATABASE_CREATED))
    assert created == Created("shop-db")
    assert (row.project_id, row.secret_name, row.instance_type, row.visibility) == (
        project_id,
        "DATABASE_URL",
        "free",
        "private",
    )
    assert (recorded.actor, "shop-db" in recorded.details) == ("Moorage", True)


async def test_a_project_gets_one_once_even_if_its_user_deletes_it(team: Team, db: Store) -> None:
    await make_project(team, "shop")
    await deploy(team, db, "shop")
    row = await team.row("shop-db")

    again = await deploy(team, db, "shop")
    await db.write(lambda tx: service.begin_delete(tx, team.org_id, row))
    await db.write(lambda tx: tx.run(tables.DELETE, org_id=team.org_id, id=row.id))
    after = await deploy(team, db, "shop")

    assert (again, after, await names(team)) == (Created(), Created(), [])


@pytest.mark.parametrize("role", [None, Role.VIEWER])
async def test_neither_a_viewer_nor_a_webhook_creates_one(team: Team, db: Store, role: Role | None) -> None:
    await make_project(team, "shop")

    assert (await deploy(team, db, "shop", role=role), await names(team)) == (Created(), [])


@pytest.mark.parametrize(
    "given",
    [
        {"env": '[{"name": "MOORAGE_AUTO_DATABASE", "value": "off"}]'},
        {"env": '[{"name": "DATABASE_URL", "value": "postgresql://elsewhere/shop"}]'},
    ],
)
async def test_variables_of_the_project_prevent_it(team: Team, db: Store, given: dict[str, Any]) -> None:
    await make_project(team, "shop", **given)

    assert (await deploy(team, db, "shop"), await names(team)) == (Created(), [])


async def test_a_linked_database_is_enough(team: Team, db: Store) -> None:
    await team.create(projectId=await make_project(team, "shop"))

    assert (await deploy(team, db, "shop"), await names(team)) == (Created(), ["orders"])


async def test_the_plan_limits_it_with_a_reason(app: App, db: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    team = await make_team(app, db, plan=Plan.FREE)
    await make_project(team, "shop")
    monkeypatch.setattr("moorage.accounts.plans.service.allowance", lambda settings, standing, name: 0)

    created = await deploy(team, db, "shop")

    assert (created.name, "Your plan allows 0 databases" in created.reason) == ("", True)


async def test_a_project_that_gives_way_takes_its_database_with_it(team: Team, db: Store) -> None:
    await make_project(team, "shop")
    await deploy(team, db, "shop")

    def unit(tx: Tx) -> None:
        automatic.give_way(tx, team.org_id, projects.get(tx, team.org_id, "shop"))

    await db.write(unit)

    assert (await team.row("shop-db")).status == "deleting"


async def test_a_database_of_a_user_keeps_a_pushed_project(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")
    has_chosen = partial(automatic.has_chosen, org_id=team.org_id, project_id=project_id)
    await deploy(team, db, "shop")

    before = await db.read(has_chosen)
    await team.create(projectId=project_id)

    assert (before, await db.read(has_chosen)) == (False, True)


async def test_apps_get_the_parts_of_linked_databases(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")
    await deploy(team, db, "shop")
    row = await team.row("shop-db")
    linked = await db.read(lambda tx: databases.linked(tx, team.org_id, project_id))
    url = linked[0].parts["url"]
    plan = BuildPlan(
        "container",
        "python",
        database="postgresql",
        parts=(("DB_HOST", "{host}"), ("DATABASE_URL", "postgresql+asyncpg://{user}@{host}/{name}")),
    )

    values = databases.variables(linked, plan, {"DATABASE_URL": url, "PGUSER": "own"})
    other = databases.variables(linked, plan, {"DATABASE_URL": "postgresql://elsewhere/"})

    password = linked[0].parts["password"]
    assert values == {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(row.port),
        "PGPASSWORD": password,
        "PGDATABASE": "shop_db",
        "DB_HOST": "127.0.0.1",
        "DATABASE_URL": f"postgresql+asyncpg://{row.username}@127.0.0.1/shop_db",
        "MOORAGE_CREATED_DATABASE": "postgresql",
    }
    assert "DATABASE_URL" not in other
    assert databases.secrets_of(linked, values) == [password, password]


async def test_a_secret_that_a_user_replaced_ends_the_parts(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")
    await team.create(projectId=project_id)
    body = {"secrets": [{"name": "DATABASE_URL", "value": "postgresql://elsewhere/"}]}

    await team.api.patch("/v1/projects/shop", token=team.tokens[Role.MEMBER], json=body)

    assert await db.read(lambda tx: databases.linked(tx, team.org_id, project_id)) == []
