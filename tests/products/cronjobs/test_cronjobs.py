"""Cronjobs through the API: inputs, outputs and permissions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client import Reply
from tests.conftest import RunJobs
from tests.products.cronjobs.support import IMAGE, Team, make_team

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.kit.clock import MINUTE_MS, ManualClock, to_wire
from moorage.core.vault import service as vault
from moorage.products.cronjobs import service
from moorage.products.cronjobs.states import BUILD, CRONJOB, EXECUTION

pytestmark = pytest.mark.anyio


def fields_of(reply: Reply) -> dict[str, str]:
    assert (reply.status, reply.error["code"]) == (400, "bad_request"), reply.body
    return dict(reply.error["fields"])


async def test_a_cronjob_that_is_built_has_these_defaults(team: Team, clock: ManualClock) -> None:
    made = (await team.create()).data

    read = await team.read()
    build = (await team.get(f"/nightly/builds/{made['deploymentUuid']}/logs")).data
    assert (made["name"], made["status"]) == ("nightly", "deploying")
    assert build == {
        "deploymentUuid": made["deploymentUuid"], "status": "queued", "commitSha": None, "logs": "", "lines": [],
    }  # fmt: skip
    assert read == {
        "id": made["id"],
        "name": "nightly",
        "repositoryName": "acme/jobs",
        "branch": "main",
        "organizationId": str(team.org_id),
        "isPublic": True,
        "autoDeploy": False,
        "baseDir": "./",
        "language": "nodejs",
        "buildCmd": "",
        "startCmd": "",
        "command": "",
        "region": "us",
        "cronSchedule": "*/5 * * * *",
        "instanceType": "micro",
        "imageSource": "codehost",
        "publicImage": None,
        "dockerBuildContextDir": "./",
        "dockerfilePath": "./Dockerfile",
        "dockerBuildArgs": None,
        "dockerBuildTarget": None,
        "status": "deploying",
        "isActive": True,
        "env": [],
        "runStats": {
            "totalRuns": 0,
            "successfulRuns": 0,
            "failedRuns": 0,
            "skippedRuns": 0,
            "lastRunAt": None,
            "nextRunAt": to_wire(clock.now() + 5 * MINUTE_MS),
        },
        "createdAt": to_wire(clock.now()),
        "updatedAt": to_wire(clock.now()),
    }


async def test_a_cronjob_of_an_image_is_ready_at_once(team: Team) -> None:
    made = (await team.create(**IMAGE, command="echo 'two words'", cronSchedule="@hourly")).data

    read = await team.read()
    assert (made["status"], made["deploymentUuid"]) == ("running", None)
    assert (read["imageSource"], read["publicImage"]) == ("public_image", "127.0.0.1:9/acme/job:1")
    assert (read["command"], read["cronSchedule"]) == ("echo 'two words'", "@hourly")
    assert read["repositoryName"] is None


async def test_a_cronjob_of_an_image_has_the_defaults_of_one_that_is_built(team: Team) -> None:
    await team.create("built")
    await team.create("pulled", **IMAGE)

    built, pulled = await team.read("built"), await team.read("pulled")
    own = {"id", "name", "imageSource", "publicImage", "repositoryName", "status"}
    assert {key for key in built if built[key] != pulled[key]} == own
    assert (pulled["branch"], pulled["language"], pulled["dockerfilePath"]) == ("main", "nodejs", "./Dockerfile")


async def test_settings_of_a_build_are_stored_and_changed_for_an_image_too(team: Team) -> None:
    given: dict[str, Any] = {
        "branch": "release", "isPublic": False, "language": "python", "baseDir": "jobs", "buildCmd": "make",
        "startCmd": "python job.py", "dockerfilePath": "Dockerfile.job", "dockerBuildContextDir": "jobs",
        "dockerBuildArgs": {"A": "1"}, "dockerBuildTarget": "run", "autoDeploy": True,
    }  # fmt: skip
    changes: dict[str, Any] = {
        "branch": "next", "language": "go", "baseDir": "./", "buildCmd": "", "startCmd": "./job",
        "dockerfilePath": "./Dockerfile", "dockerBuildContextDir": "./", "dockerBuildArgs": {"B": "2"},
        "dockerBuildTarget": "other", "autoDeploy": False,
    }  # fmt: skip

    await team.create(**IMAGE, **given)
    created = await team.read()
    changed = await team.patch(**changes)

    read = await team.read()
    assert {name: created[name] for name in given} == given
    assert (changed.data["status"], changed.data["deploymentUuid"]) == ("running", None)
    assert {name: read[name] for name in changes} == changes


async def test_the_source_that_a_cronjob_does_not_have_is_ignored(team: Team) -> None:
    await team.create("pulled", **{**IMAGE, "repositoryName": "acme/jobs"})
    await team.create("built", imageSource="codehost", publicImage="alpine")
    await team.create("usual", publicImage="alpine")

    pulled, built, usual = await team.read("pulled"), await team.read("built"), await team.read("usual")
    assert (pulled["publicImage"], pulled["repositoryName"]) == (IMAGE["publicImage"], None)
    assert (built["publicImage"], built["repositoryName"]) == (None, "acme/jobs")
    assert (usual["imageSource"], usual["publicImage"], usual["repositoryName"]) == ("codehost", None, "acme/jobs")


async def test_everything_that_is_given_is_kept_and_secrets_are_not_shown(team: Team, db: Database) -> None:
    given: dict[str, Any] = {
        "branch": "release", "isPublic": False, "language": "python", "baseDir": "jobs", "buildCmd": "make",
        "startCmd": "python job.py", "command": "python other.py", "dockerfilePath": "Dockerfile.job",
        "dockerBuildContextDir": "jobs", "autoDeploy": True, "region": "eu", "instanceType": "xlarge",
        "env": [{"name": "A", "value": "1"}],
    }  # fmt: skip
    hidden = [{"name": "TOKEN", "value": "hush-hush"}]

    await team.create(**given, secrets=hidden, imageSource="github")

    reply = await team.get("/nightly")
    assert {name: reply.data[name] for name in given} == given
    assert reply.data["imageSource"] == "codehost"
    assert b"hush-hush" not in reply.body
    found = await team.row()
    assert await db.read(lambda tx: vault.values(tx, team.org_id, found.resource)) == {"TOKEN": "hush-hush"}


@pytest.mark.parametrize("bad", ["* * * * * *", "*/61 * * * *", "0 0 31 2 *", "R", "", "*" * 121, "@reboot"])
async def test_a_schedule_that_is_none_is_refused(team: Team, bad: str) -> None:
    await team.create("there")

    assert "cronSchedule" in fields_of(await team.create(cronSchedule=bad))
    assert "cronSchedule" in fields_of(await team.patch("there", cronSchedule=bad))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"repositoryName": None}, "repositoryName"),
        ({"publicImage": "alpine", "repositoryName": None}, "repositoryName"),
        ({"imageSource": "public_image", "repositoryName": None}, "publicImage"),
        ({**IMAGE, "publicImage": "UPPER/case"}, "publicImage"),
        ({**IMAGE, "publicImage": "https://x.example/a"}, "publicImage"),
        ({**IMAGE, "publicImage": ""}, "publicImage"),
        ({"imageSource": "docker"}, "imageSource"),
        ({"instanceType": "free"}, "instanceType"),
        ({"instanceType": "small"}, "instanceType"),
        ({"language": "cobol"}, "language"),
        ({"repositoryName": "no-owner"}, "repositoryName"),
        ({"branch": "-x"}, "branch"),
        ({"region": ""}, "region"),
        ({"env": [{"name": "A=B", "value": ""}]}, "env[0].name"),
        ({"cronSchedule": None}, "cronSchedule"),
    ],
)
async def test_what_is_wrong_is_named(team: Team, given: dict[str, Any], field: str) -> None:
    assert field in fields_of(await team.create(**given))


@pytest.mark.parametrize(("source", "needed"), [("codehost", "repositoryName"), ("public_image", "publicImage")])
async def test_all_that_is_missing_is_named_at_once(team: Team, source: str, needed: str) -> None:
    reply = await team.post("", json={"imageSource": source})

    assert set(fields_of(reply)) == {"name", "cronSchedule", needed}


@pytest.mark.parametrize("name", ["", "x" * 53, "Upper", "-a", "a-", "a.b", "a b"])
async def test_a_name_that_is_none_is_refused(team: Team, name: str) -> None:
    assert "name" in fields_of(await team.create(name))


async def test_the_longest_and_the_shortest_name_are_taken(team: Team) -> None:
    assert (await team.create("x" * 52)).status == 200
    assert (await team.create("x")).status == 200


async def test_a_name_is_taken_once_in_an_organization(team: Team, stranger: Team) -> None:
    await team.create()

    again, elsewhere = await team.create(), await stranger.create()

    assert (again.status, again.error["code"]) == (409, "conflict")
    assert elsewhere.status == 200


@pytest.mark.both_stores
async def test_cronjobs_are_listed_newest_first(team: Team) -> None:
    for name in ("one", "two", "three"):
        await team.create(name)

    page = (await team.get("?page=1&pageSize=2")).data
    rest = (await team.get("?page=2&pageSize=2")).data
    far = (await team.get("?page=999999999999&pageSize=100")).data

    assert ([item["name"] for item in page["items"]], page["total"]) == (["three", "two"], 3)
    assert ([item["name"] for item in rest["items"]], far) == (["one"], {"items": [], "total": 3})
    assert set(page["items"][0]) == {
        "id", "name", "cronSchedule", "region", "instanceType", "language", "imageSource", "status", "isActive",
        "runStats", "createdAt", "updatedAt",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nightly"), ("PATCH", "/nightly"), ("DELETE", "/nightly"), ("POST", "/nightly/pause"),
        ("POST", "/nightly/resume"), ("POST", "/nightly/trigger"), ("GET", "/nightly/executions"),
        ("GET", "/nightly/builds/6f1c8f7e-1111-4111-8111-111111111111/logs"),
        ("GET", "/executions/6f1c8f7e-1111-4111-8111-111111111111/logs"),
        ("GET", "/executions/6f1c8f7e-1111-4111-8111-111111111111/logs/stream"),
    ],
)  # fmt: skip
async def test_what_is_not_there_or_anothers_is_not_found(team: Team, stranger: Team, method: str, path: str) -> None:
    await stranger.create()

    reply = await team.api.request(
        method, f"/v1/cronjobs{path}", token=team.tokens[Role.OWNER], json={} if method == "PATCH" else None
    )

    assert (reply.status, reply.error["code"]) == (404, "not_found")


@pytest.mark.settings(billing="manual")
async def test_on_an_unpaid_plan_there_are_no_cronjobs_at_all(app: App, db: Database) -> None:
    team = await make_team(app, db, plan=Plan.FREE)

    paths = ("", "/nightly", "/nightly/executions", "/executions/6f1c8f7e-1111-4111-8111-111111111111/logs")
    replies = [await team.get(path) for path in paths]
    replies += [await team.create(), await team.patch(), await team.delete()]
    replies += [await team.post(f"/nightly/{verb}") for verb in ("pause", "resume", "trigger")]

    assert {reply.status for reply in replies} == {402}


async def test_viewers_read_and_members_change(team: Team) -> None:
    refused = await team.create(role=Role.VIEWER)
    made = await team.create(role=Role.MEMBER)
    await team.set_built()

    reads = [await team.get(path, Role.VIEWER) for path in ("", "/nightly", "/nightly/executions")]
    verbs = [await team.post(f"/nightly/{verb}", Role.VIEWER) for verb in ("pause", "resume", "trigger")]
    others = [await team.patch(role=Role.VIEWER, command="x"), await team.delete(role=Role.VIEWER)]
    allowed = [await team.post(f"/nightly/{verb}", Role.MEMBER) for verb in ("pause", "resume", "trigger")]

    assert {refused.status, *(reply.status for reply in (*verbs, *others))} == {403}
    assert {made.status, *(reply.status for reply in (*reads, *allowed))} == {200}
    assert (await team.delete(role=Role.MEMBER)).status == 200


async def test_a_change_of_what_it_is_built_from_builds_it_anew(team: Team) -> None:
    await team.create()
    await team.set_built()

    same = (await team.patch(branch="main", startCmd="")).data
    changed = (await team.patch(branch="release")).data
    again = (await team.patch(startCmd="python job.py")).data

    assert (same["status"], same["deploymentUuid"]) == ("running", None)
    assert (changed["status"], again["status"]) == ("updating", "updating")
    assert changed["deploymentUuid"] != again["deploymentUuid"]
    superseded = (await team.get(f"/nightly/builds/{changed['deploymentUuid']}/logs")).data
    assert superseded["status"] == "failed"


async def test_a_change_of_anything_else_does_not(team: Team) -> None:
    await team.create()
    await team.set_built()

    made = (
        await team.patch(command="true", instanceType="mini", autoDeploy=True, env=[{"name": "A", "value": "2"}])
    ).data

    read = await team.read()
    assert (made["status"], made["deploymentUuid"]) == ("running", None)
    assert (read["command"], read["instanceType"], read["autoDeploy"]) == ("true", "mini", True)
    assert read["env"] == [{"name": "A", "value": "2"}]


async def test_secrets_sent_are_the_whole_new_set_and_a_bare_name_keeps_its_value(team: Team, db: Database) -> None:
    await team.create(secrets=[{"name": "TOKEN", "value": "old"}, {"name": "EXTRA", "value": "x"}])

    await team.patch(secrets=[{"name": "TOKEN"}, {"name": "NEW", "value": "n"}])
    unknown = await team.patch(secrets=[{"name": "OTHER"}])

    found = await team.row()
    assert await db.read(lambda tx: vault.values(tx, team.org_id, found.resource)) == {"TOKEN": "old", "NEW": "n"}
    assert "secrets[0].value" in fields_of(unknown)


async def test_an_image_is_for_cronjobs_that_run_one(team: Team) -> None:
    await team.create("built")
    await team.create("pulled", **IMAGE)

    refused = await team.patch("built", publicImage="alpine")
    taken = await team.patch("pulled", publicImage="alpine:3.20", branch="other")

    assert "publicImage" in fields_of(refused)
    assert (taken.data["status"], taken.data["deploymentUuid"]) == ("running", None)
    read = await team.read("pulled")
    assert (read["publicImage"], read["branch"]) == ("alpine:3.20", "other")


async def test_a_changed_schedule_counts_from_now(team: Team, clock: ManualClock) -> None:
    await team.create()
    clock.advance(2 * MINUTE_MS)

    await team.patch(cronSchedule="0 * * * *")

    assert (await team.read())["runStats"]["nextRunAt"] == to_wire(clock.now() + 58 * MINUTE_MS)


async def test_a_paused_cronjob_has_no_next_run_and_resuming_counts_from_now(team: Team, clock: ManualClock) -> None:
    await team.create()
    await team.set_built()

    paused = (await team.post("/nightly/pause")).data
    while_paused = await team.read()
    clock.advance(7 * MINUTE_MS)
    resumed = (await team.post("/nightly/resume")).data
    again = (await team.post("/nightly/resume")).data

    assert (paused["status"], while_paused["isActive"], while_paused["runStats"]["nextRunAt"]) == (
        "paused",
        False,
        None,
    )
    assert (resumed["status"], again["status"]) == ("running", "running")
    assert (await team.read())["runStats"]["nextRunAt"] == to_wire(clock.now() + 3 * MINUTE_MS)


async def test_a_pause_while_it_is_built_holds_when_that_ends(team: Team) -> None:
    await team.create()

    while_built = (await team.post("/nightly/pause")).data["status"]
    await team.set_built()

    read = await team.read()
    assert (while_built, read["status"], read["isActive"]) == ("deploying", "paused", False)
    assert (await team.post("/nightly/resume")).data["status"] == "running"


async def test_a_cronjob_whose_build_failed_stays_so_over_a_pause(team: Team) -> None:
    await team.create()
    await team.fail_build()

    paused = (await team.post("/nightly/pause")).data["status"]
    resumed = (await team.post("/nightly/resume")).data["status"]
    await team.post("/nightly/pause")
    rebuilt = (await team.patch(branch="other")).data["status"]

    assert (paused, resumed, rebuilt) == ("paused", "failed", "updating")


async def test_a_run_is_triggered_also_while_paused_and_leaves_the_next_one_where_it_is(
    team: Team, clock: ManualClock
) -> None:
    await team.create()
    early = await team.post("/nightly/trigger")
    await team.set_built()
    before = (await team.read())["runStats"]["nextRunAt"]

    first = (await team.post("/nightly/trigger")).data
    await team.post("/nightly/pause")
    second = (await team.post("/nightly/trigger")).data

    assert (early.status, early.error["code"]) == (409, "conflict")
    assert (first["status"], second["status"]) == ("queued", "queued")
    await team.post("/nightly/resume")
    assert (await team.read())["runStats"]["nextRunAt"] == before
    newest = (await team.executions())[0]
    assert newest == {
        "id": newest["id"],
        "cronjobId": (await team.row()).id,
        "executionUuid": second["executionUuid"],
        "status": "queued",
        "scheduledFor": None,
        "startedAt": None,
        "completedAt": None,
        "exitCode": None,
        "errorMessage": None,
        "createdAt": to_wire(clock.now()),
        "updatedAt": to_wire(clock.now()),
    }


@pytest.mark.both_stores
async def test_runs_are_listed_in_pages_and_counted_by_their_end(team: Team, clock: ManualClock) -> None:
    await team.create(**IMAGE)
    for error in (None, "it ended with exit code 1", None):
        await team.trigger()
        clock.advance(1)
        await team.finish((await team.rows())[-1], error)

    page = (await team.get("/nightly/executions?page=1&pageSize=2")).data
    far = (await team.get("/nightly/executions?page=999999999999&pageSize=100")).data

    stats = (await team.read())["runStats"]
    assert ([item["status"] for item in page["items"]], page["total"]) == (["succeeded", "failed"], 3)
    assert far == {"items": [], "total": 3}
    assert page["items"][1]["errorMessage"] == "it ended with exit code 1"
    assert (stats["totalRuns"], stats["successfulRuns"], stats["failedRuns"]) == (3, 2, 1)
    assert stats["lastRunAt"] == to_wire(clock.now())


async def test_a_run_that_fails_before_its_start_is_the_last_run_too(
    team: Team, db: Database, clock: ManualClock
) -> None:
    await team.create(**IMAGE)
    await team.trigger()
    (row,) = await team.rows()
    clock.advance(1000)

    await db.write(
        lambda tx: service.finish(tx, team.org_id, row, exit_code=None, error="no image", ended_at=clock.now())
    )

    stats = (await team.read())["runStats"]
    assert (stats["totalRuns"], stats["failedRuns"], stats["lastRunAt"]) == (1, 1, to_wire(clock.now()))


async def test_the_log_of_a_run_that_has_not_begun_is_empty(team: Team) -> None:
    await team.create(**IMAGE)
    uuid = await team.trigger()

    assert (await team.get(f"/executions/{uuid}/logs")).data == {"logs": "", "lines": []}


async def test_a_deleted_cronjob_takes_no_more_changes(team: Team) -> None:
    await team.create(**IMAGE)

    gone = await team.delete()
    again = await team.delete()

    assert (gone.status, again.status) == (200, 200)
    assert gone.json == {"success": True}
    assert (await team.read())["status"] == "deleting"
    for verb in ("pause", "resume", "trigger"):
        assert (await team.post(f"/nightly/{verb}")).status == 409


async def test_what_is_done_with_cronjobs_is_in_the_activity_feed(team: Team) -> None:
    await team.create(**IMAGE)
    await team.patch(command="x")
    for verb in ("pause", "resume", "trigger"):
        await team.post(f"/nightly/{verb}")
    await team.delete()

    wanted = ["created", "updated", "paused", "resumed", "triggered", "deleted"]
    found = [action.removeprefix("cronjob.") for action in await team.actions() if action.startswith("cronjob.")]
    assert found[::-1] == wanted


async def test_an_organization_that_is_deleted_takes_its_cronjobs_along(
    team: Team, db: Database, run_jobs: RunJobs
) -> None:
    await team.create(**IMAGE)

    await db.write(lambda tx: jobs.add(tx, OrganizationDeleted(team.org_id)))
    await run_jobs()

    assert (await team.row()).status == "deleting"


@pytest.mark.parametrize("machine", [CRONJOB, BUILD, EXECUTION], ids=lambda machine: machine.name)
def test_every_state_can_be_left_or_is_an_end(machine: Any) -> None:
    assert machine.terminal
    assert all(state in machine.terminal or machine.moves[state] for state in machine.states)
