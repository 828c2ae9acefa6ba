"""The plan of a repository is shown before a project is created from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.products.projects.support import Team, make_team, push
from tests.products.repositories.support import Checkout

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("db", ["sqlite"], indirect=True),
    pytest.mark.settings(disk_reserve_mb=0),
]
SITE = {"repositoryName": "acme/site"}
EXPRESS = {"name": "shop", "scripts": {"start": "node index.js"}, "dependencies": {"express": "^5.0.0"}}


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", package_json=json.dumps(EXPRESS), index_js="require('express')")
    return made


async def test_the_plan_of_a_pushed_branch_is_returned_and_nothing_is_created(team: Team, work: Checkout) -> None:
    await push(team, work)

    plan = (await team.api.post("/v1/projects/detect", json=SITE)).data

    assert (plan["kind"], plan["language"], plan["framework"]) == ("container", "nodejs", "Express")
    assert (plan["start"], plan["problem"]) == ("npm start", None)
    assert plan["commitMessage"] == "the first"
    assert any("express" in reason for reason in plan["reasons"])
    assert (await team.api.get("/v1/projects")).data["items"] == []


async def test_the_chosen_kind_decides_as_it_does_in_a_deployment(team: Team, work: Checkout) -> None:
    await push(team, work)

    plan = (await team.api.post("/v1/projects/detect", json={**SITE, "slug": "static"})).data

    assert plan["kind"] == "static"


async def test_a_repository_that_cannot_be_deployed_has_a_problem_and_no_plan(team: Team, work: Checkout) -> None:
    await push(team, work)

    plan = (await team.api.post("/v1/projects/detect", json={**SITE, "baseDir": "nowhere"})).data

    assert "baseDir 'nowhere' is not a folder of the repository" in plan["problem"]
    assert plan["kind"] is None


async def test_a_branch_that_does_not_exist_is_named_at_its_field(team: Team, work: Checkout) -> None:
    await push(team, work)

    reply = await team.api.post("/v1/projects/detect", json={**SITE, "branch": "next"})

    assert reply.status == 400
    assert reply.error["fields"] == {"repositoryName": "branch 'next' does not exist in acme/site"}


@pytest.mark.parametrize(
    "field", [{"baseDir": "../other"}, {"repositoryName": "../../etc"}, {"branch": "--upload-pack"}]
)
async def test_a_path_outside_the_repository_is_refused(team: Team, field: dict[str, str]) -> None:
    reply = await team.api.post("/v1/projects/detect", json={**SITE, **field})

    assert reply.status == 400
    assert list(reply.error["fields"]) == list(field)


async def test_a_project_named_as_the_route_is_read_changed_and_deleted(team: Team) -> None:
    await team.create("detect")

    read = await team.api.get("/v1/projects/detect")
    changed = await team.api.patch("/v1/projects/detect", json={"autoDeploy": True})
    deleted = await team.api.delete("/v1/projects/detect")
    gone = await team.api.get("/v1/projects/detect")
    unknown = [await team.api.request("PUT", "/v1/projects/detect"), await team.api.get("/v1/projects/static-upload")]

    assert (read.data["name"], changed.data["autoDeploy"]) == ("detect", True)
    assert (deleted.status, gone.status) == (200, 404)
    assert [(reply.status, reply.error["code"]) for reply in unknown] == [(404, "not_found")] * 2


@pytest.mark.boundary("tenant-to-tenant", "Detection reads no repository of another organization.")
async def test_another_organization_reads_no_repository_of_this_one(team: Team, stranger: Team, work: Checkout) -> None:
    await push(team, work)

    reply = await stranger.api.post("/v1/projects/detect", json=SITE)

    assert reply.status == 400
    assert "repositoryName" in reply.error["fields"]
    assert "Express" not in reply.body.decode()


async def test_a_viewer_may_not_detect(app: App, db: Database) -> None:
    viewer = await make_team(app, db, role=Role.VIEWER)

    assert (await viewer.api.post("/v1/projects/detect", json=SITE)).status == 403


async def test_no_checkout_is_left(team: Team, work: Checkout) -> None:
    await push(team, work)

    await team.api.post("/v1/projects/detect", json=SITE)

    left = [path for path in team.db.env.settings.data.rglob(".new-*") if path.is_dir()]
    assert left == []
