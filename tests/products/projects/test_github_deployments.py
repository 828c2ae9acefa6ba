"""GitHub events start deployments of a pushed branch and previews of pull requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.accounts.webhooks.deliveries import SECRETS, send_github
from tests.client import Client
from tests.conftest import RunJobs
from tests.products.projects import support
from tests.products.projects.support import Team
from tests.products.repositories.support import Checkout

from moorage.accounts.webhooks.service import HandleWebhookEvent
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.products.projects import previews as preview_service
from moorage.products.projects import service, tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.pipeline import cache_of, request_of
from moorage.products.projects.previews import PullRequest

pytestmark = [pytest.mark.anyio, pytest.mark.settings(**SECRETS)]

SHA, NEXT = "a" * 40, "b" * 40


def push(branch: str = "main", sha: str = SHA, repository: str = "acme/site", **more: Any) -> dict[str, Any]:
    return {
        "ref": f"refs/heads/{branch}",
        "after": sha,
        "repository": {"id": 1, "full_name": repository},
        **more,
    }


def pull(action: str = "opened", sha: str = SHA, number: int = 7, fork: str | None = None) -> dict[str, Any]:
    head = {"sha": sha, "ref": "topic", "repo": {"full_name": fork or "acme/site"}}
    about = {"number": number, "title": "A better harbor", "head": head}
    return {
        "action": action,
        "pull_request": about,
        "repository": {"id": 1, "full_name": "acme/site", "private": False},
    }


async def tell(app: App, db: Database, event: str, payload: Any, delivery: str) -> None:
    """Deliver an event and have its job done, but none of the builds that it asks for."""
    await send_github(Client(app.asgi), payload, event=event, delivery=delivery)
    kinds = {"webhooks.handle_event"}
    only = type(app.handlers)({kind: each for kind, each in app.handlers.by_kind.items() if kind in kinds}, {})
    assert HandleWebhookEvent.__struct_config__.tag in kinds
    await Worker(db, only, Telemetry(quiet=True), slots=2).run_due(turns=5)


@pytest.mark.parametrize("repository", ["Acme/Site", "acme/site.git"])
async def test_a_push_to_the_tracked_branch_deploys_its_commit(
    team: Team, app: App, db: Database, repository: str
) -> None:
    await team.create(repositoryName=repository, autoDeploy=True)

    await tell(app, db, "push", push(), "one")

    newest = (await team.deployments())[0]
    assert (newest["commitSha"], newest["commitId"], newest["branch"]) == (SHA, SHA[:12], "main")
    assert newest["actor"] == {"userId": None, "name": None, "username": None}


@pytest.mark.parametrize(
    "payload",
    [
        push("other"),
        push(repository="acme/another"),
        push(deleted=True, sha="0" * 40),
        push(sha="--upload-pack=x"),
        {"ref": "refs/tags/main", "after": SHA, "repository": {"full_name": "acme/site"}},
        {"ref": 7, "after": [], "repository": "acme/site"},
        {},
    ],
)
async def test_a_push_of_anything_else_deploys_nothing(
    team: Team, app: App, db: Database, payload: dict[str, Any]
) -> None:
    await team.create(autoDeploy=True)

    await tell(app, db, "push", payload, "one")

    assert len(await team.deployments()) == 1


async def test_a_project_that_does_not_ask_for_it_is_not_deployed(team: Team, app: App, db: Database) -> None:
    await team.create("manual")
    await team.create("off", autoDeploy=True)
    await team.api.post("/v1/projects/off/toggle", json={"enable": False})

    await tell(app, db, "push", push(), "one")

    assert len(await team.deployments("manual")) == 1
    assert len(await team.deployments("off")) == 1


async def test_an_event_that_comes_again_has_no_effect(team: Team, app: App, db: Database) -> None:
    await team.create(autoDeploy=True)

    for _ in range(2):
        await tell(app, db, "push", push(), "same")

    assert len(await team.deployments()) == 2


async def previews(team: Team) -> list[dict[str, Any]]:
    return list((await team.api.get("/v1/projects/site/previews")).data)


async def test_a_pull_request_has_an_address_of_its_own_until_it_is_closed(team: Team, app: App, db: Database) -> None:
    await team.create(prPreview=True)

    await tell(app, db, "pull_request", pull(), "one")
    opened = await previews(team)
    await tell(app, db, "pull_request", pull("synchronize", NEXT), "two")
    moved = await team.deployments()
    await tell(app, db, "pull_request", pull("closed", NEXT), "three")

    assert (opened[0]["url"], opened[0]["status"]) == ("http://site-pr-7.localhost:8081", "active")
    assert (opened[0]["number"], opened[0]["title"], opened[0]["fork"]) == (7, "A better harbor", False)
    assert [each["commitSha"] for each in moved[:2]] == [NEXT, SHA]
    assert (moved[0]["preview"], moved[1]["status"]) == (True, "failed")  # superseded by the newer commit
    assert (await previews(team))[0]["status"] == "closed"
    assert (await team.deployments())[0]["status"] == "failed"
    status = await team.status(moved[0]["deploymentUuid"])
    assert status["projectUrl"] == "http://site-pr-7.localhost:8081"


@pytest.mark.parametrize("action", ["synchronize", "synchronized"])
async def test_new_commits_update_a_preview_under_the_names_of_github_and_gitea(
    team: Team, app: App, db: Database, action: str
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(), "one")

    await tell(app, db, "pull_request", pull(action, NEXT), "two")

    assert (await team.deployments())[0]["commitSha"] == NEXT


async def test_a_forks_code_waits_for_approval_and_each_new_commit_waits_again(
    team: Team, app: App, db: Database
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(fork="eve/site"), "one")
    before = await team.deployments()

    approved = (await team.api.post("/v1/projects/site/previews/7/approve")).data
    after = await team.deployments()
    await tell(app, db, "pull_request", pull("synchronize", NEXT, fork="eve/site"), "two")

    assert (len(before), len(after)) == (1, 2)
    assert (approved["status"], approved["fork"]) == ("active", True)
    assert (await previews(team))[0]["status"] == "waiting"
    assert len(await team.deployments()) == 2
    assert (await team.api.post("/v1/projects/site/previews/8/approve")).status == 404
    await team.api.post("/v1/projects/site/previews/7/approve")
    assert (await team.api.post("/v1/projects/site/previews/7/approve")).status == 409


@pytest.mark.boundary("supply-chain", "An approval of a fork's pull request builds the commit that was reviewed.")
async def test_an_approval_of_another_commit_than_the_current_one_builds_nothing(
    team: Team, app: App, db: Database
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(fork="eve/site"), "one")
    reviewed = (await previews(team))[0]
    before = len(await team.deployments())
    await tell(app, db, "pull_request", pull("synchronize", NEXT, fork="eve/site"), "two")
    path = "/v1/projects/site/previews/7/approve"

    late = [await team.api.post(path, json={"commitSha": reviewed[name]}) for name in ("commitSha", "commitId")]
    odd = await team.api.post(path, json={"commitSha": NEXT[:7]})
    count = len(await team.deployments())
    approved = await team.api.post(path, json={"commitSha": NEXT[:12].upper()})

    assert [(reply.status, reply.error["code"]) for reply in late] == [(409, "conflict")] * 2
    assert (odd.status, list(odd.error["fields"])) == (400, ["commitSha"])
    assert count == before
    assert (approved.data["status"], approved.data["commitSha"]) == ("active", NEXT)
    assert (await team.deployments())[0]["commitSha"] == NEXT


@pytest.mark.boundary(
    "supply-chain", "A pull request from a fork waits for approval, also where its number was a branch's before."
)
@pytest.mark.parametrize("closes", [True, False])
async def test_a_fork_with_the_number_of_a_branch_waits_for_approval(
    team: Team, app: App, db: Database, closes: bool
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(), "one")
    if closes:
        await tell(app, db, "pull_request", pull("closed"), "two")

    await tell(app, db, "pull_request", pull(sha=NEXT, fork="eve/site"), "three")

    found = (await previews(team))[0]
    assert (found["status"], found["fork"]) == ("waiting", True)
    assert NEXT not in {each["commitSha"] for each in await team.deployments()}
    await team.api.post("/v1/projects/site/previews/7/approve")
    await tell(app, db, "pull_request", pull("synchronize", SHA), "four")
    assert (await previews(team))[0]["status"] == "waiting"


@pytest.mark.boundary("supply-chain", "A fork's build never writes the cache of builds that get secrets.")
async def test_a_fork_s_build_has_a_cache_of_its_own(team: Team, stranger: Team, app: App, db: Database) -> None:
    await team.create(prPreview=True)
    await stranger.create("other")
    for number, fork in ((7, "eve/site"), (8, "mallory/site"), (9, None)):
        await tell(app, db, "pull_request", pull(number=number, fork=fork), f"event-{number}")

    def names(tx: Tx) -> list[str]:
        site, other = service.get(tx, team.org_id, "site"), service.get(tx, stranger.org_id, "other")
        found = [tx.find(tables.FIND_PREVIEW, org_id=team.org_id, project_id=site.id, number=n) for n in (7, 8, 9)]
        assert None not in found
        return [
            cache_of(project, preview)
            for project, preview in ((site, None), *((site, p) for p in found), (other, None))
        ]

    main, first_fork, second_fork, branch, other = await db.read(names)

    assert branch == main  # The repository's own branches get the secrets too.
    assert len({main, first_fork, second_fork, other}) == 4


async def test_only_a_fork_s_build_has_no_credentials_of_registries(team: Team, app: App, db: Database) -> None:
    await team.create(prPreview=True)
    for number, fork in ((7, "eve/site"), (9, None)):
        await tell(app, db, "pull_request", pull(number=number, fork=fork), f"event-{number}")

    def requests(tx: Tx) -> list[bool]:
        site = service.get(tx, team.org_id, "site")
        deployment = deployments.find(tx, team.org_id, site.latest_deployment_id or 0)
        assert deployment is not None
        found = [tx.find(tables.FIND_PREVIEW, org_id=team.org_id, project_id=site.id, number=n) for n in (7, 9)]
        return [
            request_of(tx.env.settings, site, preview, deployment, {}).image.has_credentials
            for preview in (None, *found)
        ]

    assert await db.read(requests) == [True, False, True]


@pytest.mark.settings(disk_reserve_mb=0)
async def test_a_disabled_project_says_so_at_the_addresses_of_its_live_previews_too(
    team: Team, db: Database, tmp_path: Path, run_jobs: RunJobs
) -> None:
    work = Checkout.init(tmp_path / "work")
    sha = work.commit("proposed", index_html="<h1>one</h1>")
    await support.push(team, work)
    await team.create(prPreview=True)

    def propose(tx: Tx) -> None:
        site = service.get(tx, team.org_id, "site")
        for number, commit in ((7, sha), (8, NEXT)):
            request = PullRequest(number, "A better harbor", "acme/site", "main", commit, is_fork=False)
            preview_service.update(tx, team.org_id, site, request)

    await db.write(propose)
    await run_jobs()
    live = await team.hosts()

    await team.api.post("/v1/projects/site/toggle", json={"enable": False})
    off = await team.hosts()
    await team.api.post("/v1/projects/site/toggle", json={"enable": True})

    assert (set(live.sites), live.disabled) == ({"site.localhost", "site-pr-7.localhost"}, set())
    assert (off.sites, off.disabled) == ({}, {"site.localhost", "site-pr-7.localhost"})
    assert (await team.hosts()).sites.keys() == live.sites.keys()


async def test_a_project_without_previews_has_none(team: Team, app: App, db: Database) -> None:
    await team.create()

    await tell(app, db, "pull_request", pull(), "one")
    await tell(app, db, "pull_request", {"action": "opened", "pull_request": {"number": "7"}}, "two")

    assert await previews(team) == []


async def test_the_address_of_a_preview_is_taken(team: Team, stranger: Team, app: App, db: Database) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(), "one")

    assert (await stranger.create("site-pr-7")).status == 409
    await tell(app, db, "pull_request", pull("closed"), "two")
    assert (await stranger.create("site-pr-7")).status == 409
    assert (await team.create("site-pr-7")).status == 200
    await tell(app, db, "pull_request", pull("reopened"), "three")
    assert (await previews(team))[0]["status"] == "closed"


async def test_a_project_is_not_renamed_where_its_previews_could_not_follow(
    team: Team, stranger: Team, app: App, db: Database
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(), "one")
    await stranger.create("new-pr-7")

    refused = await team.api.patch("/v1/projects/site/name", json={"name": "new"})
    renamed = await team.api.patch("/v1/projects/site/name", json={"name": "other"})

    assert (refused.status, renamed.status) == (409, 200)
    found = (await team.api.get("/v1/projects/other/previews")).data
    assert found[0]["url"] == "http://other-pr-7.localhost:8081"


async def test_a_project_is_not_renamed_where_its_previews_had_no_valid_host(
    team: Team, app: App, db: Database
) -> None:
    await team.create(prPreview=True)
    await tell(app, db, "pull_request", pull(), "one")

    long = await team.api.patch("/v1/projects/site/name", json={"name": "x" * 59})
    longest = await team.api.patch("/v1/projects/site/name", json={"name": "x" * 58})

    assert (long.status, longest.status) == (409, 200)
