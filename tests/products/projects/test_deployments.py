"""Deployments over the API: uploaded, published, superseded, rolled back; and their logs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.conftest import RunJobs
from tests.products.projects.support import SITE, Team

from moorage.app import App
from moorage.core.db.query import Command
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.kit.ids import new_uuid
from moorage.core.telemetry import Telemetry
from moorage.core.vault.tables import vault_secret
from moorage.core.worker.pool import LEASE_MS, Worker
from moorage.gateway import sites
from moorage.gateway.reconciler import GatewayReconciler
from moorage.gateway.routes import Routes
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.pipeline import OURS, UNDECRYPTABLE
from moorage.products.projects.deployments.service import SUPERSEDED
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


def served(settings: Settings, name: str = "site") -> str | None:
    """Return the first page that the gateway would serve for a project."""
    release = sites.find(settings, f"{name}.localhost")
    return (release / "index.html").read_text() if release is not None else None


async def live(team: Team, run_jobs: RunJobs, page: str) -> str:
    """Upload a site, publish it, and return the uuid of its deployment."""
    made = (await team.upload(files={**SITE, "index.html": page})).data
    await run_jobs()
    return str(made["uploadId"])


async def test_an_uploaded_site_is_live_once_its_deployment_succeeded(
    team: Team, settings: Settings, run_jobs: RunJobs
) -> None:
    made = (await team.upload()).data
    before = served(settings)
    await run_jobs()
    read = await team.read()

    assert set(made) == {"projectId", "name", "deploymentId", "uploadId", "liveUrl", "fileCount"}
    assert (made["liveUrl"], made["fileCount"]) == ("http://site.localhost:8081", 2)
    assert (before, served(settings)) == (None, "<h1>one</h1>")
    assert (read["slug"], read["repositoryName"], read["branch"]) == ("static", None, None)
    assert read["latestDeployment"] == {
        "status": "succeeded",
        "commitId": None,
        "createdAt": read["latestDeployment"]["createdAt"],
    }
    assert (read["totalDeployments"], read["successDeployments"], read["failedDeployments"]) == (1, 1, 0)


async def test_a_deployment_shows_who_asked_and_which_one_is_live(team: Team, run_jobs: RunJobs) -> None:
    for page in ("one", "two"):
        await live(team, run_jobs, page)

    newest, oldest = await team.deployments()

    assert (newest["enable"], oldest["enable"]) == (True, False)
    assert (newest["commitId"], newest["commitSha"], newest["branch"]) == (None, None, None)
    assert newest["actor"]["name"] == "Ada Moor"
    assert set(newest["actor"]) == {"userId", "name", "username"}
    status = await team.status(newest["deploymentUuid"])
    assert (status["status"], status["terminal"], status["projectName"]) == ("succeeded", True, "site")
    assert status["projectUrl"] == "http://site.localhost:8081"


async def test_a_rollback_publishes_an_earlier_release_as_a_new_deployment(
    team: Team, settings: Settings, run_jobs: RunJobs
) -> None:
    first = await live(team, run_jobs, "one")
    await live(team, run_jobs, "two")

    rolled = (await team.api.post("/v1/projects/site/rollback", json={"deploymentUuid": first})).data
    await run_jobs()

    assert set(rolled) == {"deploymentUuid"}
    assert rolled["deploymentUuid"] != first
    assert served(settings) == "one"
    assert [each["status"] for each in await team.deployments()] == ["succeeded"] * 3


async def test_a_rollback_needs_a_deployment_of_this_project_that_succeeded(
    team: Team, stranger: Team, run_jobs: RunJobs
) -> None:
    await live(team, run_jobs, "one")
    queued = (await team.upload(files={"index.html": "two"})).data["uploadId"]
    await team.upload("other")
    theirs = (await stranger.upload("foreign")).data["uploadId"]
    others = (await team.deployments("other"))[0]["deploymentUuid"]

    unknown = [(uuid, 404) for uuid in (others, theirs, new_uuid(), "nonsense", "", "x" * 200)]
    for uuid, status in [(queued, 409), *unknown]:
        reply = await team.api.post("/v1/projects/site/rollback", json={"deploymentUuid": uuid})
        assert reply.status == status
    assert (await team.api.post("/v1/projects/site/rollback", json={})).status == 400


async def test_a_newer_deployment_supersedes_one_that_waits(team: Team) -> None:
    first = (await team.create()).data["deploymentUuid"]

    second = (await team.api.post("/v1/projects/site/deploy", json={})).data["deploymentUuid"]

    status = await team.status(first)
    assert (status["status"], status["reason"]) == ("failed", SUPERSEDED)
    assert SUPERSEDED in (await team.log(first))[0]
    assert (await team.status(second))["status"] == "queued"
    assert (await team.read())["failedDeployments"] == 1


async def test_the_place_in_the_queue_is_told(team: Team, stranger: Team) -> None:
    first = (await team.create("one")).data["deploymentUuid"]
    second = (await stranger.create("two")).data["deploymentUuid"]

    assert (await team.status(first))["queuePosition"] == 1
    assert (await stranger.status(second))["queuePosition"] == 2


async def test_deploying_answers_202_and_takes_no_body_or_a_good_one(team: Team) -> None:
    await team.create()

    bare = await team.api.post("/v1/projects/site/deploy")
    whole = await team.api.post("/v1/projects/site/deploy", json={"operation": "rebuild", "commitSha": "a" * 40})
    again = await team.api.post("/v1/projects/site/redeploy")

    assert [bare.status, whole.status, again.status] == [202, 202, 202]
    assert set(bare.data) == {"deploymentId", "deploymentUuid", "projectId"}
    for bad in ({"operation": "explode"}, {"commitSha": "--upload-pack=x"}, {"commitSha": 7}):
        assert (await team.api.post("/v1/projects/site/deploy", json=bad)).status == 400


async def test_nothing_live_cannot_be_started_again(team: Team) -> None:
    await team.create()

    assert (await team.api.post("/v1/projects/site/deploy", json={"operation": "restart"})).status == 409


async def test_an_upload_takes_only_free_names_and_own_uploaded_projects(
    team: Team, stranger: Team, settings: Settings, run_jobs: RunJobs
) -> None:
    await team.create("built")
    await live(team, run_jobs, "one")

    assert (await team.upload("built")).status == 409
    assert (await stranger.upload("site")).status == 409
    assert (await team.upload("www")).status == 409
    assert (await team.upload("Not-A-Name")).error["fields"].keys() == {"name"}
    await live(team, run_jobs, "two")
    assert served(settings) == "two"
    assert (await team.read())["totalDeployments"] == 2


@pytest.mark.parametrize(
    "files",
    [
        {"../up.html": "x"},
        {"/abs.html": "x"},
        {"a.html": "x", "A.html": "y"},
        {"empty/": ""},
        {"index.html": "x", "eicar.txt": r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"},
        {"index.html": "x", "tool": b"\x7fELF\x02\x01\x01" + bytes(200)},
    ],
)
async def test_an_archive_that_is_no_site_is_refused_whole(
    team: Team, settings: Settings, files: dict[str, str | bytes]
) -> None:
    reply = await team.upload(files=files)

    assert reply.status == 400
    assert reply.error["fields"].keys() == {"staticFiles"}
    assert (await team.api.get("/v1/projects/site")).status == 404
    assert list(settings.folder("releases").glob(".new-*")) == []


async def test_an_upload_without_a_file_or_with_something_else_is_refused(team: Team) -> None:
    from tests.products.functions.support import form

    nothing = await team.api.post("/v1/projects/static-upload", **form(None, name="Not A Name"))
    missing = await team.api.post("/v1/projects/static-upload", **form(None, name="site"))
    no_zip = await team.api.post("/v1/projects/static-upload", **form(b"hello", sent_as="staticFiles", name="site"))

    assert nothing.error["fields"].keys() == {"name", "staticFiles"}
    assert missing.error["fields"].keys() == {"staticFiles"}
    assert no_zip.error["fields"].keys() == {"staticFiles"}


async def test_a_log_is_replayed_resumed_and_ends_with_done(team: Team, run_jobs: RunJobs) -> None:
    uuid = await live(team, run_jobs, "one")
    path = f"/v1/deployments/{uuid}/logs/stream"

    whole = (await team.api.get(path)).body.decode()
    rest = (await team.api.get(path, headers={"Last-Event-ID": "1"})).body.decode()
    by_query = await team.api.get(f"{path}?access_token={team.api.token}", token="")

    assert "event: log" in whole
    assert '"message":"Live at http://site.localhost:8081"' in whole
    assert whole.rstrip().endswith('event: done\ndata: {"status":"succeeded"}')
    assert "id: 1\n" in whole
    assert "id: 1\n" not in rest
    assert "id: 2\n" in rest
    assert by_query.status == 200


async def test_a_deployment_that_was_cut_off_is_finished_by_the_next_process(
    team: Team, db: Database, app: App, settings: Settings, run_jobs: RunJobs
) -> None:
    """Leave a row in state `running` without a lease, as kill -9 does."""
    uuid = (await team.upload()).data["uploadId"]
    its = await db.read(lambda tx: deployments.get_by_uuid(tx, team.org_id, uuid))
    await db.write(lambda tx: deployments.begin(tx, team.org_id, its))

    await run_jobs()

    assert (await team.status(uuid))["status"] == "succeeded"
    assert served(settings) == "<h1>one</h1>"
    assert any("starts over" in line for line in await team.log(uuid))


async def test_an_older_deployment_does_not_replace_a_newer_one(team: Team, db: Database, run_jobs: RunJobs) -> None:
    old = (await team.upload()).data["uploadId"]
    its = await db.read(lambda tx: deployments.get_by_uuid(tx, team.org_id, old))
    await db.write(lambda tx: deployments.begin(tx, team.org_id, its))
    new = (await team.upload(files={"index.html": "two"})).data["uploadId"]
    newer = await db.read(lambda tx: deployments.get_by_uuid(tx, team.org_id, new))
    await db.write(lambda tx: deployments.go_live(tx, team.org_id, newer))

    await run_jobs()

    assert (await team.status(old))["status"] == "failed"
    assert (await team.status(new))["status"] == "succeeded"


@pytest.mark.settings(releases_to_keep=2)
async def test_releases_that_are_too_old_are_let_go_but_never_the_live_one(
    team: Team, settings: Settings, run_jobs: RunJobs
) -> None:
    uuids = [await live(team, run_jobs, f"page {number}") for number in range(4)]

    gone = await team.api.post("/v1/projects/site/rollback", json={"deploymentUuid": uuids[0]})
    kept = await team.api.post("/v1/projects/site/rollback", json={"deploymentUuid": uuids[2]})

    folders = [path for path in settings.folder("releases").iterdir() if not path.name.startswith(".")]
    assert (gone.status, kept.status) == (409, 200)
    assert len(folders) == 2
    assert served(settings) == "page 3"


async def test_deleting_a_project_takes_its_site_down(team: Team, settings: Settings, run_jobs: RunJobs) -> None:
    await live(team, run_jobs, "one")

    await team.api.delete("/v1/projects/site")

    assert served(settings) is None
    assert [path for path in settings.folder("releases").iterdir() if not path.name.startswith(".")] == []


async def test_the_live_site_is_back_after_the_folders_were_lost(
    team: Team, db: Database, app: App, settings: Settings, run_jobs: RunJobs
) -> None:
    """As after a restore: artifacts and rows are there, releases and links are not."""
    await live(team, run_jobs, "one")
    shutil.rmtree(settings.folder("releases"))
    shutil.rmtree(settings.folder("sites"))

    routes = Routes(settings, Telemetry(quiet=True))
    releases = app.products.projects.pipeline.releases
    reconciler = GatewayReconciler(db, routes, releases, app.artifacts, Telemetry(quiet=True))
    await reconciler.sync_routes()

    assert served(settings) == "one"


async def test_a_log_is_followed_live_and_a_secret_never_shows(
    team: Team, db: Database, app: App, tmp_path: Path
) -> None:
    made = (await team.create(secrets=[{"name": "KEY", "value": "s3cr3t-value"}])).data
    working = asyncio.create_task(_work(db, app))

    lines: list[Any] = []
    reply = await team.api.get(f"/v1/deployments/{made['deploymentUuid']}/logs/stream")
    for line in reply.body.decode().splitlines():
        if line.startswith("data: "):
            lines.append(json.loads(line.removeprefix("data: ")))
    await working

    assert lines[-1] == {"status": "failed"}
    assert "acme/site" in json.dumps(lines)
    assert "s3cr3t-value" not in json.dumps(lines)


async def _work(db: Database, app: App) -> None:
    await Worker(db, app.handlers, Telemetry(quiet=True), slots=2).run_due(turns=5)


async def test_a_site_cannot_bring_the_platforms_own_folder(team: Team, settings: Settings, run_jobs: RunJobs) -> None:
    files: dict[str, str | bytes] = {"index.html": "mine", "about.html": "x", ".moorage/spa.html": "theirs"}

    made = (await team.upload(files=files)).data
    await run_jobs()

    release = sites.find(settings, "site.localhost")
    assert release is not None
    assert made["fileCount"] == 2
    assert not (release / ".moorage" / "spa.html").exists()


async def kill_workers(db: Database, app: App, clock: ManualClock, lane: Lane) -> int:
    """Kill workers repeatedly with their claimed jobs; return the number of ended runs."""
    lost = 0
    for _ in range(10):
        clock.advance(MINUTE_MS)
        lost += len(await Worker(db, app.handlers, Telemetry(quiet=True))._claim(lane, 10))
        clock.advance(LEASE_MS)
        await Worker(db, app.handlers, Telemetry(quiet=True))._release_expired()
    clock.advance(MINUTE_MS)
    return lost


async def test_a_publication_that_dies_with_the_platform_many_times_goes_live(
    team: Team, app: App, db: Database, clock: ManualClock, settings: Settings, run_jobs: RunJobs
) -> None:
    await team.upload()

    lost = await kill_workers(db, app, clock, Lane.INTERACTIVE)
    await run_jobs()

    assert lost >= 10
    assert served(settings) == "<h1>one</h1>"


async def test_a_build_that_dies_with_the_platform_many_times_is_built_and_judged_by_its_commit(
    team: Team, app: App, db: Database, clock: ManualClock, run_jobs: RunJobs
) -> None:
    made = (await team.create()).data

    lost = await kill_workers(db, app, clock, Lane.HEAVY)
    [before] = await team.deployments()
    await run_jobs()
    [after] = await team.deployments()
    log = "\n".join(await team.log(made["deploymentUuid"]))

    assert lost == 10
    assert before["status"] == "queued"
    assert (after["status"], OURS in log) == ("failed", False)
    assert "acme/site" in log


async def test_what_a_build_left_behind_is_cleared_up(app: App, settings: Settings) -> None:
    left = settings.folder("builds") / "7-abc" / "source"
    left.mkdir(parents=True)

    await app.products.projects.pipeline.clear_up()

    assert list(settings.folder("builds").iterdir()) == []


async def test_a_secret_that_cannot_be_decrypted_fails_the_deployment_before_anything_changes(
    team: Team, db: Database, run_jobs: RunJobs
) -> None:
    made = (await team.create(secrets=[{"name": "KEY", "value": "s3cr3t"}])).data
    spoil = Command(update(vault_secret).where(vault_secret.c.name == "KEY").values(ciphertext="v1.x.y.z"))
    await db.write(lambda tx: tx.run(spoil))

    await run_jobs()

    status = await team.status(made["deploymentUuid"])
    assert (status["status"], status["reason"]) == ("failed", UNDECRYPTABLE)
    assert not any("Fetching" in line for line in await team.log(made["deploymentUuid"]))


async def test_the_address_of_a_new_project_says_that_it_is_built_and_then_that_nothing_is_published(
    team: Team, db: Database, settings: Settings, run_jobs: RunJobs
) -> None:
    await team.create(secrets=[{"name": "KEY", "value": "s3cr3t"}])
    spoil = Command(update(vault_secret).where(vault_secret.c.name == "KEY").values(ciphertext="v1.x.y.z"))
    await db.write(lambda tx: tx.run(spoil))
    before = await team.hosts()

    await run_jobs()

    after = await team.hosts()
    assert (before.building, before.unpublished) == ({"site.localhost"}, set())
    assert (after.building, after.unpublished) == (set(), {"site.localhost"})
    assert os.listdir(settings.folder("unpublished")) == ["site.localhost"]
    assert os.listdir(settings.folder("building")) == []


async def test_a_published_project_stays_published_while_it_is_built_again(team: Team, run_jobs: RunJobs) -> None:
    await live(team, run_jobs, "one")
    await team.api.post("/v1/projects/site/deploy", json={})

    hosts = await team.hosts()

    assert (hosts.building, hosts.unpublished, list(hosts.sites)) == (set(), set(), ["site.localhost"])


async def test_the_reason_of_a_failure_is_one_line_without_control_characters(team: Team, db: Database) -> None:
    made = (await team.upload()).data

    def unit(tx: Tx) -> None:
        reason = "The scan refused a\x1b]0;title\x07b\x9bc\nd"
        deployments.fail_if_open(tx, team.org_id, made["deploymentId"], reason)

    await db.write(unit)

    assert (await team.status(made["uploadId"]))["reason"] == "The scan refused a ]0;title b c d"
    assert not {"\x1b", "\x07", "\x9b"} & set("".join(await team.log(made["uploadId"])))
