"""Members: permissions to change roles, and the protection of the last owner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.accounts.identity.support import House, make_house
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock, to_wire

pytestmark = pytest.mark.anyio


def path_to(house: House, role: Role) -> str:
    return f"/v1/orgs/{house.org.id}/members/{house.people[role].id}"


async def roles_in(api: Client, house: House) -> dict[int, str]:
    listed = (await api.get(f"/v1/orgs/{house.org.id}/members", token=house.sessions[Role.OWNER])).data
    return {member["userId"]: member["role"] for member in listed}


async def test_members_are_listed_with_exactly_these_fields(api: Client, db: Database, clock: ManualClock) -> None:
    owner = await make_user(db, "owner@example.com")
    org = await make_org(db, owner)
    viewer = await make_member(db, org, Role.VIEWER)

    listed = (await api.get(f"/v1/orgs/{org.id}/members", token=session_for(db, viewer))).data

    assert [member["role"] for member in listed] == ["owner", "viewer"]
    assert listed[0] == {
        "userId": owner.id,
        "email": "owner@example.com",
        "name": "Ada Moor",
        "role": "owner",
        "joinedAt": to_wire(clock.now()),
    }


async def test_an_admin_changes_members_below_owner(api: Client, db: Database) -> None:
    house = await make_house(db)

    for role in (Role.MEMBER, Role.ADMIN, Role.VIEWER):
        changed = await api.patch(path_to(house, Role.VIEWER), token=house.tokens[Role.ADMIN], json={"role": role})

        assert changed.data["role"] == role
        assert set(changed.data) == {"userId", "email", "name", "role", "joinedAt"}


async def test_only_an_owner_makes_or_unmakes_owners(api: Client, db: Database) -> None:
    house = await make_house(db)
    admin, owner = house.tokens[Role.ADMIN], house.tokens[Role.OWNER]

    made = await api.patch(path_to(house, Role.MEMBER), token=admin, json={"role": "owner"})
    raised = await api.patch(path_to(house, Role.ADMIN), token=admin, json={"role": "owner"})
    unmade = await api.patch(path_to(house, Role.OWNER), token=admin, json={"role": "viewer"})
    removed = await api.delete(path_to(house, Role.OWNER), token=admin)
    by_owner = await api.patch(path_to(house, Role.MEMBER), token=owner, json={"role": "owner"})

    assert [reply.status for reply in (made, raised, unmade, removed)] == [403] * 4
    assert by_owner.data["role"] == "owner"


async def test_the_last_owner_cannot_leave_be_demoted_or_be_removed(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner = house.sessions[Role.OWNER]

    demoted = await api.patch(path_to(house, Role.OWNER), token=owner, json={"role": "admin"})
    left = await api.delete(path_to(house, Role.OWNER), token=owner)
    same = await api.patch(path_to(house, Role.OWNER), token=owner, json={"role": "owner"})

    assert [(reply.status, reply.error["code"]) for reply in (demoted, left)] == [(409, "conflict")] * 2
    assert same.status == 200
    assert (await roles_in(api, house))[house.people[Role.OWNER].id] == "owner"


async def test_an_owner_may_go_once_there_is_another(api: Client, db: Database) -> None:
    house = await make_house(db)
    await api.patch(path_to(house, Role.ADMIN), token=house.sessions[Role.OWNER], json={"role": "owner"})

    left = await api.delete(path_to(house, Role.OWNER), token=house.sessions[Role.OWNER])

    assert left.status == 200
    last = await api.delete(path_to(house, Role.ADMIN), token=house.sessions[Role.ADMIN])
    assert last.status == 409


async def test_two_owners_who_leave_at_the_same_moment_do_not_leave_it_ownerless(api: Client, db: Database) -> None:
    house = await make_house(db)
    await api.patch(path_to(house, Role.ADMIN), token=house.sessions[Role.OWNER], json={"role": "owner"})

    replies = await asyncio.gather(
        *(api.delete(path_to(house, role), token=house.sessions[role]) for role in (Role.OWNER, Role.ADMIN))
    )

    assert sorted(reply.status for reply in replies) == [200, 409]


async def test_two_owners_who_delete_their_accounts_at_the_same_moment_do_not_either(api: Client, db: Database) -> None:
    house = await make_house(db)
    await api.patch(path_to(house, Role.ADMIN), token=house.sessions[Role.OWNER], json={"role": "owner"})

    replies = await asyncio.gather(
        *(api.delete("/v1/account", token=house.sessions[role]) for role in (Role.OWNER, Role.ADMIN))
    )

    assert sorted(reply.status for reply in replies) == [200, 409]


async def test_everybody_may_leave_and_only_admins_remove_others(api: Client, db: Database) -> None:
    house = await make_house(db)

    by_member = await api.delete(path_to(house, Role.VIEWER), token=house.tokens[Role.MEMBER])
    by_admin = await api.delete(path_to(house, Role.VIEWER), token=house.tokens[Role.ADMIN])
    leaves = await api.delete(path_to(house, Role.MEMBER), token=house.sessions[Role.MEMBER])

    assert (by_member.status, by_member.error["code"]) == (403, "forbidden")
    assert (by_admin.json, leaves.json) == ({"success": True}, {"success": True})
    assert set(await roles_in(api, house)) == {house.people[Role.OWNER].id, house.people[Role.ADMIN].id}
    assert (await api.get(f"/v1/orgs/{house.org.id}", token=house.sessions[Role.MEMBER])).status == 404


async def test_who_is_no_member_is_not_found(api: Client, db: Database) -> None:
    house, stranger = await make_house(db), await make_user(db)
    owner = house.tokens[Role.OWNER]

    for named in (stranger.id, 999_999, 0, "x", "9" * 30):
        path = f"/v1/orgs/{house.org.id}/members/{named}"
        assert (await api.patch(path, token=owner, json={"role": "viewer"})).status == 404, named
        assert (await api.delete(path, token=owner)).status == 404, named


async def test_malformed_roles_are_refused(api: Client, db: Database) -> None:
    house = await make_house(db)
    malformed: list[Any] = [{}, {"role": "root"}, {"role": "OWNER"}, {"role": ""}, {"role": None}, {"role": 3}]

    for body in malformed:
        reply = await api.patch(path_to(house, Role.VIEWER), token=house.tokens[Role.OWNER], json=body)
        assert (reply.status, list(reply.error["fields"])) == (400, ["role"]), body


async def test_changes_are_recorded_with_who_whom_and_what(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner, viewer = house.sessions[Role.OWNER], house.people[Role.VIEWER]

    await api.patch(path_to(house, Role.VIEWER), token=owner, json={"role": "member"})
    await api.delete(path_to(house, Role.VIEWER), token=owner)
    await api.delete(path_to(house, Role.MEMBER), token=house.sessions[Role.MEMBER])

    items = (await api.get("/v1/activity?limit=3", token=owner)).data["items"]
    assert [item["action"] for item in items] == ["member.left", "member.removed", "member.role_changed"]
    assert items[2]["details"] == {"before": "viewer", "after": "member"}
    assert items[2]["target"] == {"kind": "member", "name": viewer.email}
    assert [item["actor"]["userId"] for item in items] == [
        house.people[Role.MEMBER].id,
        house.people[Role.OWNER].id,
        house.people[Role.OWNER].id,
    ]
