"""Minimum roles of all routes in the route table; new routes are covered automatically."""

from __future__ import annotations

import pytest
from tests.accounts.identity.support import HangsUp, in_organization, make_house, path_of
from tests.builders import make_member, make_org, make_token, session_for
from tests.client import Client

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary("role-to-role", "Every route refuses roles below the one that it needs."),
]

# Minimum roles of the identity routes by the specification.
FLOORS = {
    ("GET", "/v1/api-tokens"): Role.ADMIN,
    ("POST", "/v1/api-tokens"): Role.ADMIN,
    ("DELETE", "/v1/api-tokens/{token_id}"): Role.ADMIN,
    ("GET", "/v1/orgs/{org_id}"): None,
    ("PATCH", "/v1/orgs/{org_id}"): Role.ADMIN,
    ("DELETE", "/v1/orgs/{org_id}"): Role.OWNER,
    ("GET", "/v1/orgs/{org_id}/members"): None,
    ("PATCH", "/v1/orgs/{org_id}/members/{user_id}"): Role.ADMIN,
    ("DELETE", "/v1/orgs/{org_id}/members/{user_id}"): None,
    ("GET", "/v1/orgs/{org_id}/invitations"): Role.ADMIN,
    ("POST", "/v1/orgs/{org_id}/invitations"): Role.ADMIN,
    ("DELETE", "/v1/orgs/{org_id}/invitations/{invitation_id}"): Role.ADMIN,
    ("POST", "/v1/orgs/{org_id}/webhook-secret/reveal"): Role.ADMIN,
    ("GET", "/v1/billing"): None,
    ("GET", "/v1/limits"): None,
    ("GET", "/v1/usage"): None,
    ("GET", "/v1/activity"): None,
    ("GET", "/v1/activity/stream"): None,
}


async def test_the_routes_of_identity_carry_the_floors_that_are_promised(app: App) -> None:
    declared = {(route.method, route.path): route.min_role for route in app.routes}

    assert {route: declared.get(route, "no such route") for route in FLOORS} == FLOORS


async def test_every_role_below_a_floor_is_refused_with_either_credential(app: App, db: Database) -> None:
    house, client = await make_house(db), Client(HangsUp(app.asgi))

    for route in in_organization(app.routes):
        for role in Role:
            if route.min_role is None or role.reaches(Role(route.min_role)):
                continue
            path = path_of(route, {"org_id": house.org.id})
            for token in (house.tokens[role], house.sessions[role]):
                reply = await client.request(route.method, path, token=token)

                assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden"), (route.path, role)


async def test_every_route_lets_the_role_at_its_floor_pass(app: App, db: Database) -> None:
    client = Client(HangsUp(app.asgi))

    for route in in_organization(app.routes):
        org = await make_org(db)
        user = await make_member(db, org, Role(route.min_role or Role.VIEWER))

        reply = await client.request(
            route.method, path_of(route, {"org_id": org.id}), token=await make_token(db, user, org.id)
        )

        assert reply.status not in (401, 402, 403), (route.path, reply.body)
        assert reply.status < 500, (route.path, reply.body)


async def test_a_token_made_below_its_creators_role_is_held_to_its_own(api: Client, db: Database) -> None:
    house = await make_house(db)
    token = await make_token(db, house.people[Role.OWNER], house.org.id, role=Role.MEMBER)

    assert (await api.get("/v1/whoami", token=token)).data["role"] == "member"
    assert (await api.get("/v1/api-tokens", token=token)).status == 403


async def test_a_token_never_reaches_above_what_its_creator_is_now(api: Client, db: Database) -> None:
    house = await make_house(db)
    token, user = house.tokens[Role.ADMIN], house.people[Role.ADMIN]
    member = f"/v1/orgs/{house.org.id}/members/{user.id}"

    await api.patch(member, token=house.tokens[Role.OWNER], json={"role": "viewer"})
    demoted = await api.get("/v1/whoami", token=token), await api.get("/v1/api-tokens", token=token)
    await api.patch(member, token=house.tokens[Role.OWNER], json={"role": "owner"})
    promoted = await api.get("/v1/whoami", token=token)

    assert (demoted[0].data["role"], demoted[1].status) == ("viewer", 403)
    assert promoted.data["role"] == "admin"


async def test_a_token_ends_with_the_membership_of_its_creator(api: Client, db: Database) -> None:
    house = await make_house(db)
    token, user = house.tokens[Role.MEMBER], house.people[Role.MEMBER]
    assert (await api.get("/v1/usage", token=token)).status == 200

    await api.delete(f"/v1/orgs/{house.org.id}/members/{user.id}", token=house.tokens[Role.OWNER])

    assert (await api.get("/v1/usage", token=token)).status == 401


async def test_a_removed_member_is_a_stranger_on_the_very_next_request(api: Client, db: Database) -> None:
    house = await make_house(db)
    session, user = house.sessions[Role.MEMBER], house.people[Role.MEMBER]
    await make_org(db, user)
    assert (await api.get("/v1/usage", token=session, org=house.org.id)).status == 200

    await api.delete(f"/v1/orgs/{house.org.id}/members/{user.id}", token=house.tokens[Role.OWNER])

    assert (await api.get("/v1/usage", token=session, org=house.org.id)).status == 404


async def test_a_role_that_changes_counts_on_the_very_next_request(api: Client, db: Database) -> None:
    house = await make_house(db)
    session, user = house.sessions[Role.VIEWER], house.people[Role.VIEWER]
    assert (await api.get("/v1/api-tokens", token=session)).status == 403

    await api.patch(
        f"/v1/orgs/{house.org.id}/members/{user.id}", token=house.tokens[Role.OWNER], json={"role": "admin"}
    )

    assert (await api.get("/v1/api-tokens", token=session_for(db, user))).status == 200
    assert (await api.get("/v1/api-tokens", token=session)).status == 200
