"""Minimum roles of the function routes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.accounts.identity.support import make_house
from tests.client import Client
from tests.products.functions.edge_stand_in import EdgeStandIn
from tests.products.functions.support import PYTHON, Team, form, make_team, zip_of

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database

pytestmark = pytest.mark.anyio

MIN_ROLES = {
    ("GET", "/v1/functions"): None,
    ("GET", "/v1/functions/token"): None,
    ("POST", "/v1/functions"): Role.MEMBER,
    ("POST", "/v1/functions/{name}/deploy"): Role.MEMBER,
    ("GET", "/v1/functions/{name}"): None,
    ("PATCH", "/v1/functions/{name}"): Role.MEMBER,
    ("GET", "/v1/functions/{name}/versions"): None,
    ("GET", "/v1/functions/{name}/versions/{version}/files"): Role.MEMBER,
    ("POST", "/v1/functions/{name}/rollback"): Role.MEMBER,
    ("GET", "/v1/functions/{name}/secrets"): Role.MEMBER,
    ("POST", "/v1/functions/{name}/secrets/reveal"): Role.MEMBER,
    ("DELETE", "/v1/functions/{name}"): Role.MEMBER,
    ("POST", "/v1/functions/{name}/invoke"): None,
    ("GET", "/v1/functions/{name}/invocations"): None,
    ("GET", "/v1/functions/{name}/metrics"): None,
    ("GET", "/v1/functions/{name}/logs/stream"): None,
}
CALLS: tuple[tuple[str, str, dict[str, Any], Role | None], ...] = (
    ("GET", "/v1/functions", {}, None),
    ("GET", "/v1/functions/token", {}, None),
    ("GET", "/v1/functions/hello", {}, None),
    ("GET", "/v1/functions/hello/versions", {}, None),
    ("POST", "/v1/functions/hello/invoke", {}, None),
    ("POST", "/v1/functions/hello/deploy", form(zip_of(PYTHON)), Role.MEMBER),
    ("PATCH", "/v1/functions/hello", {"json": {"memory": 512}}, Role.MEMBER),
    ("POST", "/v1/functions/hello/rollback", {"json": {"version": 1}}, Role.MEMBER),
    ("GET", "/v1/functions/hello/secrets", {}, Role.MEMBER),
    ("DELETE", "/v1/functions/hello", {}, Role.MEMBER),
    ("POST", "/v1/functions", form(zip_of(PYTHON), name="hello", runtime="python"), Role.MEMBER),
)


async def test_the_routes_of_functions_carry_the_floors_that_are_promised(app: App) -> None:
    declared = {(route.method, route.path): route.min_role for route in app.routes if route.tag == "Functions"}

    assert declared == MIN_ROLES


async def test_each_role_may_do_what_its_floor_says(app: App, db: Database, team: Team) -> None:
    house = await make_house(db)
    owner = Team(house.org.id, Client(app.asgi, token=house.tokens[Role.OWNER]))
    assert (await owner.create()).status == 200

    for role in Role:
        client = Client(app.asgi, token=house.tokens[role])
        for method, path, sent, floor in CALLS:
            reply = await client.request(method, path, **sent)

            expected = 200 if floor is None or role.reaches(floor) else 403
            assert reply.status == expected, (role, method, path, reply.body)


async def test_a_function_of_another_organization_does_not_exist(
    app: App, db: Database, team: Team, gateway: EdgeStandIn
) -> None:
    made = (await team.create()).data
    stranger = await make_team(app.asgi, db)

    for method, path, sent, _ in CALLS:
        if "/hello" in path:
            assert (await stranger.api.request(method, path, **sent)).status == 404, (method, path)

    assert (await stranger.api.get("/v1/functions")).data["total"] == 0
    assert (await team.api.get("/v1/functions/hello")).data == made
    assert (list(gateway.routes), gateway.calls) == ([made["id"]], [])
