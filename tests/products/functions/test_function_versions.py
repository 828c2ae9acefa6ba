"""Versions of functions: deployment, rollback and deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conftest import RunJobs
from tests.core.http.lab import one_store
from tests.products.functions.edge_stand_in import EdgeStandIn
from tests.products.functions.support import NODE, Team, actions, code_folders, make_team, references

from moorage.app import App
from moorage.core.db.store import Database
from moorage.products.functions import tables

pytestmark = pytest.mark.anyio


async def test_each_deployment_is_a_version_of_its_own_even_of_the_same_code(
    team: Team, gateway: EdgeStandIn, db: Database
) -> None:
    made = (await team.create()).data

    second = (await team.deploy()).data
    third = (await team.deploy(files={"main.py": "x = 3"})).data

    listed = (await team.api.get("/v1/functions/hello/versions")).data
    assert (second["currentVersion"], third["currentVersion"]) == (2, 3)
    assert [(each["version"], each["current"]) for each in listed] == [(3, True), (2, False), (1, False)]
    assert {each["functionId"] for each in listed} == {made["id"]}
    assert set(listed[0]) == {"id", "functionId", "version", "current", "createdAt", "updatedAt"}
    assert [(route["version"], route["revision"]) for route in gateway.routes.values()] == [(3, 3)]
    owned = {owner: digest for _, owner, digest in await references(db)}
    assert list(owned) == [f"function:{made['id']}:version:{number}" for number in (1, 2, 3)]
    assert len(set(owned.values())) == 2
    assert await actions(team) == ["function.deployed", "function.deployed", "function.created"]


async def test_deployments_at_the_same_time_get_numbers_of_their_own(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()

    replies = await asyncio.gather(*(team.deploy(files={"main.py": f"x = {n}"}) for n in range(6)))

    assert sorted(reply.data["currentVersion"] for reply in replies) == [2, 3, 4, 5, 6, 7]
    assert await team.versions() == [7, 6, 5, 4, 3, 2, 1]
    assert [route["version"] for route in gateway.routes.values()] == [7]


async def test_a_deployment_that_is_refused_changes_nothing(team: Team, db: Database) -> None:
    before = (await team.create()).data
    stored = await references(db)

    reply = await team.deploy(files=NODE)

    assert (reply.status, list(reply.error["fields"])) == (400, ["code"])
    assert (await team.api.get("/v1/functions/hello")).data == before
    assert await references(db) == stored


async def test_a_rollback_switches_to_any_version_and_numbers_go_on(team: Team, gateway: EdgeStandIn) -> None:
    await team.create(files={"main.py": "x = 1"})
    await team.deploy(files={"main.py": "x = 2"})
    deployed = [route["digest"] for route in gateway.routes.values()]

    back = (await team.api.post("/v1/functions/hello/rollback", json={"version": 1})).data
    rolled = [(route["version"], route["digest"] in deployed) for route in gateway.routes.values()]
    forth = (await team.api.post("/v1/functions/hello/rollback", json={"version": 2})).data
    later = (await team.deploy()).data

    assert (back["currentVersion"], forth["currentVersion"], later["currentVersion"]) == (1, 2, 3)
    assert rolled == [(1, False)]


@one_store
@pytest.mark.parametrize(
    ("version", "status"),
    [(2, 404), (2**31, 404), (10**30, 404), (0, 400), (-1, 400), (1.5, 400), ("1", 400), (None, 400), (True, 400)],
)
async def test_a_rollback_to_what_is_no_version_is_refused(team: Team, version: Any, status: int) -> None:
    await team.create()

    reply = await team.api.post("/v1/functions/hello/rollback", json={"version": version})

    assert reply.status == status
    assert (await team.api.get("/v1/functions/hello")).data["currentVersion"] == 1


async def test_a_rollback_does_not_reach_the_versions_of_another_function(team: Team) -> None:
    await team.create()
    await team.create("other")
    await team.deploy("other")

    assert (await team.api.post("/v1/functions/hello/rollback", json={"version": 2})).status == 404


async def test_a_deleted_function_takes_its_versions_references_and_code_along(
    team: Team, gateway: EdgeStandIn, db: Database
) -> None:
    await team.create()
    await team.deploy(files={"main.py": "x = 2"})

    reply = await team.api.delete("/v1/functions/hello")

    assert (reply.status, reply.json) == (200, {"success": True})
    assert (await team.api.get("/v1/functions/hello")).status == 404
    assert (await references(db), code_folders(db.env.settings), gateway.routes) == ([], set(), {})
    assert (await team.api.delete("/v1/functions/hello")).status == 404
    assert (await actions(team))[0] == "function.deleted"


async def test_a_deleted_functions_schedules_go_with_it(team: Team) -> None:
    await team.create()
    body = {"name": "often", "function": "hello", "cronSchedule": "* * * * *"}
    schedule = (await team.api.post("/v1/scheduled-functions", json=body)).data["id"]

    assert (await team.api.delete("/v1/functions/hello")).status == 200

    assert (await team.api.get(f"/v1/scheduled-functions/{schedule}")).status == 404


async def test_a_name_is_free_again_after_its_function_and_versions_start_anew(team: Team) -> None:
    first = (await team.create()).data
    await team.deploy()
    await team.api.delete("/v1/functions/hello")

    again = (await team.create()).data

    assert (again["currentVersion"], await team.versions()) == (1, [1])
    assert again["id"] > first["id"]


async def test_a_deleted_organization_takes_its_functions_along(
    team: Team, app: App, db: Database, gateway: EdgeStandIn, run_jobs: RunJobs
) -> None:
    other = await make_team(app.asgi, db)
    await team.create()
    await team.create("second", files={"main.py": "x = 2"})
    kept = (await other.create()).data["id"]

    assert (await team.api.delete(f"/v1/orgs/{team.org_id}")).status == 200
    await run_jobs()

    assert list(gateway.routes) == [kept]
    assert len(code_folders(db.env.settings)) == 1
    assert {org_id for org_id, _, _ in await references(db)} == {other.org_id}
    assert await db.read(lambda tx: tx.all(tables.ALL_OF, org_id=team.org_id)) == []
