"""The owner part of a repository's name belongs to its first user, also against later slugs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import update
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client
from tests.conftest import RunJobs
from tests.products.repositories.support import basic

from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.tables import organization
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.products.repositories import service
from moorage.products.repositories.names import Name

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary(
        "tenant-to-tenant", "An owner of repositories belongs to its first user; a slug taken later gives no access."
    ),
]


RENAME = Command(update(organization).where(organization.c.id == arg("org_id")).values(slug=arg("slug")))


@dataclass(frozen=True)
class Party:
    db: Database
    api: Client
    user: User
    org: Organization

    async def may_push(self, repository: str, *, session: bool = False) -> bool:
        """Ask the git server whether this organization may push to a repository, which it may not have yet."""
        token = session_for(self.db, self.user) if session else await make_token(self.db, self.user, self.org.id)
        path = f"/git/{repository}.git/info/refs?service=git-receive-pack"
        return (await self.api.get(path, headers=basic(token))).status == 200

    async def push(self, owner: str, name: str) -> None:
        actor = Actor(self.user.id, "Ada")
        await self.db.write(lambda tx: service.begin_push(tx, self.org.id, Name(owner, name), actor))


async def make_party(app: App, db: Database, name: str) -> Party:
    user = await make_user(db)
    return Party(db, Client(app.asgi), user, await make_org(db, user, name=name))


async def test_a_slug_that_is_taken_later_does_not_take_over_an_owner(app: App, db: Database) -> None:
    quay = await make_party(app, db, "Quay")
    await quay.push("Acme", "tools")

    acme = await make_party(app, db, "Acme")

    assert acme.org.slug.startswith("acme-")
    assert [await acme.may_push("acme/tools"), await acme.may_push("acme/new"), await acme.may_push("ACME/x")] == [
        False,
        False,
        False,
    ]
    assert await acme.may_push(f"{acme.org.slug}/new", session=True)
    assert [await quay.may_push("acme/tools"), await quay.may_push("acme/new")] == [True, True]


async def test_an_organization_whose_slug_others_used_first_gets_no_access_to_it(app: App, db: Database) -> None:
    """Such slugs are not given out any more, but stores have them."""
    acme, quay = await make_party(app, db, "Acme"), await make_party(app, db, "Quay")
    await quay.push("docks", "tools")
    await db.write(lambda tx: tx.run(RENAME, org_id=acme.org.id, slug="docks"))

    assert [await acme.may_push("docks/new"), await acme.may_push("docks/new", session=True)] == [False, False]
    assert await quay.may_push("docks/new")


async def test_an_owner_that_nobody_used_belongs_to_the_organization_of_that_slug(app: App, db: Database) -> None:
    acme, quay = await make_party(app, db, "Acme"), await make_party(app, db, "Quay")

    assert [await quay.may_push("acme/x"), await acme.may_push("acme/x"), await quay.may_push("free/x")] == [
        False,
        True,
        True,
    ]


async def test_slug_and_owners_of_a_deleted_organization_rest(
    app: App, db: Database, run_jobs: RunJobs, clock: ManualClock
) -> None:
    acme, quay = await make_party(app, db, "Acme"), await make_party(app, db, "Quay")
    await acme.push("tools", "one")
    await acme.api.delete(f"/v1/orgs/{acme.org.id}", token=session_for(db, acme.user))
    before_the_job = (await quay.may_push("acme/x"), await quay.may_push("tools/x"))
    await run_jobs()

    resting = (await quay.may_push("acme/x"), await quay.may_push("tools/x"))
    slugs = [(await make_party(app, db, name)).org.slug for name in ("Acme", "Tools")]
    clock.advance(30 * DAY_MS)

    assert (before_the_job, resting) == ((False, False), (False, False))
    assert [slug.rpartition("-")[0] for slug in slugs] == ["acme", "tools"]
    assert await quay.may_push("acme/x")
    assert (await make_party(app, db, "Tools")).org.slug == "tools"


async def test_an_organization_lists_its_own_repositories(app: App, db: Database) -> None:
    quay, pier = await make_party(app, db, "Quay"), await make_party(app, db, "Pier")
    await quay.push("quay", "site")
    await pier.push("pier", "app")

    listed = await quay.api.get("/v1/repositories", token=await make_token(db, quay.user, quay.org.id))

    (found,) = listed.data
    assert (found["name"], found["defaultBranch"], found["sizeBytes"]) == ("quay/site", "main", 0)
    assert found["url"] == f"{db.env.settings.api_url}/git/quay/site.git"
