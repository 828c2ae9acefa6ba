"""The caller's own account: read, changed, deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.accounts.identity.support import make_house, whole_store
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock, to_wire

pytestmark = pytest.mark.anyio


async def test_the_account_has_exactly_these_fields(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db, "ada@example.com")

    assert (await api.get("/v1/account", token=session_for(db, user))).data == {
        "id": user.id,
        "email": "ada@example.com",
        "username": "ada",
        "firstName": "Ada",
        "lastName": "Moor",
        "avatarUrl": None,
        "mfaEnabled": False,
        "approvalStatus": "approved",
        "profileCompleted": True,
        "createdAt": to_wire(clock.now()),
    }


async def test_only_what_is_sent_is_changed(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db, "ada@example.com"))

    first = (await api.patch("/v1/account", token=session, json={"avatarUrl": "https://pics.example/a.png"})).data
    second = (await api.patch("/v1/account", token=session, json={"username": "lady", "lastName": ""})).data
    third = (await api.patch("/v1/account", token=session, json={"avatarUrl": None})).data
    refused = await api.patch("/v1/account", token=session, json={"email": "root@example.com", "lastName": "L"})

    assert (first["avatarUrl"], first["firstName"]) == ("https://pics.example/a.png", "Ada")
    assert (second["username"], second["lastName"], second["profileCompleted"]) == ("lady", "", False)
    assert second["avatarUrl"] == "https://pics.example/a.png"
    assert third["avatarUrl"] is None
    assert refused.error["fields"] == {"email": "cannot be changed"}
    assert (await api.get("/v1/account", token=session)).data == third


async def test_malformed_changes_name_their_fields(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))
    malformed: list[tuple[Any, set[str]]] = [
        ({"username": ""}, {"username"}),
        ({"username": "x" * 65}, {"username"}),
        ({"username": None}, {"username"}),
        ({"firstName": 5}, {"firstName"}),
        ({"firstName": None}, {"firstName"}),
        ({"lastName": "x" * 121}, {"lastName"}),
        ({"avatarUrl": "javascript:alert(1)"}, {"avatarUrl"}),
        ({"avatarUrl": 5, "firstName": 5}, {"avatarUrl", "firstName"}),
    ]
    for body, fields in malformed:
        reply = await api.patch("/v1/account", token=session, json=body)

        assert (reply.status, set(reply.error["fields"])) == (400, fields), body


async def test_an_api_token_below_owner_reads_the_account_but_does_not_touch_it(api: Client, db: Database) -> None:
    house = await make_house(db)
    lent = await make_token(db, house.people[Role.OWNER], house.org.id, role=Role.ADMIN)

    assert (await api.get("/v1/account", token=lent)).status == 200
    assert (await api.patch("/v1/account", token=lent, json={"firstName": "Eve"})).status == 403
    assert (await api.delete("/v1/account", token=lent)).status == 403


async def test_deleting_an_account_takes_its_own_organizations_and_tokens_along(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    token = await make_token(db, user, org.id)

    deleted = await api.delete("/v1/account", token=session_for(db, user))

    assert (deleted.status, deleted.json) == (200, {"success": True})
    assert (await api.get("/v1/me", token=token)).status == 401
    store = await whole_store(db)
    assert all(store[table] == [] for table in ("account", "membership", "api_token"))
    assert [row["deleted_at"] is not None for row in store["organization"]] == [True]


async def test_an_account_that_owns_alone_what_others_use_cannot_be_deleted(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner = house.people[Role.OWNER]
    await make_org(db, owner, name="Alone")

    reply = await api.delete("/v1/account", token=house.sessions[Role.OWNER])

    assert (reply.status, reply.error["code"]) == (409, "conflict")
    assert len((await api.get("/v1/orgs", token=house.sessions[Role.OWNER])).data) == 2


async def test_an_account_with_another_owner_leaves_and_the_organization_stays(api: Client, db: Database) -> None:
    house = await make_house(db)
    heir = await make_member(db, house.org, Role.OWNER)

    assert (await api.delete("/v1/account", token=house.sessions[Role.OWNER])).status == 200

    session = session_for(db, heir)
    listed = (await api.get(f"/v1/orgs/{house.org.id}/members", token=session)).data
    assert house.people[Role.OWNER].id not in [member["userId"] for member in listed]
    newest = (await api.get("/v1/activity?limit=1", token=session)).data["items"][0]
    assert (newest["action"], newest["target"]["name"]) == ("member.left", house.people[Role.OWNER].email)


async def test_the_address_of_a_deleted_account_is_free_again(api: Client, db: Database) -> None:
    old = await make_user(db, "ada@example.com")
    await api.delete("/v1/account", token=session_for(db, old))

    new = await make_user(db, "ada@example.com")

    assert new.id != old.id
    assert (await api.get("/v1/me", token=session_for(db, old))).status == 401
