"""Builds of cronjobs: once per commit, on a push, and removed with the cronjob."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.accounts.webhooks.deliveries import SECRETS, send_github
from tests.client import Client
from tests.conftest import RunJobs
from tests.products.cronjobs.support import IMAGE, Repo, Team, make_repository

from moorage.app import App
from moorage.core.artifacts import service as artifacts
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.errors import NotFound
from moorage.products.cronjobs import building, removal, tables
from moorage.products.cronjobs.pushes import on_push
from moorage.products.cronjobs.tables import Build
from moorage.products.projects.deployments import pushes
from moorage.products.projects.deployments.followers import Followers
from moorage.products.repositories.service import Push, Update

pytestmark = [pytest.mark.anyio, pytest.mark.settings(**SECRETS)]

SHA = "a" * 40


@pytest.fixture
async def repo(team: Team, tmp_path: Path) -> Repo:
    made = await make_repository(team.db, team.org_id, tmp_path / "checkout")
    made.commit(job_sh="echo one")
    return made


async def create(team: Team, **given: Any) -> str:
    """Create a cronjob without dependencies: a build for Node.js installs nothing then, not even an environment."""
    made = (await team.create(**{"language": "nodejs", "startCmd": "sh job.sh", **given})).data
    return str(made["deploymentUuid"])


async def build_of(team: Team, uuid: str) -> Any:
    return (await team.get(f"/nightly/builds/{uuid}/logs")).data


async def builds(team: Team) -> list[Build]:
    """Return all builds, newest first."""
    found = await team.row()
    return await team.db.read(lambda tx: tx.all(tables.BUILDS_OF, org_id=team.org_id, cronjob_id=found.id))


async def test_a_cronjob_is_built_and_its_log_tells_how(team: Team, repo: Repo, run_jobs: RunJobs) -> None:
    uuid = await create(team, language="python")

    await run_jobs()

    build = await build_of(team, uuid)
    assert build["status"] == "succeeded", build["logs"]
    assert build["commitSha"] == repo.checkout.git("rev-parse", "HEAD")
    assert "start:    sh job.sh" in build["logs"]
    assert [line["message"] for line in build["lines"]] == build["logs"].splitlines()
    assert (await team.read())["status"] == "running"


async def test_a_build_that_fails_says_why_and_leaves_nothing_to_run(team: Team, repo: Repo, run_jobs: RunJobs) -> None:
    uuid = await create(team, language="docker")

    await run_jobs()

    build = await build_of(team, uuid)
    assert (build["status"], (await team.read())["status"]) == ("failed", "failed")
    assert "there is no Dockerfile in the repository" in build["logs"].splitlines()[-1]
    assert (await team.post("/nightly/trigger")).status == 409


async def test_a_repository_that_is_not_there_fails_the_build(team: Team, run_jobs: RunJobs) -> None:
    uuid = await create(team, repositoryName="acme/nothing")

    await run_jobs()

    assert (await build_of(team, uuid))["status"] == "failed"


async def test_what_was_good_goes_on_being_run_after_a_failed_rebuild(
    team: Team, repo: Repo, run_jobs: RunJobs
) -> None:
    await create(team)
    await run_jobs()
    good = (await team.row()).build_id

    await team.patch(baseDir="nowhere")
    await run_jobs()

    assert (await team.read())["status"] == "failed"
    assert (await team.row()).build_id == good
    assert (await team.post("/nightly/trigger")).status == 200


async def test_a_commit_is_built_once_for_the_same_settings(team: Team, repo: Repo, run_jobs: RunJobs) -> None:
    await create(team)
    await run_jobs()
    await team.patch(startCmd="sh other.sh")
    await run_jobs()

    again = (await team.patch(startCmd="sh job.sh")).data["deploymentUuid"]
    await run_jobs()

    log = await build_of(team, again)
    newest, other, first = await builds(team)
    assert log["status"] == "succeeded"
    assert "built before" in log["logs"]
    assert "detected" not in log["logs"]
    assert (newest.digest, newest.plan) == (first.digest, first.plan)
    assert newest.plan != other.plan


async def test_builds_that_nobody_runs_are_let_go_but_for_a_few(team: Team, repo: Repo, run_jobs: RunJobs) -> None:
    await create(team)
    for number in range(6):
        await run_jobs()
        await team.patch(buildCmd="", startCmd=f"sh job.sh {number}")
    await run_jobs()

    kept = await builds(team)

    assert len(kept) == 1 + building.KEPT_BUILDS
    assert kept[0].id == (await team.row()).build_id


def push_of(team: Team, sha: str, branch: str = "main", repository: str = "Acme/Jobs") -> Push:
    return Push(team.org_id, repository, (Update(branch, "0" * 40, sha),), Actor(1, "Ada"))


async def said(team: Team, push: Push) -> list[str]:
    return [line async for line in pushes.Pushes(team.db, Followers(team.db.env.hooks))(push, lambda tx: True)]


async def test_a_push_builds_what_wants_that(team: Team, stranger: Team, repo: Repo, run_jobs: RunJobs) -> None:
    await create(team, autoDeploy=True)
    await create(team, name="manual")
    await create(stranger, autoDeploy=True)
    await run_jobs()
    sha = repo.commit(job_sh="echo two")

    lines = await said(team, push_of(team, sha))
    elsewhere = await said(team, push_of(team, sha, branch="other"))
    status = (await team.read())["status"]
    await run_jobs()

    assert lines == [
        f"Building cronjob nightly ({sha[:12]})",
        "Cronjob manual is not built on push (autoDeploy is off)",
    ]
    assert elsewhere == ["Stored. No project uses Acme/Jobs yet: POST /v1/projects creates one"]
    assert (status, (await team.read())["status"]) == ("updating", "running")
    assert (await builds(team))[0].commit_sha == sha
    assert len(await builds(stranger)) == 1


@pytest.mark.parametrize("repository", ["acme/site", "acme/site.git"])
async def test_an_event_of_github_builds_what_wants_that(team: Team, app: App, db: Database, repository: str) -> None:
    await create(team, repositoryName=repository, autoDeploy=True)
    payload = {
        "ref": "refs/heads/main",
        "after": SHA,
        "repository": {"id": 1, "full_name": "Acme/Site", "private": False},
    }

    for delivery, sent in (("one", payload), ("two", {**payload, "ref": "refs/heads/other"})):
        await send_github(Client(app.asgi), sent, event="push", delivery=delivery)
    kinds = {"webhooks.handle_event"}
    only = type(app.handlers)({kind: each for kind, each in app.handlers.by_kind.items() if kind in kinds}, {})
    await Worker(db, only, Telemetry(quiet=True), slots=2).run_due(turns=5)

    assert [each.commit_sha for each in await builds(team)] == [SHA, None]


async def test_a_push_builds_no_cronjob_of_an_image(team: Team, db: Database) -> None:
    await team.create(**{**IMAGE, "repositoryName": "acme/jobs", "branch": "main", "autoDeploy": True})

    lines = await db.write(lambda tx: on_push(tx, team.org_id, push_of(team, SHA)))

    assert (await team.read())["autoDeploy"] is True
    assert (lines, await builds(team)) == ([], [])


async def test_a_deleted_cronjob_lets_go_of_its_artifacts_and_is_built_no_more(
    team: Team, repo: Repo, run_jobs: RunJobs, db: Database
) -> None:
    await create(team)
    await run_jobs()
    [build] = await builds(team)
    assert build.digest is not None
    found = await team.row()
    await team.patch(branch="other")
    await team.delete()

    await run_jobs()
    await removal.remove(db, team.app.products.cronjobs.programs, team.app.products.cronjobs.logs, found)

    digest = build.digest
    with pytest.raises(NotFound):
        await db.read(lambda tx: artifacts.get(tx, team.org_id, digest))
    assert (await team.get("/nightly")).status == 404
    assert not (db.env.settings.folder("cronjob-releases") / str(digest)).exists()
