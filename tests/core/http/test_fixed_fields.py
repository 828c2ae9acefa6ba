"""A PATCH route refuses the fields of its resource that it does not change."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from tests.builders import make_org, make_token, make_user
from tests.client import Client
from tests.core.http.lab import lab, one_store

from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http.fixed_fields import FixedFields
from moorage.core.http.models import Input, Output, optional
from moorage.core.http.openapi.operations import answer_of, body_of, operations
from moorage.core.http.openapi.schema_text import Schemas
from moorage.core.http.route import Router
from moorage.core.http.waiting import WaitedStatus

pytestmark = pytest.mark.anyio

# Properties that only answers of writes have, by the name of their schema.
ONLY_IN_WRITES = {"FunctionDetail": {"status"}, "ProjectDetail": {"status", "triggeredDeploymentUuid"}}


class Boat(Output, frozen=True):
    id: int
    name: str
    sail_area: int
    is_afloat: bool
    status: WaitedStatus = msgspec.UNSET


class BoatInput(Input):
    name: str = optional()
    anchor: str = optional()


class SailInput(Input):
    sail_area: int


@pytest.fixture
def boats(db: Database) -> Client:
    router, argo = Router("Lab"), Boat(7, "Argo", 30, True)

    @router.patch("/boats/{name}", changed_by=(("isAfloat", "POST /v1/boats/{name}/launch"),))
    def update_boat(name: str, body: BoatInput) -> Boat:
        return argo

    @router.patch("/boats/{name}/sail")
    def change_sail(name: str, body: SailInput) -> Boat:
        return argo

    return lab(db, router)


async def refused(boats: Client, body: Any, path: str = "/v1/boats/argo") -> Any:
    reply = await boats.patch(path, json=body)
    assert (reply.status, reply.error["code"]) == (400, "bad_request")
    return reply.error["fields"]


@one_store
async def test_a_field_that_another_route_changes_is_refused_with_that_route(boats: Client) -> None:
    by_action = await refused(boats, {"isAfloat": False})
    by_other_patch = await refused(boats, {"sailArea": 20, "name": "Argo II"})
    by_first_patch = await refused(boats, {"sailArea": 20, "name": "Argo II"}, "/v1/boats/argo/sail")

    assert by_action == {"isAfloat": "cannot be changed here; use POST /v1/boats/argo/launch"}
    assert by_other_patch == {"sailArea": "cannot be changed here; use PATCH /v1/boats/argo/sail"}
    assert by_first_patch == {"name": "cannot be changed here; use PATCH /v1/boats/argo"}


@one_store
async def test_a_field_that_nothing_changes_is_refused(boats: Client) -> None:
    assert await refused(boats, {"id": 8}) == {"id": "cannot be changed"}


@one_store
async def test_all_bad_fields_are_reported_at_once(boats: Client) -> None:
    assert set(await refused(boats, {"id": 8, "name": 7, "flag": True})) == {"id", "name"}


@one_store
@pytest.mark.parametrize("body", [{"flag": True, "sail_area": 1}, {"anchor": "bow"}, {"status": "sunk"}, {}])
async def test_fields_that_the_resource_does_not_have_are_ignored(boats: Client, body: Any) -> None:
    assert (await boats.patch("/v1/boats/argo", json=body)).status == 200


@one_store
@pytest.mark.parametrize("body", [["id"], "id", None, 7])
async def test_a_body_that_is_not_an_object_is_refused_as_before(boats: Client, body: Any) -> None:
    reply = await boats.patch("/v1/boats/argo", content=b"null" if body is None else str(body).encode())

    assert reply.status == 400


async def test_every_patch_route_refuses_exactly_the_fields_of_its_resource_that_it_does_not_take(
    app: App, db: Database
) -> None:
    document = app.describe()
    schemas = Schemas(document)
    all_operations = [each for of_tag in operations(document).values() for each in of_tag]
    reads = {each.path: each for each in all_operations if each.method == "get"}
    fixed = FixedFields(app.routes)
    routes = {route.path: route for route in app.routes if route.method == "PATCH"}

    for operation in (each for each in all_operations if each.method == "patch"):
        resource = answer_of(reads.get(operation.path, operation), schemas)[2]
        sent = body_of(operation, schemas)
        assert resource is not None
        assert sent is not None
        schema_name = str(resource.get("$ref", "")).rpartition("/")[2]
        shown = set(schemas.resolve(resource)["properties"]) - ONLY_IN_WRITES.get(schema_name, set())
        taken = set(schemas.resolve(sent[1])["properties"])
        named = {name for name, _ in routes[operation.path].changed_by}
        assert set(fixed.of(routes[operation.path])) == (shown | named) - taken, operation.path


async def test_the_routes_that_are_named_exist_and_their_fields_are_refused(app: App) -> None:
    known = {f"{route.method} {route.path}" for route in app.routes}
    named = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE) \S+")

    for route in (each for each in app.routes if each.method == "PATCH"):
        fixed = FixedFields(app.routes).of(route)
        assert {name for name, _ in route.changed_by} <= set(fixed), route.path
        assert {each for text in fixed.values() for each in named.findall(text)} <= known, route.path


async def test_disabling_a_project_by_patch_names_the_route_that_does(app: App, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=Plan.PRO)
    api = Client(app.asgi, token=await make_token(db, owner, org.id))
    await api.post("/v1/projects", json={"slug": "static", "name": "site", "repositoryName": "acme/site"})

    reply = await api.patch("/v1/projects/site", json={"enabled": False, "name": "other", "autoDeploy": True})

    assert reply.error["fields"] == {
        "enabled": "cannot be changed here; use POST /v1/projects/site/toggle",
        "name": "cannot be changed here; use PATCH /v1/projects/site/name",
    }
    assert (await api.get("/v1/projects/site")).data["autoDeploy"] is False


async def test_the_archive_of_a_function_in_a_patch_names_the_route_that_deploys_it(app: App, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner)
    api = Client(app.asgi, token=await make_token(db, owner, org.id))

    reply = await api.patch("/v1/functions/hello", json={"code": "UEs=", "file": "UEs="})

    message = "cannot be changed here; use POST /v1/functions/hello/deploy"
    assert reply.error["fields"] == {"code": message, "file": message}


async def test_fields_that_only_answers_of_writes_have_are_ignored(app: App, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=Plan.PRO)
    api = Client(app.asgi, token=await make_token(db, owner, org.id))
    await api.post("/v1/projects", json={"slug": "static", "name": "site", "repositoryName": "acme/site"})
    sent = {"triggeredDeploymentUuid": "x", "status": "x"}

    changed = await api.patch("/v1/projects/site", json={**sent, "autoDeploy": True})
    renamed = await api.patch("/v1/projects/site/name", json={**sent, "name": "other"})
    of_function = await api.patch("/v1/functions/none", json={"status": "x"})

    shown = (await api.get("/v1/projects/other")).data
    assert (changed.status, renamed.status, of_function.status) == (200, 200, 404)
    assert shown["autoDeploy"] is True
    assert not shown.keys() & sent.keys()
