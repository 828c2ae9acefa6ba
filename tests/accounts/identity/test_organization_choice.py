"""Which organization a request acts on, for both kinds of credential."""

from __future__ import annotations

import pytest
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock

pytestmark = pytest.mark.anyio


async def test_a_session_of_somebody_with_one_organization_acts_on_it(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)

    assert (await api.get("/v1/billing", token=session_for(db, user))).data["organizationId"] == str(org.id)


async def test_a_session_of_somebody_without_an_organization_has_to_name_one(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    reply = await api.get("/v1/billing", token=session)

    assert (reply.status, reply.error["code"]) == (400, "bad_request")
    assert list(reply.error["fields"]) == ["x-organization-id"]


async def test_a_session_of_somebody_with_several_organizations_has_to_name_one(api: Client, db: Database) -> None:
    user = await make_user(db)
    first, second = await make_org(db, user), await make_org(db, user)
    session = session_for(db, user)

    unnamed = await api.get("/v1/billing", token=session)
    by_header = await api.get("/v1/billing", token=session, org=second.id)
    by_query = await api.get(f"/v1/billing?organization_id={first.id}", token=session)
    by_both = await api.get(f"/v1/billing?organization_id={first.id}", token=session, org=second.id)

    assert (unnamed.status, list(unnamed.error["fields"])) == (400, ["x-organization-id"])
    assert by_header.data["organizationId"] == str(second.id)
    assert by_query.data["organizationId"] == str(first.id)
    assert by_both.data["organizationId"] == str(second.id)


async def test_an_empty_organization_is_not_named(api: Client, db: Database) -> None:
    user = await make_user(db)
    first, second = await make_org(db), await make_org(db, user)
    session, token = session_for(db, user), await make_token(db, user, second.id)

    for credential in (session, token):
        by_header = await api.get("/v1/billing", token=credential, org="")
        by_query = await api.get("/v1/billing?organization_id=", token=credential, org="")
        assert [reply.data["organizationId"] for reply in (by_header, by_query)] == [str(second.id)] * 2

    await make_member(db, first, Role.VIEWER, user)
    unclear = await api.get("/v1/billing", token=session, org="")
    by_query = await api.get(f"/v1/billing?organization_id={first.id}", token=session, org="")
    assert (unclear.status, list(unclear.error["fields"])) == (400, ["x-organization-id"])
    assert by_query.data["organizationId"] == str(first.id)


async def test_the_header_wins_even_where_only_the_query_is_the_callers(api: Client, db: Database) -> None:
    user = await make_user(db)
    mine, strange = await make_org(db, user), await make_org(db)

    reply = await api.get(f"/v1/billing?organization_id={mine.id}", token=session_for(db, user), org=strange.id)

    assert reply.status == 404


async def test_an_organization_that_is_not_the_callers_or_no_number_is_not_found(api: Client, db: Database) -> None:
    user = await make_user(db)
    org, strange = await make_org(db, user), await make_org(db)
    session = session_for(db, user)

    for named in (strange.id, 999_999, "x", "-1", "0", f"0{org.id}", f"{org.id}.0", f" {org.id}x", "9" * 30, "²"):
        by_header = await api.get("/v1/billing", token=session, org=named)
        by_query = await api.get(f"/v1/billing?organization_id={named}", token=session)

        assert (by_header.status, by_header.error["code"]) == (404, "not_found"), named
        assert by_query.status == 404, named


async def test_a_deleted_organization_is_not_found_and_no_longer_counts(api: Client, db: Database) -> None:
    user = await make_user(db)
    gone, left = await make_org(db, user), await make_org(db, user)
    session = session_for(db, user)

    await api.delete(f"/v1/orgs/{gone.id}", token=session)

    assert (await api.get("/v1/billing", token=session, org=gone.id)).status == 404
    assert (await api.get("/v1/billing", token=session)).data["organizationId"] == str(left.id)


async def test_an_api_token_acts_on_its_own_organization_and_no_other(api: Client, db: Database) -> None:
    user = await make_user(db)
    org, other = await make_org(db, user), await make_org(db, user)
    token = await make_token(db, user, org.id)

    unnamed = await api.get("/v1/billing", token=token)
    named = await api.get("/v1/billing", token=token, org=org.id)

    assert unnamed.data["organizationId"] == named.data["organizationId"] == str(org.id)
    for path in ("/v1/billing", "/v1/whoami", f"/v1/orgs/{org.id}"):
        assert (await api.get(path, token=token, org=other.id)).status == 404, path
        assert (await api.get(f"{path}?organization_id={other.id}", token=token)).status == 404, path
        assert (await api.get(path, token=token, org="x")).status == 404, path
    assert (await api.get(f"/v1/orgs/{other.id}", token=token)).status == 404


async def test_on_routes_that_name_the_organization_the_path_decides(api: Client, db: Database) -> None:
    user = await make_user(db)
    first, second = await make_org(db, user), await make_org(db, user)
    session = session_for(db, user)

    reply = await api.get(f"/v1/orgs/{first.id}", token=session, org=second.id)

    assert reply.data["organizationId"] == str(first.id)
    for named in ("x", "0", "-1", "9" * 30, f"0{first.id}", "%31x"):
        assert (await api.get(f"/v1/orgs/{named}", token=session)).status == 404, named


async def test_whoami_tells_the_same_of_either_credential(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user, name="Harbor")

    by_token = await api.get("/v1/whoami", token=await make_token(db, user, org.id))
    by_session = await api.get("/v1/whoami", token=session_for(db, user))

    expected = {"userId": user.id, "orgId": str(org.id), "orgName": "Harbor", "role": "owner"}
    assert by_token.data == by_session.data == expected


async def test_whoami_of_a_session_is_the_oldest_organization_unless_one_is_named(
    api: Client, db: Database, clock: ManualClock
) -> None:
    user = await make_user(db)
    oldest = await make_org(db, name="Oldest")
    clock.advance(DAY_MS)
    own = await make_org(db, user, name="Own")
    await make_member(db, oldest, Role.VIEWER, user)
    session = session_for(db, user)

    unnamed = await api.get("/v1/whoami", token=session)
    named = await api.get("/v1/whoami", token=session, org=own.id)
    strange = await api.get("/v1/whoami", token=session, org=(await make_org(db)).id)

    assert (unnamed.data["orgName"], unnamed.data["role"]) == ("Oldest", "viewer")
    assert (named.data["orgName"], named.data["role"]) == ("Own", "owner")
    assert strange.status == 404


async def test_whoami_of_somebody_without_an_organization_has_empty_strings(api: Client, db: Database) -> None:
    user = await make_user(db)
    session = session_for(db, user)

    assert (await api.get("/v1/whoami", token=session)).data == {
        "userId": user.id,
        "orgId": "",
        "orgName": "",
        "role": "",
    }
    assert (await api.get("/v1/whoami", token=session, org=5)).status == 404


async def test_me_lists_the_organizations_of_a_session_and_only_its_own_of_a_token(api: Client, db: Database) -> None:
    user = await make_user(db, "ada@example.com")
    first, second = await make_org(db, user, name="First"), await make_org(db, name="Second")
    await make_member(db, second, Role.VIEWER, user)

    by_session = (await api.get("/v1/me", token=session_for(db, user))).data
    by_token = (await api.get("/v1/me", token=await make_token(db, user, second.id))).data

    of_first = {"organizationId": str(first.id), "name": "First", "role": "owner", "cardVerified": True}
    of_second = {"organizationId": str(second.id), "name": "Second", "role": "viewer", "cardVerified": True}
    assert by_session == {
        "id": user.id,
        "email": "ada@example.com",
        "username": "ada",
        "firstName": "Ada",
        "lastName": "Moor",
        "avatarUrl": None,
        "mfaEnabled": False,
        "isOperator": False,
        "organizations": [of_first, of_second],
    }
    assert by_token == {**by_session, "organizations": [of_second]}


async def test_identity_routes_need_no_organization(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    for path in ("me", "whoami", "orgs", "account", "invitations", "notifications", "tiers"):
        assert (await api.get(f"/v1/{path}", token=session)).status == 200, path


async def test_a_repeated_first_organization_is_made_once(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    replies = [
        await api.post("/v1/orgs", token=session, json={"name": "Harbor"}, headers={"Idempotency-Key": "once"})
        for _ in range(2)
    ]

    assert replies[0].data == replies[1].data
    assert len((await api.get("/v1/orgs", token=session)).data) == 1
