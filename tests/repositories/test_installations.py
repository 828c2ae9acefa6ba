"""Where GitHub's app is installed, as its events tell, and whom an installation serves."""

from __future__ import annotations

import pytest
from tests.builders import make_org, make_user

from moorage.audit.service import Actor
from moorage.db.store import Database
from moorage.identity import orgs
from moorage.repositories import github, service
from moorage.repositories.tables import Installation
from moorage.webhooks.service import GithubEvent

pytestmark = pytest.mark.anyio


async def tell(db: Database, action: str, *, number: int = 99, suspended: bool = False, login: str = "Octo") -> None:
    about = {"id": number, "account": {"login": login}, "suspended_at": "2026-01-01" if suspended else None}
    event = GithubEvent("installation", action, "d-1", {"action": action, "installation": about})
    await db.write(lambda tx: github.on_installation(tx, event))


async def find(db: Database, org_id: int) -> Installation | None:
    return await db.read(lambda tx: github.find_installation(tx, org_id, "oCTO"))


async def claim(db: Database, org_id: int) -> bool:
    return await db.write(lambda tx: github.claim(tx, org_id, "octo"))


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
        found = await find(db, 1)
        seen.append((found.installation_id, found.suspended) if found else None)

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
    ],
)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_an_event_that_says_nothing_usable_changes_nothing(db: Database, about: object) -> None:
    event = GithubEvent("installation", "created", "d-1", {"installation": about})

    await db.write(lambda tx: github.on_installation(tx, event))

    assert await find(db, 1) is None


async def test_an_installation_serves_who_first_needs_it_and_keeps_doing_so(db: Database) -> None:
    owner = await make_user(db)
    quay, reef = await make_org(db, owner, name="Quay"), await make_org(db, owner, name="Reef")
    await tell(db, "created")

    first, second = await claim(db, quay.id), await claim(db, reef.id)
    named = await make_org(db, owner, name="Octo")
    third, again = await claim(db, named.id), await claim(db, quay.id)

    assert (first, second, third, again) == (True, False, False, True)
    assert await find(db, reef.id) is None


async def test_an_installation_waits_for_the_organization_of_its_name(db: Database) -> None:
    owner = await make_user(db)
    octo, reef = await make_org(db, owner, name="Octo"), await make_org(db, owner, name="Reef")
    await tell(db, "created")

    assert [await claim(db, reef.id), await claim(db, octo.id)] == [False, True]


async def test_an_installation_is_free_again_when_its_organization_is_gone(db: Database) -> None:
    owner = await make_user(db)
    quay, reef = await make_org(db, owner, name="Quay"), await make_org(db, owner, name="Reef")
    await tell(db, "created")
    await claim(db, quay.id)

    await db.write(lambda tx: orgs.delete(tx, quay.id, Actor(owner.id, owner.name)))
    await db.write(lambda tx: service.delete_all(tx, quay.id))

    assert await claim(db, reef.id) is True


async def test_nothing_is_claimed_where_the_app_is_not_installed(db: Database) -> None:
    org = await make_org(db, await make_user(db), name="Quay")

    assert await claim(db, org.id) is False
