"""Logins through an OpenID provider, and the effects of a first login."""

from __future__ import annotations

import asyncio

import pytest
from tests.accounts.identity.openid.provider import Provider, log_in, sign_up
from tests.accounts.identity.support import whole_store
from tests.client import Client

from moorage.accounts.identity.operators import commands as operator
from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.group("openid")]


async def test_a_first_login_needs_the_terms_accepted(api: Client, db: Database, provider: Provider) -> None:
    token = await provider.log_in("ada")

    for body in ({}, {"terms_accepted": False}):
        reply = await log_in(api, token, **body)

        assert (reply.status, reply.error["code"]) == (400, "bad_request")
        assert list(reply.error["fields"]) == ["terms_accepted"]
    assert (await whole_store(db))["account"] == []


async def test_a_first_login_makes_the_user_and_an_organization_they_own(api: Client, provider: Provider) -> None:
    await provider.tell(
        "account", sub="ada", given_name="Ada", family_name="Moor", picture="https://pics.example/a.png"
    )

    result = (await log_in(api, await provider.log_in("ada"), terms_accepted=True)).data

    assert result == {
        "access_token": result["access_token"],
        "user": {"approval_status": "approved", "profile_completed": True, "mfaEnabled": False},
    }
    me = (await api.get("/v1/me", token=result["access_token"])).data
    assert me == {
        "id": me["id"],
        "email": "ada@example.com",
        "username": "ada",
        "firstName": "Ada",
        "lastName": "Moor",
        "avatarUrl": "https://pics.example/a.png",
        "mfaEnabled": False,
        "isOperator": False,
        "organizations": [
            {
                "organizationId": me["organizations"][0]["organizationId"],
                "name": "Ada Moor's organization",
                "role": "owner",
                "cardVerified": True,
            }
        ],
    }


async def test_names_the_provider_does_not_tell_are_empty_strings(api: Client, provider: Provider) -> None:
    result = (await log_in(api, await provider.log_in("quiet"), terms_accepted=True)).data

    me = (await api.get("/v1/me", token=result["access_token"])).data
    assert (me["firstName"], me["lastName"], me["avatarUrl"]) == ("", "", None)
    assert result["user"]["profile_completed"] is False


async def test_a_second_login_is_the_same_user_and_needs_no_terms(
    api: Client, db: Database, provider: Provider
) -> None:
    first = await sign_up(api, await provider.log_in("ada"))

    second = (await log_in(api, await provider.log_in("ada"))).data["access_token"]

    assert (await api.get("/v1/me", token=first)).data == (await api.get("/v1/me", token=second)).data
    assert len((await whole_store(db))["organization"]) == 1


async def test_whoever_changes_their_address_at_the_provider_stays_the_same_user(
    api: Client, provider: Provider
) -> None:
    first = await sign_up(api, await provider.log_in("ada"))
    await provider.tell("account", sub="ada", email="ada@elsewhere.example")

    second = (await log_in(api, await provider.log_in("ada"))).data["access_token"]

    assert (await api.get("/v1/me", token=second)).data["id"] == (await api.get("/v1/me", token=first)).data["id"]


async def test_first_logins_at_the_same_moment_make_one_user(api: Client, db: Database, provider: Provider) -> None:
    token = await provider.log_in("ada")

    replies = await asyncio.gather(*(log_in(api, token, terms_accepted=True) for _ in range(8)))

    assert [reply.status for reply in replies] == [200] * 8
    store = await whole_store(db)
    assert (len(store["account"]), len(store["organization"]), len(store["account_login"])) == (1, 1, 1)


async def test_somebody_the_operator_made_an_account_for_accepts_the_terms_at_their_first_login(
    api: Client, db: Database, provider: Provider
) -> None:
    user, _ = await db.write(lambda tx: operator.create_user(tx, "Ada@Example.com"))
    token = await provider.log_in("ada")

    refused = await log_in(api, token)
    accepted = await log_in(api, token, terms_accepted=True)
    again = await log_in(api, token)

    assert list(refused.error["fields"]) == ["terms_accepted"]
    assert (await api.get("/v1/me", token=accepted.data["access_token"])).data["id"] == user.id
    assert again.status == 200


async def test_a_suspended_user_cannot_log_in(api: Client, db: Database, provider: Provider) -> None:
    await sign_up(api, await provider.log_in("ada"))
    await db.write(lambda tx: operator.suspend(tx, operator.get_user(tx, "ada@example.com"), suspended=True))

    reply = await log_in(api, await provider.log_in("ada"))

    assert (reply.status, reply.error["code"]) == (403, "forbidden")


@pytest.mark.settings(signup="approval")
async def test_where_sign_ups_wait_a_new_user_is_pending_until_the_operator_approves(
    api: Client, db: Database, provider: Provider
) -> None:
    result = (await log_in(api, await provider.log_in("ada"), terms_accepted=True)).data
    session = result["access_token"]
    assert result["user"]["approval_status"] == "pending"
    assert (await api.get("/v1/billing", token=session)).status == 403
    assert (await api.get("/v1/me", token=session)).status == 200

    await db.write(lambda tx: operator.approve(tx, operator.get_user(tx, "ada@example.com")))

    assert (await api.get("/v1/billing", token=session)).status == 200
    assert (await log_in(api, await provider.log_in("ada"))).data["user"]["approval_status"] == "approved"


@pytest.mark.settings(signup="closed")
async def test_where_sign_ups_are_closed_only_known_users_log_in(api: Client, db: Database, provider: Provider) -> None:
    await db.write(lambda tx: operator.create_user(tx, "ada@example.com"))

    stranger = await log_in(api, await provider.log_in("bob"), terms_accepted=True)
    known = await log_in(api, await provider.log_in("ada"), terms_accepted=True)

    assert (stranger.status, stranger.error["code"]) == (403, "forbidden")
    assert known.status == 200
