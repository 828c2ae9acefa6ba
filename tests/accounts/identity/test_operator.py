"""The operator's commands, directly and through the real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.accounts.identity.support import IN_PRODUCTION, behind_the_back
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client
from tests.command import moorage
from tests.core.http.lab import one_store

from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit.tables import activity
from moorage.core.db.store import Database
from moorage.platform.admin import AdminServer, socket_path

pytestmark = pytest.mark.anyio


@pytest.fixture
def admin(app: App, db: Database) -> AdminServer:
    return AdminServer(db, app.products.identity.sessions)


async def ask(admin: AdminServer, command: str, **arguments: Any) -> Any:
    answer = await admin.answer({"command": command, "arguments": arguments})
    assert answer["ok"], answer
    return answer["result"]


async def refusal(admin: AdminServer, command: str, **arguments: Any) -> str:
    answer = await admin.answer({"command": command, "arguments": arguments})
    assert not answer["ok"], answer
    return str(answer["error"])


async def test_a_created_user_is_approved_and_owns_an_organization(
    admin: AdminServer, api: Client, db: Database
) -> None:
    made = await ask(admin, "create-user", email="Ada@Example.com")

    session = await ask(admin, "session", email="ada@example.com")
    me = (await api.get("/v1/me", token=session)).data
    assert made == {"userId": me["id"], "email": "ada@example.com", "organizationId": made["organizationId"]}
    assert [(org["organizationId"], org["role"]) for org in me["organizations"]] == [(made["organizationId"], "owner")]
    assert (await api.get("/v1/usage", token=session)).status == 200


async def test_an_address_that_is_taken_or_none_makes_no_user(admin: AdminServer) -> None:
    await ask(admin, "create-user", email="ada@example.com")

    assert "taken" in await refusal(admin, "create-user", email="ADA@example.com")
    assert "not a mail address" in await refusal(admin, "create-user", email="ada")


async def test_approving_lets_a_waiting_user_in_and_may_be_repeated(
    admin: AdminServer, api: Client, db: Database
) -> None:
    for status in (Approval.PENDING, Approval.REJECTED):
        user = await make_user(db, status=status)
        await make_org(db, user)
        session = session_for(db, user)
        assert (await api.get("/v1/usage", token=session)).status == 403

        for _ in range(2):
            assert await ask(admin, "approve", email=user.email) == user.email

        assert (await api.get("/v1/usage", token=session)).status == 200


async def test_suspending_counts_at_once_and_so_does_its_end(admin: AdminServer, api: Client, db: Database) -> None:
    user = await make_user(db)
    session = session_for(db, user)

    for command, status in (("suspend", 403), ("suspend", 403), ("unsuspend", 200), ("unsuspend", 200)):
        assert await ask(admin, command, email=user.email.upper()) == user.email
        assert (await api.get("/v1/me", token=session)).status == status


@pytest.mark.settings(billing="manual")
async def test_cards_and_plans_are_set_by_id_or_slug_and_recorded(
    admin: AdminServer, api: Client, db: Database
) -> None:
    user = await make_user(db)
    org = await make_org(db, user, name="Harbor", plan=Plan.FREE, card_verified=False)
    session = session_for(db, user)

    assert await ask(admin, "verify-card", org=str(org.id)) == "Harbor"
    assert await ask(admin, "set-plan", org=org.slug, plan="pro") == "Harbor"
    verified = (await api.get("/v1/billing", token=session)).data
    await ask(admin, "set-plan", org=org.slug, plan="free")
    items = (await api.get("/v1/activity?limit=3", token=session)).data["items"]
    await ask(admin, "unverify-card", org=org.slug)

    assert (verified["cardVerified"], verified["plan"]) == (True, "pro")
    assert [item["action"] for item in items] == [
        "billing.plan_changed",
        "billing.plan_changed",
        "billing.card_verified",
    ]
    assert items[0]["actor"] == {"userId": None, "name": "Moorage", "address": None, "token": None}
    assert (await api.get("/v1/activity", token=session)).status == 402


async def test_an_organization_whose_slug_is_a_number_is_found(admin: AdminServer, db: Database) -> None:
    await make_org(db, name="20260115")

    assert await ask(admin, "set-plan", org="20260115", plan="pro") == "20260115"


async def test_what_does_not_exist_is_said_so(admin: AdminServer, db: Database) -> None:
    org = await make_org(db)

    for command in ("approve", "suspend", "unsuspend", "session", "token"):
        assert "no user nobody@example.com" in await refusal(admin, command, email="nobody@example.com")
    for command in ("verify-card", "unverify-card"):
        assert "no organization nowhere" in await refusal(admin, command, org="nowhere")
        assert "no organization 999999" in await refusal(admin, command, org="999999")
    assert "no plan 'gold'" in await refusal(admin, "set-plan", org=str(org.id), plan="gold")
    assert "no command 'dance'" in await refusal(admin, "dance")


async def test_a_command_without_its_argument_says_which(admin: AdminServer) -> None:
    assert "email" in await refusal(admin, "suspend")
    assert "plan" in await refusal(admin, "set-plan", org="x")


async def test_a_token_is_made_for_whom_and_where_the_operator_says(
    admin: AdminServer, api: Client, db: Database
) -> None:
    user = await make_user(db, "ada@example.com")
    await make_org(db, user, name="First")
    second = await make_org(db, name="Second")
    await make_member(db, second, Role.MEMBER, user)

    default = await ask(admin, "token", email="ada@example.com")
    named = await ask(admin, "token", email="ada@example.com", org=second.slug, role="viewer", name="ci")

    first_who, second_who = [(await api.get("/v1/whoami", token=token)).data for token in (default, named)]
    assert (first_who["orgName"], first_who["role"]) == ("First", "owner")
    assert (second_who["orgName"], second_who["role"]) == ("Second", "viewer")
    strange = await make_org(db)
    assert "does not belong" in await refusal(admin, "token", email="ada@example.com", org=str(strange.id))
    assert "above your own" in await refusal(admin, "token", email="ada@example.com", org=second.slug, role="owner")
    assert "no role 'root'" in await refusal(admin, "token", email="ada@example.com", role="root")


async def test_without_a_name_the_token_is_the_demo_users(admin: AdminServer, api: Client) -> None:
    token = await ask(admin, "token")

    assert token.startswith("psk_test_")
    demo = (await api.post("/v1/auth/demo")).data
    assert (await api.get("/v1/whoami", token=token)).data["orgId"] == demo["organizationId"]


@IN_PRODUCTION
async def test_in_production_the_token_is_the_first_users(admin: AdminServer, api: Client) -> None:
    assert "no user yet" in await refusal(admin, "token")
    made = await ask(admin, "create-user", email="ada@example.com")
    await ask(admin, "create-user", email="bob@example.com")

    token = await ask(admin, "token")

    assert token.startswith("psk_live_")
    assert (await api.get("/v1/whoami", token=token)).data["userId"] == made["userId"]


async def test_the_walk_over_all_chains_names_the_broken_one(admin: AdminServer, db: Database) -> None:
    sound, broken = await make_org(db), await make_org(db)
    assert await ask(admin, "verify-audit") == {"rows": 2, "broken": []}

    await behind_the_back(db, update(activity).where(activity.c.org_id == broken.id).values(actor="Eve"))

    assert await ask(admin, "verify-audit") == {
        "rows": 1,
        "broken": [{"organization": broken.id, "row": 1, "why": "the row was changed"}],
    }
    assert sound.id != broken.id


async def test_rotating_with_one_key_changes_nothing(admin: AdminServer, db: Database) -> None:
    await make_org(db)

    assert await ask(admin, "rotate-keys") == 0


@asynccontextmanager
async def served(admin: AdminServer) -> AsyncIterator[Path]:
    """The socket of a platform that serves it."""
    path = socket_path(admin.db.env.settings)
    path.parent.mkdir(parents=True)
    task = asyncio.create_task(admin.run())
    try:
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.01)
        yield path
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def exchange(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    await writer.drain()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_the_socket_is_its_owners_alone_and_goes_with_the_platform(admin: AdminServer) -> None:
    async with served(admin) as path:
        mode = path.stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert not path.exists()


async def test_commands_come_over_the_socket(admin: AdminServer, api: Client, db: Database) -> None:
    user = await make_user(db)

    async with served(admin) as path:
        request = {"command": "suspend", "arguments": {"email": user.email}}
        answer = json.loads(await exchange(path, json.dumps(request).encode() + b"\n"))

    assert answer == {"ok": True, "result": user.email}
    assert (await api.get("/v1/me", token=session_for(db, user))).status == 403


async def test_lines_that_are_no_command_do_not_end_the_server(admin: AdminServer, db: Database) -> None:
    good = json.dumps({"command": "create-user", "arguments": {"email": "ada@example.com"}}).encode() + b"\n"

    async with served(admin) as path:
        for line in (
            b"\n",
            b"{\n",
            b"[]\n",
            b"5\n",
            b'{"command": "suspend", "arguments": 5}\n',
            b"x" * 100_000 + b"\n",
        ):
            answer = await exchange(path, line)
            assert answer == b"" or not json.loads(answer)["ok"], line[:40]
        answer = await exchange(path, good)

    assert json.loads(answer)["ok"]


@one_store
async def test_the_command_line_speaks_to_the_platform(admin: AdminServer, api: Client) -> None:
    async def operate(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(moorage, "admin", *words, "--data", admin.db.env.settings.data)

    async with served(admin):
        created = await operate("create-user", "ada@example.com")
        token = await operate("token", "ada@example.com", "--role", "viewer")
        refused = await operate("suspend", "nobody@example.com")
    stopped = await operate("approve", "ada@example.com")

    assert (created.returncode, token.returncode) == (0, 0)
    assert "created user ada@example.com" in created.stdout
    assert (await api.get("/v1/whoami", token=token.stdout.strip())).data["role"] == "viewer"
    assert (refused.returncode, refused.stderr) == (1, "moorage: there is no user nobody@example.com\n")
    assert stopped.returncode == 1
    assert "no Moorage runs" in stopped.stderr


async def test_the_operator_role_is_granted_listed_and_revoked(admin: AdminServer, api: Client, db: Database) -> None:
    user = await make_user(db, "keeper@example.com")
    session = session_for(db, user)
    granted = [await ask(admin, "grant-operator", email="Keeper@example.com") for _ in range(2)]
    listed, allowed = await ask(admin, "operators"), await api.get("/v1/operator/queues", token=session)
    kept = await refusal(admin, "suspend", email=user.email)
    await ask(admin, "revoke-operator", email=user.email)

    assert (granted, listed, allowed.status) == (["keeper@example.com"] * 2, ["keeper@example.com"], 200)
    assert "revoke-operator" in kept
    assert (await api.get("/v1/operator/queues", token=session)).status == 404
    assert await ask(admin, "operators") == []
    assert "is not an operator" in await refusal(admin, "revoke-operator", email=user.email)
    assert "there is no user" in await refusal(admin, "grant-operator", email="nobody@example.com")


async def test_a_suspended_user_becomes_no_operator(admin: AdminServer, db: Database) -> None:
    user = await make_user(db)
    await ask(admin, "suspend", email=user.email)

    assert "is suspended" in await refusal(admin, "grant-operator", email=user.email)


async def test_an_organization_is_suspended_by_id_or_slug(admin: AdminServer, api: Client, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner)
    session = session_for(db, owner)

    suspended = await ask(admin, "suspend-organization", org=org.slug)
    refused = await api.get("/v1/usage", token=session)
    lifted = await ask(admin, "unsuspend-organization", org=str(org.id))

    assert (suspended, refused.status, lifted) == (org.name, 403, org.name)
    assert (await api.get("/v1/usage", token=session)).status == 200
