"""Actions that an API token may not perform for its user, and how the activity shows its writes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.accounts.identity.support import make_house, path_of
from tests.builders import make_member, make_token
from tests.client import Client

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http.route import Scope
from moorage.core.kit.clock import DAY_MS, ManualClock, to_wire

pytestmark = pytest.mark.anyio

BODIES: dict[tuple[str, str], Any] = {("POST", "/v1/orgs"): {"name": "Mine"}, ("PATCH", "/v1/account"): {}}
# Writes for a user that a token with the owner role may perform.
SHARED = {
    ("POST", "/v1/orgs"),
    ("PATCH", "/v1/account"),
    ("POST", "/v1/notifications/read"),
    ("POST", "/v1/notifications/{notification_id}/read"),
}


@pytest.mark.boundary("role-to-role", "An API token below its maker's role does nothing in the name of its maker.")
async def test_every_write_of_a_person_is_refused_to_a_token_below_the_persons_role(
    app: App, api: Client, db: Database
) -> None:
    house = await make_house(db)
    owner = house.people[Role.OWNER]
    limited = await make_token(db, owner, house.org.id, role=Role.ADMIN)
    personal = [route for route in app.routes if route.scope is Scope.IDENTITY and route.is_write]

    assert len(personal) >= 7
    for route in personal:
        where = (route.method, route.path)
        for token in (limited, house.tokens[Role.OWNER]):
            reply = await api.request(route.method, path_of(route, {}), token=token, json=BODIES.get(where))
            is_refused = token == limited or where not in SHARED
            assert (reply.status == 403) is is_refused, (where, reply.body)


@pytest.mark.boundary("role-to-role", "An API token cannot take its maker out of the organization.")
async def test_leaving_needs_a_session(api: Client, db: Database) -> None:
    house = await make_house(db)
    await make_member(db, house.org, Role.OWNER)
    owner = house.people[Role.OWNER]
    viewing = await make_token(db, owner, house.org.id, role=Role.VIEWER)
    path = f"/v1/orgs/{house.org.id}/members/{owner.id}"

    refused = [await api.delete(path, token=token) for token in (viewing, house.tokens[Role.OWNER])]
    left = await api.delete(path, token=house.sessions[Role.OWNER])

    assert [(reply.status, "session token" in reply.error["message"]) for reply in refused] == [(403, True)] * 2
    assert left.status == 200


async def test_a_token_still_reads_what_is_its_persons(api: Client, db: Database) -> None:
    house = await make_house(db)
    token = await make_token(db, house.people[Role.OWNER], house.org.id, role=Role.VIEWER)

    paths = ("/v1/me", "/v1/whoami", "/v1/account", "/v1/orgs", "/v1/notifications", "/v1/invitations", "/v1/tiers")

    assert [(await api.get(path, token=token)).status for path in paths] == [200] * len(paths)


@pytest.mark.boundary("role-to-role", "The activity feed names the API token that a write was made with.")
async def test_the_feed_names_the_token_that_acted(api: Client, db: Database) -> None:
    house = await make_house(db)
    made = await api.post("/v1/api-tokens", token=house.sessions[Role.OWNER], json={"name": "deploys"})
    path = f"/v1/orgs/{house.org.id}"

    await api.patch(path, token=made.data["token"], json={"name": "Quay"})
    await api.patch(path, token=house.sessions[Role.OWNER], json={"name": "Pier"})

    by_session, by_token = (await api.get("/v1/activity?limit=2", token=made.data["token"])).data["items"]
    assert by_session["actor"]["token"] is None
    assert by_token["actor"]["token"] == {"id": made.data["id"], "name": "deploys"}
    assert by_token["actor"]["userId"] == house.people[Role.OWNER].id
    assert by_token["details"] == {"before": "Harbor"}


async def test_a_push_is_recorded_with_its_token_and_address(app: App, api: Client, db: Database) -> None:
    house = await make_house(db)
    password = base64.b64encode(f"git:{house.tokens[Role.OWNER]}".encode()).decode()
    content = b"00000000"
    headers = {"Authorization": f"Basic {password}", "Content-Type": "application/x-git-receive-pack-request"}

    await api.post("/git/harbor/site.git/git-receive-pack", headers=headers, content=content)

    items = (await api.get("/v1/activity", token=house.tokens[Role.OWNER])).data["items"]
    made = [item["actor"] for item in items if item["action"] == "repository.created"]
    assert [(actor["address"], actor["token"]["name"]) for actor in made] == [("127.0.0.1", "test")] * len(made)


@pytest.mark.boundary("role-to-role", "A token that expires cannot make one that outlives it.")
async def test_a_token_made_with_an_expiring_one_expires_no_later(
    api: Client, db: Database, clock: ManualClock
) -> None:
    house = await make_house(db)
    brief = await make_token(db, house.people[Role.OWNER], house.org.id, expires_in_days=2)
    bodies: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "expiresInDays": 30},
        {"name": "c", "expiresInDays": 1},
    ]

    made = [(await api.post("/v1/api-tokens", token=brief, json=body)).data["expiresAt"] for body in bodies]
    free = (await api.post("/v1/api-tokens", token=house.tokens[Role.OWNER], json={"name": "d"})).data["expiresAt"]

    assert made == [to_wire(clock.now() + days * DAY_MS) for days in (2, 2, 1)]
    assert free is None
