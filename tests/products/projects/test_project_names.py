"""Freed names stay reserved for their organization; names of previews belong to their project."""

from __future__ import annotations

import pytest
from tests.conftest import RunJobs
from tests.products.projects.support import Team

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations.freed_names import MAX_RESERVED, NameKind, freed_name
from moorage.app import App
from moorage.core import maintenance
from moorage.core.db.query import Query, scalar
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.products.projects import previews, service
from moorage.products.projects.previews import PullRequest

pytestmark = pytest.mark.anyio
RESTS = pytest.mark.boundary(
    "tenant-to-tenant", "A project's name that was given up rests for 30 days for everybody but its own organization."
)
PREVIEWS = pytest.mark.boundary(
    "tenant-to-tenant", "Names of previews belong to their project: nobody else can take or serve them."
)
_NAMES: Query[str] = Query(freed_name.select().with_only_columns(freed_name.c.name).order_by(freed_name.c.id), scalar)


async def may_take(team: Team, name: str) -> tuple[bool, int, int]:
    """Tell whether a team may have a name: by check-name, by creating a project, and by renaming one."""
    available = (await team.api.get(f"/v1/projects/check-name?name={name}")).data["available"]
    await team.create("spare")
    renamed = await team.api.patch("/v1/projects/spare/name", json={"name": name})
    if renamed.status == 200:
        await team.api.patch(f"/v1/projects/{name}/name", json={"name": "spare"})
    return available, (await team.create(name)).status, renamed.status


async def open_preview(team: Team, name: str, number: int) -> str | None:
    """Open a pull request of a project; return the name of its preview, if it gets one."""
    pull = PullRequest(number, "A change", "acme/site", "topic", "a" * 40, is_fork=False)
    made = await team.db.write(lambda tx: previews.update(tx, team.org_id, service.get(tx, team.org_id, name), pull))
    return made.name if made is not None else None


@RESTS
async def test_the_name_of_a_deleted_project_rests_for_others(team: Team, stranger: Team, clock: ManualClock) -> None:
    await team.create("harbor")
    await team.api.delete("/v1/projects/harbor")

    at_once = await may_take(stranger, "harbor")
    clock.advance(30 * DAY_MS - 1)
    late = (await stranger.api.get("/v1/projects/check-name?name=harbor")).data["available"]
    clock.advance(1)

    assert (at_once, late) == ((False, 409, 409), False)
    assert (await stranger.create("harbor")).status == 200


@RESTS
async def test_a_former_name_rests_for_others_and_goes_on_leading_to_its_project(team: Team, stranger: Team) -> None:
    await team.create("harbor")
    await team.api.patch("/v1/projects/harbor/name", json={"name": "haven"})

    theirs = await may_take(stranger, "harbor")

    assert theirs == (False, 409, 409)
    assert (await team.hosts()).moved == {"harbor.localhost": "haven.localhost"}


async def test_an_organization_takes_its_own_names_back_at_once(team: Team) -> None:
    await team.create("harbor")
    await team.create("pier")
    await team.api.delete("/v1/projects/harbor")
    await team.api.patch("/v1/projects/pier/name", json={"name": "haven"})

    assert (await team.api.get("/v1/projects/check-name?name=harbor")).data["available"] is True
    assert [(await team.create(name)).status for name in ("harbor", "pier")] == [200, 200]


@RESTS
async def test_names_of_a_deleted_organization_rest(team: Team, stranger: Team, run_jobs: RunJobs) -> None:
    await team.upload("harbor")
    await team.api.delete(f"/v1/orgs/{team.org_id}")
    await run_jobs()

    assert await may_take(stranger, "harbor") == (False, 409, 409)


@PREVIEWS
@pytest.mark.parametrize("number", [1, 7, 2**31 - 1])
async def test_no_one_else_takes_a_name_that_is_or_would_be_a_preview(team: Team, stranger: Team, number: int) -> None:
    await team.create("harbor")
    name = f"harbor-pr-{number}"
    theirs = await may_take(stranger, name)

    mine = (await team.api.get(f"/v1/projects/check-name?name={name}")).data["available"]
    opened = await open_preview(team, "harbor", number)

    assert (theirs, mine, opened) == ((False, 409, 409), True, name)


@PREVIEWS
async def test_names_of_previews_rest_with_the_name_of_their_project(team: Team, stranger: Team) -> None:
    await team.create("harbor")
    await open_preview(team, "harbor", 7)
    await team.api.patch("/v1/projects/harbor/name", json={"name": "haven"})
    after_rename = await may_take(stranger, "harbor-pr-7")
    await team.api.delete("/v1/projects/haven")

    assert after_rename == (False, 409, 409)
    assert await may_take(stranger, "haven-pr-7") == (False, 409, 409)


@PREVIEWS
async def test_a_preview_gets_no_address_that_another_project_holds(team: Team, stranger: Team) -> None:
    await stranger.create("harbor-pr-1")
    await team.create("harbor")
    await team.create("harbor-pr-2")

    opened = [await open_preview(team, "harbor", number) for number in (1, 2, 3)]

    assert opened == [None, None, "harbor-pr-3"]
    assert (await stranger.read("harbor-pr-1"))["name"] == "harbor-pr-1"


@pytest.mark.parametrize("name", ["harbor-pr-0", "harbor-pr-01", "harbor-pr-x", "harbor-pr", "other-pr-1"])
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_name_that_cannot_be_a_preview_of_others_is_free(team: Team, stranger: Team, name: str) -> None:
    await team.create("harbor")

    assert (await stranger.create(name)).status == 200


async def test_one_organization_holds_back_no_more_than_a_bounded_number_of_names(team: Team, stranger: Team) -> None:
    for number in range(MAX_RESERVED + 2):
        name = f"n{number}"
        await team.db.write(lambda tx, name=name: freed_names.reserve(tx, team.org_id, NameKind.PROJECT, name))  # type: ignore[misc]
    await team.db.write(lambda tx: freed_names.reserve(tx, team.org_id, NameKind.PROJECT, "n5"))

    kept = await team.db.read(lambda tx: tx.all(_NAMES))

    assert kept == [*(f"n{number}" for number in range(2, MAX_RESERVED + 2) if number != 5), "n5"]
    assert (await stranger.api.get("/v1/projects/check-name?name=n0")).data["available"] is True


async def test_names_that_have_rested_are_forgotten(app: App, db: Database, team: Team, clock: ManualClock) -> None:
    await team.create("harbor")
    await team.api.delete("/v1/projects/harbor")
    clock.advance(30 * DAY_MS)

    await db.write(lambda tx: maintenance.sweep(tx, maintenance.Sweep()))

    assert await db.read(lambda tx: tx.all(_NAMES)) == []
