"""A push to a repository that nothing uses creates a project, which gives way to one that a client creates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunJobs
from tests.products.projects.support import Team, make_team
from tests.products.repositories.support import Checkout

from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import ManualClock
from moorage.products.projects.pushed import NEW_MS
from moorage.products.repositories import service
from moorage.products.repositories.names import parse_name
from moorage.products.repositories.service import Push, Update
from moorage.products.repositories.storage import Storage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("db", ["sqlite"], indirect=True),
    pytest.mark.settings(disk_reserve_mb=0),
]

ADA = Actor(None, "Ada")
SITE = "http://site.localhost:8081"


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", index_html="<h1>one</h1>")
    return made


class Desk:
    """Pushes as the git server does, and reads the lines for the git client."""

    def __init__(self, app: App, team: Team, work: Checkout, run_jobs: RunJobs) -> None:
        self.app, self.team, self.work, self.run_jobs = app, team, work, run_jobs

    async def push(self, repository: str = "acme/site", branch: str = "main", *, deploys: bool = True) -> list[str]:
        """Store a push, deploy it, and return the lines for the client."""
        reading = await self.begin_push(repository, branch, deploys=deploys)
        async with asyncio.timeout(60):
            while not reading.done():
                await self.run_jobs()
                await asyncio.sleep(0.01)
        return reading.result()

    async def begin_push(
        self, repository: str = "acme/site", branch: str = "main", *, deploys: bool = True
    ) -> asyncio.Future[list[str]]:
        """Store a push, and return the lines for the client, which come while jobs run."""
        db, org_id, name = self.team.db, self.team.org_id, parse_name(repository)
        assert name is not None
        row = await db.write(lambda tx: service.begin_push(tx, org_id, name, ADA))
        folder = await Storage(db.env.settings).ensure(row.id)
        await asyncio.to_thread(self.work.git, "push", str(folder), f"main:{branch}")
        sha = await asyncio.to_thread(self.work.git, "rev-parse", "HEAD")
        push = Push(org_id, str(row.full_name), (Update(branch, "0" * 40, sha),), ADA, deploys)

        def record(tx: Tx) -> bool:
            service.finish_push(tx, org_id, row, push, size_bytes=1, default_branch="main")
            return True

        async def read() -> list[str]:
            return [line async for line in self.app.products.projects.pushes(push, record)]

        return asyncio.ensure_future(read())

    async def names(self) -> set[str]:
        return {item["name"] for item in (await self.team.api.get("/v1/projects")).data["items"]}

    async def post(self, name: str = "site", **fields: Any) -> Any:
        body = {"slug": "static", "name": name, "repositoryName": "acme/site", **fields}
        reply = await self.team.api.post("/v1/projects", json=body)
        await self.run_jobs()
        return reply


@pytest.fixture
def desk(app: App, team: Team, work: Checkout, run_jobs: RunJobs) -> Desk:
    return Desk(app, team, work, run_jobs)


async def test_a_push_alone_creates_a_project_and_deploys_it(desk: Desk) -> None:
    lines = await desk.push()

    project = await desk.team.read()
    assert lines[0] == f"Created the project site, because none used acme/site: {SITE}"
    assert lines[1].startswith("Deploying site (")
    assert lines[-1] == SITE
    assert (project["slug"], project["autoDeploy"], project["branch"]) == ("static", True, "main")
    assert project["repositoryName"] == "acme/site"
    assert project["latestDeployment"]["status"] == "succeeded"


async def test_a_push_that_is_only_stored_creates_and_deploys_nothing(desk: Desk) -> None:
    lines = await desk.push(deploys=False)

    assert lines == ["Stored. No deployment was started, as the client asked"]
    assert await desk.names() == set()
    assert (await desk.post()).status == 200  # the repository is there
    assert (await desk.team.read())["latestDeployment"]["status"] == "succeeded"


async def test_the_next_push_deploys_the_same_project(desk: Desk) -> None:
    await desk.push()
    desk.work.commit("a change", index_html="<h1>two</h1>")

    lines = await desk.push()

    assert lines[0].startswith("Deploying site (")
    assert await desk.names() == {"site"}
    assert (await desk.team.read())["totalDeployments"] == 2


async def test_a_taken_name_gets_a_free_variation(desk: Desk, stranger: Team) -> None:
    await stranger.create("site")
    first = await desk.push()
    await stranger.create("pages")
    await stranger.create("acme-pages")
    second = await desk.push("acme/pages")

    assert first[0].startswith("Created the project acme-site,")
    assert second[0].startswith("Created the project pages-2,")


@pytest.mark.parametrize(
    ("repository", "name"), [("acme/My.Site_2", "my-site-2"), ("acme/___", "project"), ("acme/api", "acme-api")]
)
async def test_the_name_is_a_label_after_the_repository(desk: Desk, repository: str, name: str) -> None:
    await desk.push(repository)

    assert await desk.names() == {name}


async def test_a_push_of_another_branch_creates_nothing(desk: Desk) -> None:
    lines = await desk.push(branch="draft")

    assert lines == ["Stored. No project uses acme/site yet: POST /v1/projects creates one"]
    assert await desk.names() == set()


async def test_a_repository_of_a_cronjob_gets_no_project(desk: Desk) -> None:
    body = {"name": "nightly", "cronSchedule": "0 3 * * *", "repositoryName": "acme/site", "branch": "jobs"}
    assert (await desk.team.api.post("/v1/cronjobs", json=body)).status == 200

    await desk.push()

    assert await desk.names() == set()


async def test_an_organization_can_switch_it_off(desk: Desk) -> None:
    api, path = desk.team.api, f"/v1/orgs/{desk.team.org_id}"
    before = (await api.get(path)).data["createOnPush"]
    after = (await api.patch(path, json={"createOnPush": False})).data

    lines = await desk.push()

    assert (before, after["createOnPush"]) == (True, False)
    assert lines == ["Stored. No project uses acme/site yet: POST /v1/projects creates one"]
    assert await desk.names() == set()


@pytest.mark.settings(billing="manual", disk_reserve_mb=0)
async def test_a_full_plan_stores_the_push_and_says_why_there_is_no_project(
    app: App, db: Database, work: Checkout, run_jobs: RunJobs
) -> None:
    team = await make_team(app, db, plan=Plan.FREE)
    made = 0
    while (await team.create(f"site-{made}", repositoryName="acme/other")).status == 200:
        made += 1
    desk = Desk(app, team, work, run_jobs)

    lines = await desk.push()

    assert made > 0
    assert "None was created: " in lines[0]
    assert len(await desk.names()) == made


async def test_a_project_that_is_created_first_is_the_only_one(desk: Desk) -> None:
    await desk.post("harbor", autoDeploy=True)

    lines = await desk.push()

    assert lines[0].startswith("Deploying harbor (")
    assert await desk.names() == {"harbor"}


@pytest.mark.parametrize(
    "fields",
    [{}, {"baseDir": "./docs", "buildCmd": ""}, {"slug": "container", "language": "nodejs"}, {"autoDeploy": False}],
)
async def test_the_same_name_created_after_the_push_is_a_fresh_project(desk: Desk, fields: Any) -> None:
    await desk.push()
    pushed = await desk.team.read()
    checked = (await desk.team.api.get("/v1/projects/check-name?name=site")).data

    reply = await desk.post(**fields)

    project = await desk.team.read()
    assert checked == {"name": "site", "available": True}
    assert set(reply.data) == {"projectId", "name", "deploymentId", "deploymentUuid"}
    assert reply.data["projectId"] == project["id"] != pushed["id"]
    assert (project["slug"], project["totalDeployments"]) == (fields.get("slug", "static"), 1)
    assert project["autoDeploy"] is False
    assert project["baseDir"] == fields.get("baseDir", "./")
    assert (await desk.post()).status == 409


async def test_a_repository_named_with_git_s_suffix_is_the_one_that_was_pushed(desk: Desk) -> None:
    await desk.push()

    created = await desk.post("harbor", repositoryName="acme/site.git", autoDeploy=True)
    desk.work.commit("a change", index_html="<h1>two</h1>")
    lines = await desk.push()

    assert created.status == 200
    assert await desk.names() == {"harbor"}
    assert lines[0].startswith("Deploying harbor (")
    assert (await desk.team.read("harbor"))["repositoryName"] == "acme/site.git"


async def test_another_name_created_after_the_push_replaces_the_project(desk: Desk) -> None:
    await desk.push()

    reply = await desk.post("harbor")

    assert reply.status == 200
    assert await desk.names() == {"harbor"}
    assert set((await desk.team.hosts()).sites) == {"harbor.localhost"}
    assert (await desk.team.api.get("/v1/projects/check-name?name=site")).data["available"] is True


async def test_a_project_created_while_the_push_deploys_replaces_the_pushed_one(desk: Desk) -> None:
    reading = await desk.begin_push()
    async with asyncio.timeout(60):
        while not await desk.names():
            await asyncio.sleep(0.01)

    reply = await desk.post(baseDir="./docs")
    lines = await reading

    assert lines[-1] == "The project was deleted"
    assert reply.data["projectId"] == (await desk.team.read())["id"]
    assert (await desk.team.status(reply.data["deploymentUuid"]))["terminal"]


async def test_an_upload_and_a_cronjob_after_the_push_replace_the_project_too(desk: Desk) -> None:
    await desk.push()
    await desk.push("acme/jobs")
    body = {"name": "nightly", "cronSchedule": "0 3 * * *", "repositoryName": "acme/jobs"}

    uploaded = await desk.team.upload("site")
    cronjob = await desk.team.api.post("/v1/cronjobs", json=body)

    assert (uploaded.status, cronjob.status) == (200, 200)
    assert await desk.names() == {"site"}
    assert (await desk.team.read())["repositoryName"] is None


async def test_a_project_of_another_branch_leaves_the_pushed_one_alone(desk: Desk) -> None:
    await desk.push()

    await desk.post("staging", branch="draft")

    assert await desk.names() == {"site", "staging"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/projects/site", {"enableAnalytics": True}),
        ("PATCH", "/v1/projects/site", {"secrets": [{"name": "A", "value": "b"}]}),
        ("POST", "/v1/projects/site/toggle", {"enable": False}),
        ("POST", "/v1/projects/site/deploy", {}),
        ("POST", "/v1/projects/site/domains", {"domain": "www.example.com"}),
        ("PUT", "/v1/projects/site/redirects", {"redirects": [{"source": "/a", "destination": "/b", "status": 302}]}),
    ],
)
async def test_a_project_that_a_user_changed_stays(desk: Desk, method: str, path: str, body: Any) -> None:
    await desk.push()
    assert (await desk.team.api.request(method, path, json=body)).status < 300

    same = await desk.post()
    other = await desk.post("harbor")

    assert same.status == 409
    assert other.status == 200
    assert await desk.names() == {"site", "harbor"}


async def test_a_live_project_stays_once_it_is_not_new(desk: Desk, clock: ManualClock) -> None:
    await desk.push()
    clock.advance(NEW_MS)

    same = await desk.post()
    await desk.post("harbor")

    assert same.status == 409
    assert await desk.names() == {"site", "harbor"}


async def test_a_project_that_never_was_live_gives_way_at_any_age(desk: Desk, clock: ManualClock) -> None:
    desk.work.git("rm", "--quiet", "index.html")
    desk.work.commit("nothing to deploy", notes_txt="later")
    lines = await desk.push()
    clock.advance(100 * NEW_MS)

    reply = await desk.post("harbor")

    assert lines[-1].startswith("Deployment failed: ")
    assert reply.status == 200
    assert await desk.names() == {"harbor"}


async def test_a_project_of_another_organization_never_gives_way(desk: Desk, stranger: Team) -> None:
    await desk.push()

    assert (await stranger.create("site")).status == 409
    assert await desk.names() == {"site"}
