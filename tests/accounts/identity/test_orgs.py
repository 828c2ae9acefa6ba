"""Creation, reading, renaming and deletion of organizations."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.accounts.identity.support import IN_PRODUCTION, make_house, whole_store
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock, to_wire

pytestmark = pytest.mark.anyio


async def test_a_created_organization_has_exactly_these_fields_and_its_maker_owns_it(
    api: Client, db: Database, clock: ManualClock
) -> None:
    session = session_for(db, await make_user(db))

    made = (await api.post("/v1/orgs", token=session, json={"name": "  Red Harbor "})).data

    assert made == {
        "organizationId": made["organizationId"],
        "name": "Red Harbor",
        "slug": "red-harbor",
        "role": "owner",
        "plan": "free",
        "cardVerified": True,
        "createdAt": to_wire(clock.now()),
        "createOnPush": True,
    }
    assert isinstance(made["organizationId"], str)
    assert (await api.get(f"/v1/orgs/{made['organizationId']}", token=session)).data == made
    assert (await api.get("/v1/orgs", token=session)).data == [made]


@pytest.mark.settings(billing="manual")
async def test_where_cards_count_a_new_organization_has_none(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    made = (await api.post("/v1/orgs", token=session, json={"name": "Harbor"})).data

    assert (made["plan"], made["cardVerified"]) == ("free", False)


async def test_slugs_are_unique_and_safe_whatever_the_names(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    slugs = [
        (await api.post("/v1/orgs", token=session, json={"name": name})).data["slug"]
        for name in ("Harbor", "Harbor", "HARBOR!", "海港", "🚢", "-", "a" * 120, "../../etc", "Deleted 1")
    ]

    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", slug) for slug in slugs)


async def test_malformed_names_are_refused(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner = house.sessions[Role.OWNER]
    malformed: list[Any] = [{"name": ""}, {"name": " "}, {"name": "x" * 121}, {"name": 5}, {"name": None}]
    malformed += [{"name": f"Harbor{char}Bcc: eve@example.com"} for char in ("\n", "\r\n", "\t", "\x7f", "\u2028")]

    assert (await api.post("/v1/orgs", token=owner, json={})).error["fields"] == {"name": "is required"}
    for body in malformed:
        made = await api.post("/v1/orgs", token=owner, json=body)
        renamed = await api.patch(f"/v1/orgs/{house.org.id}", token=owner, json=body)

        assert (made.status, list(made.error["fields"])) == (400, ["name"]), body
        assert (renamed.status, list(renamed.error["fields"])) == (400, ["name"]), body


async def test_an_api_token_below_owner_cannot_make_organizations_for_its_user(api: Client, db: Database) -> None:
    house = await make_house(db)
    lent = await make_token(db, house.people[Role.OWNER], house.org.id, role=Role.ADMIN)

    refused = await api.post("/v1/orgs", token=lent, json={"name": "Mine"})
    made = await api.post("/v1/orgs", token=house.tokens[Role.OWNER], json={"name": "Mine"})

    assert (refused.status, made.status) == (403, 200)


async def test_an_api_token_lists_only_its_own_organization(api: Client, db: Database) -> None:
    user = await make_user(db)
    first, _ = await make_org(db, user, name="First"), await make_org(db, user, name="Second")

    listed = await api.get("/v1/orgs", token=await make_token(db, user, first.id))

    assert [each["name"] for each in listed.data] == ["First"]


async def test_a_rename_keeps_the_slug_and_is_recorded(api: Client, db: Database) -> None:
    house = await make_house(db, name="Harbor")
    admin = house.sessions[Role.ADMIN]

    renamed = (await api.patch(f"/v1/orgs/{house.org.id}", token=admin, json={"name": "Haven"})).data

    assert (renamed["name"], renamed["slug"], renamed["role"]) == ("Haven", house.org.slug, "admin")
    newest = (await api.get("/v1/activity?limit=1", token=admin)).data["items"][0]
    assert (newest["action"], newest["details"]) == ("organization.renamed", {"before": "Harbor"})


async def test_a_deleted_organization_is_gone_for_everybody_with_its_tokens(api: Client, db: Database) -> None:
    house = await make_house(db)
    owner = house.sessions[Role.OWNER]
    invited = await make_user(db)
    await api.post(f"/v1/orgs/{house.org.id}/invitations", token=owner, json={"email": invited.email, "role": "viewer"})

    deleted = await api.delete(f"/v1/orgs/{house.org.id}", token=owner)

    assert (deleted.status, deleted.json) == (200, {"success": True})
    for role in Role:
        assert (await api.get(f"/v1/orgs/{house.org.id}", token=house.sessions[role])).status == 404
        assert (await api.get("/v1/me", token=house.tokens[role])).status == 401
        assert (await api.get("/v1/orgs", token=house.sessions[role])).data == []
    assert (await api.get("/v1/invitations", token=session_for(db, invited))).data == []


async def test_deleting_leaves_neither_tokens_nor_secrets_behind(api: Client, db: Database) -> None:
    house = await make_house(db)

    await api.delete(f"/v1/orgs/{house.org.id}", token=house.sessions[Role.OWNER])

    store = await whole_store(db)
    for table in ("api_token", "membership", "vault_secret"):
        assert [row for row in store[table] if row["org_id"] == house.org.id] == [], table


async def test_the_slug_of_a_deleted_organization_is_free_again_after_thirty_days(
    api: Client, db: Database, clock: ManualClock
) -> None:
    session = session_for(db, await make_user(db))
    first = (await api.post("/v1/orgs", token=session, json={"name": "Harbor"})).data
    await api.delete(f"/v1/orgs/{first['organizationId']}", token=session)

    second = (await api.post("/v1/orgs", token=session, json={"name": "Harbor"})).data
    clock.advance(30 * DAY_MS)
    session = session_for(db, await make_user(db))
    third = (await api.post("/v1/orgs", token=session, json={"name": "Harbor"})).data

    assert second["slug"].startswith("harbor-")
    assert third["slug"] == first["slug"] == "harbor"


async def test_nobody_can_keep_an_organization_from_being_deleted_by_a_name(api: Client, db: Database) -> None:
    house, stranger = await make_house(db), session_for(db, await make_user(db))
    await api.post("/v1/orgs", token=stranger, json={"name": f"deleted {house.org.id}"})

    deleted = await api.delete(f"/v1/orgs/{house.org.id}", token=house.sessions[Role.OWNER])

    assert deleted.status == 200


async def test_the_webhook_secret_is_shown_to_admins_only_and_recorded(api: Client, db: Database) -> None:
    house = await make_house(db)
    path = f"/v1/orgs/{house.org.id}/webhook-secret/reveal"

    shown = [await api.post(path, token=house.sessions[Role.ADMIN]) for _ in range(2)]

    assert shown[0].data == shown[1].data
    assert re.fullmatch(r"whs_[0-9a-f]{64}", shown[0].data["secret"])
    newest = (await api.get("/v1/activity?limit=1", token=house.sessions[Role.VIEWER])).data["items"][0]
    assert newest["action"] == "organization.webhook_secret_revealed"
    assert newest["actor"]["userId"] == house.people[Role.ADMIN].id
    assert shown[0].data["secret"] not in repr(await whole_store(db))


async def test_secrets_of_two_organizations_differ(api: Client, db: Database) -> None:
    one, other = await make_house(db), await make_house(db)

    shown = [
        (await api.post(f"/v1/orgs/{house.org.id}/webhook-secret/reveal", token=house.sessions[Role.OWNER])).data
        for house in (one, other)
    ]

    assert shown[0] != shown[1]


async def test_a_new_organization_welcomes_its_owner_once(api: Client, db: Database, run_jobs: Any) -> None:
    user = await make_user(db)
    session = session_for(db, user)
    made = (await api.post("/v1/orgs", token=session, json={"name": "Harbor"})).data
    await run_jobs()
    await run_jobs()

    told = (await api.get("/v1/notifications", token=session)).data

    assert [(each["kind"], each["organizationId"]) for each in told] == [
        ("organization.welcome", made["organizationId"])
    ]


async def test_somebody_may_belong_to_organizations_in_different_roles(api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user, name="Own")
    await make_member(db, await make_org(db, name="Theirs"), Role.VIEWER, user)

    listed = (await api.get("/v1/orgs", token=session_for(db, user))).data

    assert {each["name"]: each["role"] for each in listed} == {"Own": "owner", "Theirs": "viewer"}


async def test_a_token_sees_its_organization_in_its_own_role(api: Client, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner)
    await make_org(db, owner, name="Other")
    token = await make_token(db, owner, org.id, role=Role.VIEWER)

    listed = (await api.get("/v1/orgs", token=token)).data
    read = (await api.get(f"/v1/orgs/{org.id}", token=token)).data
    me = (await api.get("/v1/me", token=token)).data

    assert [(each["organizationId"], each["role"]) for each in listed] == [(str(org.id), "viewer")]
    assert read["role"] == "viewer"
    assert [each["role"] for each in me["organizations"]] == ["viewer"]


async def test_an_update_changes_only_the_fields_that_are_sent(api: Client, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, name="Harbor")
    path, session = f"/v1/orgs/{org.id}", session_for(db, owner)

    off = (await api.patch(path, token=session, json={"createOnPush": False})).data
    renamed = (await api.patch(path, token=session, json={"name": "Quay"})).data
    empty = (await api.patch(path, token=session, json={})).data
    wrong = await api.patch(path, token=session, json={"createOnPush": "no"})

    assert (off["name"], off["createOnPush"]) == ("Harbor", False)
    assert (renamed["name"], renamed["createOnPush"]) == ("Quay", False)
    assert empty == renamed
    assert (wrong.status, set(wrong.error["fields"])) == (400, {"createOnPush"})


@pytest.mark.parametrize(
    "constant",
    [
        pytest.param("MAX_OWNED_IN_DEVELOPMENT", id="development"),
        pytest.param("MAX_OWNED_BY_USER", marks=IN_PRODUCTION, id="production"),
    ],
)
async def test_a_user_owns_a_bounded_number_of_organizations(
    api: Client, db: Database, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    monkeypatch.setattr(orgs, constant, 2)
    user, other = await make_user(db), await make_user(db)
    await make_member(db, await make_org(db, other), Role.MEMBER, user)
    session = session_for(db, user)

    made = [await api.post("/v1/orgs", token=session, json={"name": "Harbor"}) for _ in range(3)]
    await api.delete(f"/v1/orgs/{made[0].data['organizationId']}", token=session)
    again = await api.post("/v1/orgs", token=session, json={"name": "Harbor"})

    assert [each.status for each in (*made, again)] == [200, 200, 409, 200]
    assert made[2].error["message"] == "A user owns at most 2 organizations"


@pytest.mark.parametrize(
    ("mode", "status"),
    [pytest.param("development", 200), pytest.param("production", 409, marks=IN_PRODUCTION)],
)
async def test_a_user_of_development_may_own_an_organization_for_each_test_of_a_suite(
    api: Client, db: Database, mode: str, status: int
) -> None:
    user = await make_user(db)
    for _ in range(50):
        await make_org(db, user)

    reply = await api.post("/v1/orgs", token=session_for(db, user), json={"name": "Harbor"})

    assert (db.env.settings.mode, reply.status) == (mode, status)
