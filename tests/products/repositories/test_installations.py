"""Installations of the GitHub app from its events, and the organizations that they serve."""

from __future__ import annotations

import pytest
from tests.builders import make_org, make_user
from tests.products.repositories.support import bind

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.webhooks.service import GithubEvent
from moorage.core.audit.service import Actor
from moorage.core.db.query import Command, Query, columns
from moorage.core.db.store import Database
from moorage.platform.admin import AdminServer
from moorage.products.repositories import service
from moorage.products.repositories.github import app as github
from moorage.products.repositories.github import bindings
from moorage.products.repositories.tables import Installation, github_installation

pytestmark = pytest.mark.anyio

_ALL = Query(github_installation.select().with_only_columns(*columns(github_installation)), Installation)
_CLAIM = Command(github_installation.update().values(org_id=1))


async def tell(db: Database, action: str, *, number: int = 99, suspended: bool = False, login: str = "Octo") -> None:
    about = {"id": number, "account": {"login": login}, "suspended_at": "2026-01-01" if suspended else None}
    event = GithubEvent("installation", action, "d-1", {"action": action, "installation": about})
    await db.write(lambda tx: github.on_installation(tx, event))


async def known(db: Database) -> list[Installation]:
    return await db.read(lambda tx: tx.all(_ALL))


async def bound(db: Database, org_id: int) -> list[int]:
    return [each.installation_id for each in await db.read(lambda tx: bindings.all_of(tx, org_id))]


async def test_events_keep_the_installations(db: Database) -> None:
    seen = []
    for action, number, suspended in (
        ("created", 98, False),
        ("suspend", 98, True),
        ("unsuspend", 98, False),
        ("created", 99, False),
        ("deleted", 98, False),
        ("deleted", 99, False),
    ):
        await tell(db, action, number=number, suspended=suspended)
        found = await known(db)
        seen.append((found[0].installation_id, found[0].suspended) if found else None)

    assert seen == [(98, False), (98, True), (98, False), (99, False), (99, False), None]


@pytest.mark.parametrize(
    "about",
    [
        None,
        "x",
        {},
        {"id": "1", "account": {"login": "octo"}},
        {"id": 2**63, "account": {"login": "octo"}},
        {"id": 1, "account": {"login": "octo/b"}},
        {"id": 1, "account": "octo"},
    ],
)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_an_event_that_says_nothing_usable_changes_nothing(db: Database, about: object) -> None:
    event = GithubEvent("installation", "created", "d-1", {"installation": about})

    await db.write(lambda tx: github.on_installation(tx, event))

    assert await known(db) == []


@pytest.mark.parametrize(("action", "suspended"), [("deleted", False), ("suspend", True)])
@pytest.mark.boundary(
    "tenant-to-tenant", "An installation that was removed or suspended at GitHub serves no organization any more."
)
async def test_an_installation_that_is_removed_or_suspended_is_unbound_everywhere(
    db: Database, action: str, suspended: bool
) -> None:
    owner = await make_user(db)
    quay, reef = await make_org(db, owner, name="Quay"), await make_org(db, owner, name="Reef")
    await bind(db, quay, number=99, login="Octo")
    await bind(db, reef, number=99, login="Octo")
    await bind(db, reef, number=98, login="Other")

    await tell(db, action, number=99, suspended=suspended)
    await tell(db, "unsuspend", number=99)

    assert (await bound(db, quay.id), await bound(db, reef.id)) == ([], [98])


async def test_bindings_and_claims_go_with_their_organization(db: Database) -> None:
    owner = await make_user(db)
    quay = await make_org(db, owner, name="Quay")
    await tell(db, "created")
    await db.write(lambda tx: tx.run(_CLAIM))
    await bind(db, quay)

    await db.write(lambda tx: orgs.delete(tx, quay.id, Actor(owner.id, owner.name)))
    await db.write(lambda tx: service.delete_all(tx, quay.id))

    assert await bound(db, quay.id) == []
    assert await db.read(bindings.list_claims) == []


async def test_a_claim_of_an_earlier_release_is_listed_until_it_is_proved(db: Database) -> None:
    quay = await make_org(db, await make_user(db), name="Quay")
    await tell(db, "created")
    await db.write(lambda tx: tx.run(_CLAIM))

    listed = await AdminServer(db, Sessions(db.env)).answer({"command": "github-claims"})
    before = await bound(db, quay.id)
    await bind(db, quay, number=99, login="Octo")

    claim = {"account": "Octo", "installationId": 99, "organization": quay.id, "slug": "quay"}
    assert listed == {"ok": True, "result": [claim]}
    assert before == []
    assert await db.read(bindings.list_claims) == []
