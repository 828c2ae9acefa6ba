"""Compute and plans: refused beyond the plan, lowered after a downgrade, restored when paid."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.projects.support import Team, make_team

from moorage.accounts.identity import notifications
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.artifacts import service as artifacts
from moorage.core.artifacts.service import Upload
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.projects import downgrades
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.service import DeploymentRequest

TEN = {"enabled": True, "minReplicas": 10, "maxReplicas": 10}
PROMISE = "An organization gets no compute that its plan does not include."

pytestmark = [pytest.mark.anyio, pytest.mark.settings(billing="manual")]


@pytest.mark.boundary("tenant-to-tenant", PROMISE)
@pytest.mark.parametrize(
    "compute",
    [{"tier": {"key": "micro"}}, {"disk": 2}, {"disk": 100}, {"autoScaling": TEN}],
)
async def test_compute_beyond_an_unpaid_plan_is_refused_at_creation_and_at_update(
    app: App, db: Database, compute: dict[str, Any]
) -> None:
    free = await make_team(app, db, plan=Plan.FREE)
    await free.create("app", "container")

    created = await free.create("other", "container", **compute)
    detected = await free.create("third", "auto", **compute)
    updated = await free.api.patch("/v1/projects/app", json=compute)

    assert [created.status, detected.status, updated.status] == [402, 402, 402]
    assert created.error["code"] == "quota_exceeded"


async def test_an_app_without_a_tier_is_free_on_an_unpaid_plan_and_unset_on_a_paid_one(app: App, db: Database) -> None:
    free, pro = await make_team(app, db, plan=Plan.FREE), await make_team(app, db)

    await free.create("small", "container", disk=1, autoScaling={"enabled": False, "maxReplicas": 5})
    await free.create("site")
    await pro.create("usual", "container", disk=100, autoScaling=TEN)

    assert (await free.read("small"))["tier"]["key"] == "free"
    assert (await free.read("site"))["tier"] is None
    assert (await pro.read("usual"))["tier"]["key"] == "mini"


@pytest.mark.boundary("tenant-to-tenant", PROMISE)
async def test_a_downgrade_lowers_compute_with_notice_and_a_paid_plan_gives_it_back(app: App, db: Database) -> None:
    team = await make_team(app, db)
    await team.create("app", "container", tier={"key": "large"}, disk=50, autoScaling=TEN)
    await team.create("site")
    await _go_live(team, "app")

    await _set_plan(team, Plan.FREE)
    lowered, told = await team.read("app"), await _kinds_of_notices(team)
    await _set_plan(team, Plan.PRO)
    restored = await team.read("app")

    assert (lowered["tier"]["key"], lowered["disk"], lowered["autoScaling"]) == ("free", 1, None)
    assert told.count("project.compute_lowered") == 1
    assert (restored["tier"]["key"], restored["disk"]) == ("large", 50)
    assert restored["autoScaling"]["minReplicas"] == 10
    assert [each["status"] for each in await team.deployments("app")] == ["queued", "failed", "succeeded", "failed"]
    assert "project.compute_restored" in await team.actions("app")
    assert await team.actions("site") == ["project.created"]


async def test_an_app_that_had_no_tier_is_free_after_a_downgrade_and_the_default_after_an_upgrade(
    app: App, db: Database
) -> None:
    team = await make_team(app, db)
    await team.create("app", "container")

    await _set_plan(team, Plan.FREE)
    lowered = await team.read("app")
    await _set_plan(team, Plan.PRO)

    assert lowered["tier"]["key"] == "free"
    assert (await team.read("app"))["tier"]["key"] == "mini"
    assert len(await team.deployments("app")) == 1  # nothing is live, so nothing restarts


async def test_compute_that_a_user_chose_after_a_downgrade_stays(app: App, db: Database) -> None:
    team = await make_team(app, db)
    await team.create("app", "container", tier={"key": "large"}, disk=5)
    await _set_plan(team, Plan.FREE)

    await team.api.patch("/v1/projects/app", json={"disk": 0})
    await _set_plan(team, Plan.PRO)

    assert (await team.read("app"))["tier"]["key"] == "free"
    assert (await team.read("app"))["disk"] == 0


@pytest.mark.settings(billing="none")
async def test_without_billing_no_plan_limits_compute(app: App, db: Database) -> None:
    team = await make_team(app, db, plan=Plan.FREE)

    made = await team.create("app", "container", tier={"key": "xlarge"}, disk=100, autoScaling=TEN)
    await downgrades.ensure(db, 0)

    assert made.status == 200
    assert (await team.read("app"))["tier"]["key"] == "xlarge"


async def _set_plan(team: Team, plan: Plan) -> None:
    await team.db.write(lambda tx: orgs.set_plan(tx, team.org_id, THE_PLATFORM, plan))
    for _ in range(2):  # The second pass finds nothing to do.
        await downgrades.ensure(team.db, 0)


async def _kinds_of_notices(team: Team) -> list[str]:
    me = (await team.api.get("/v1/me")).data["id"]
    return [each.kind for each in await team.db.read(lambda tx: notifications.all_of(tx, me))]


async def _go_live(team: Team, name: str) -> None:
    """Publish a built release as the pipeline does."""

    def unit(tx: Tx) -> None:
        project = projects.get(tx, team.org_id, name)
        made = deployments.start(tx, team.org_id, project, DeploymentRequest("rollback", plan="{}", is_app=True))
        built: dict[str, Any] = {"digest": "d" * 64, "file_count": 1, "plan": "{}", "is_app": True}
        tx.run(deployment_tables.SET_BUILT, org_id=team.org_id, id=made.id, now=tx.now, **built)
        artifacts.record(tx, team.org_id, Upload("d" * 64, 1, "copy", tx.now), projects.owner_of(made.id))
        deployments.begin(tx, team.org_id, made)
        tx.run(project_tables.GO_LIVE, org_id=team.org_id, id=project.id, deployment_id=made.id, now=tx.now)
        deployments.succeed(tx, team.org_id, made, "live")

    await team.db.write(unit)
