"""Projects over the API: made, read, listed, renamed, changed, switched off, deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.projects.support import Team, make_team

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, ManualClock

pytestmark = pytest.mark.anyio

DETAIL = {
    "publicImage",
    "id", "name", "slug", "branch", "repositoryName", "organizationId", "projectUrl", "enabled", "isPublic", "language",
    "runtime", "region", "baseDir", "buildDir", "buildCmd", "startCmd", "healthCheckPath", "dockerFilePath", "tier",
    "disk", "autoScaling", "enableAnalytics", "autoDeploy", "env", "totalDeployments", "successDeployments",
    "failedDeployments", "latestDeployment", "createdAt", "updatedAt", "prPreview", "entryPoint",
    "dockerBuildContextDir", "dockerBuildArgs", "dockerBuildTarget", "deployGuard",
}  # fmt: skip


async def test_a_static_project_has_the_defaults_and_its_first_deployment_waits(team: Team) -> None:
    made = (await team.create()).data
    read = await team.read()

    assert set(made) == {"projectId", "name", "deploymentId", "deploymentUuid"}
    assert set(read) == DETAIL
    assert (read["slug"], read["branch"], read["baseDir"]) == ("static", "main", "./")
    assert (read["buildDir"], read["buildCmd"]) == ("dist", "npm run build")
    assert (read["isPublic"], read["autoDeploy"], read["enableAnalytics"], read["enabled"]) == (
        True,
        False,
        False,
        True,
    )
    assert (read["env"], read["tier"], read["autoScaling"]) == ([], None, None)
    assert read["projectUrl"] == "http://site.localhost:8081"
    assert read["organizationId"] == str(team.org_id)
    assert read["latestDeployment"]["status"] == "queued"
    assert (read["totalDeployments"], read["successDeployments"], read["failedDeployments"]) == (1, 0, 0)
    assert (await team.status(made["deploymentUuid"]))["terminal"] is False


async def test_a_container_project_has_the_defaults(team: Team) -> None:
    made = await team.create("app", "container", tier={"key": "micro"}, autoScaling={"enabled": True})
    read = await team.read("app")

    assert made.status == 200
    assert (read["slug"], read["language"], read["region"]) == ("container", "nodejs", "us")
    assert (read["buildCmd"], read["startCmd"], read["healthCheckPath"]) == ("", "", "/")
    assert (read["dockerFilePath"], read["dockerBuildContextDir"], read["disk"]) == ("./Dockerfile", "./", 0)
    assert read["tier"] == {"key": "micro", "name": "Micro", "cpu": 0.5, "memory": 0.5, "disk": 5, "paid": True}
    assert read["autoScaling"] == {"enabled": True, "minReplicas": 1, "maxReplicas": 1, "targetCpuPercent": 80}


async def test_what_an_auto_project_is_stays_open_until_it_is_looked_at(team: Team) -> None:
    await team.create("guess", "auto")

    read = await team.read("guess")

    assert (read["slug"], read["buildCmd"], read["buildDir"], read["disk"]) == (None, None, None, None)


@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        ({}, {"slug"}),
        ({"slug": "site"}, {"slug"}),
        ({"slug": "static"}, {"name", "repositoryName"}),
        ({"slug": "container"}, {"name", "repositoryName", "language"}),
        ({"slug": "container", "name": "A", "language": "go"}, {"name", "repositoryName"}),
        ({"slug": "container", "name": "a", "repositoryName": "a/b"}, {"language"}),
        ({"slug": "container", "name": "a", "repositoryName": "a/b", "language": "cobol"}, {"language"}),
        ({"slug": "static", "name": "Not A Name", "repositoryName": "a/b"}, {"name"}),
        ({"slug": "static", "name": "a" * 64, "repositoryName": "a/b"}, {"name"}),
        ({"slug": "static", "name": "-a", "repositoryName": "a/b"}, {"name"}),
        ({"slug": "static", "name": "a", "repositoryName": "nothing"}, {"repositoryName"}),
        ({"slug": "static", "name": "a", "repositoryName": "../.."}, {"repositoryName"}),
        ({"slug": "static", "name": "a", "repositoryName": "--upload-pack=x/y"}, {"repositoryName"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b;id"}, {"repositoryName"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "branch": "--upload-pack=x"}, {"branch"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "branch": "a..b"}, {"branch"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "baseDir": "../up"}, {"baseDir"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "buildCmd": "x" * 2001}, {"buildCmd"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "buildDir": "x" * 501}, {"buildDir"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "isPublic": "yes"}, {"isPublic"}),
        ({"slug": "static", "name": "a", "repositoryName": "a/b", "env": [{"name": "A"}]}, {"env[0].value"}),
        (
            {"slug": "container", "name": "a", "repositoryName": "a/b", "language": "go", "disk": 101},
            {"disk"},
        ),
        (
            {
                "slug": "auto",
                "name": "a",
                "repositoryName": "a/b",
                "autoScaling": {"enabled": True, "minReplicas": 51, "maxReplicas": 101, "targetCpuPercent": 0},
            },
            {"autoScaling.minReplicas", "autoScaling.maxReplicas", "autoScaling.targetCpuPercent"},
        ),
        (
            {"slug": "container", "name": "a", "repositoryName": "a/b", "language": "go", "tier": {"key": "huge"}},
            {"tier.key"},
        ),
        (
            {"slug": "auto", "name": "A", "repositoryName": "a/b", "disk": 101, "tier": {"key": "huge"}},
            {"name", "disk", "tier.key"},
        ),
    ],
)
async def test_each_bad_field_is_named(team: Team, sent: dict[str, Any], fields: set[str]) -> None:
    reply = await team.api.post("/v1/projects", json=sent)

    assert reply.status == 400
    assert set(reply.error["fields"]) == fields


@pytest.mark.parametrize(
    "name", ["www", "api", "edge", "console", "admin", "git", "check-name", "static-upload", "org-1"]
)
async def test_reserved_names_are_not_to_be_had(team: Team, name: str) -> None:
    assert (await team.api.get(f"/v1/projects/check-name?name={name}")).data == {"name": name, "available": False}
    assert (await team.create(name)).status == 409


async def test_a_name_is_taken_on_the_whole_platform(team: Team, stranger: Team) -> None:
    await team.create("ours")

    assert (await stranger.create("ours")).status == 409
    assert (await stranger.api.get("/v1/projects/check-name?name=ours")).data["available"] is False
    assert (await stranger.api.get("/v1/projects/check-name?name=theirs")).data["available"] is True
    assert (await stranger.api.get("/v1/projects/check-name?name=No")).error["fields"].keys() == {"name"}


async def test_a_project_is_nobody_elses(team: Team, stranger: Team) -> None:
    made = (await team.create()).data

    assert (await stranger.api.get("/v1/projects/site")).status == 404
    assert (await stranger.api.get(f"/v1/deployments/{made['deploymentUuid']}/status")).status == 404
    assert (await stranger.api.delete("/v1/projects/site")).status == 404


async def test_the_list_is_paged_by_signed_cursors_and_filtered_by_kind(team: Team) -> None:
    for number in range(5):
        await team.create(f"s{number}")
    await team.create("app", "container")

    first = (await team.api.get("/v1/projects?limit=2&slug=static")).data
    second = (await team.api.get(f"/v1/projects?limit=3&slug=static&cursor={first['nextCursor']}")).data
    everything = (await team.api.get("/v1/projects")).data

    assert [item["name"] for item in first["items"]] == ["s4", "s3"]
    assert [item["name"] for item in second["items"]] == ["s2", "s1", "s0"]
    assert second["nextCursor"] is None
    assert len(everything["items"]) == 6
    assert set(everything["items"][0]) == {
        "id", "name", "slug", "branch", "repositoryName", "organizationId", "projectUrl", "enabled", "latestDeployment",
        "updatedAt",
    }  # fmt: skip
    for query in (f"cursor={first['nextCursor']}", "cursor=x", "limit=0", "limit=101", "slug=auto"):
        assert (await team.api.get(f"/v1/projects?{query}")).status == 400


async def test_a_renamed_project_leaves_a_sign_at_its_old_address_for_a_day(team: Team, clock: ManualClock) -> None:
    await team.create("old")

    renamed = (await team.api.patch("/v1/projects/old/name", json={"name": "new"})).data

    assert (renamed["name"], renamed["projectUrl"]) == ("new", "http://new.localhost:8081")
    assert (await team.api.get("/v1/projects/old")).status == 404
    assert (await team.hosts()).moved == {"old.localhost": "new.localhost"}
    clock.advance(25 * HOUR_MS)
    assert (await team.hosts()).moved == {}


async def test_an_old_address_is_of_another_project_when_its_organization_takes_the_name(team: Team) -> None:
    await team.create("old")
    await team.api.patch("/v1/projects/old/name", json={"name": "new"})

    await team.create("old")

    assert (await team.hosts()).moved == {}


async def test_a_rename_is_refused_where_the_name_is_bad_taken_or_reserved(team: Team) -> None:
    await team.create("one")
    await team.create("two")

    for name, status in (("two", 409), ("www", 409), ("No", 400), ("", 400)):
        assert (await team.api.patch("/v1/projects/one/name", json={"name": name})).status == status
    assert (await team.api.patch("/v1/projects/one/name", json={"name": "one"})).status == 200


async def test_the_audit_log_follows_a_project_through_its_names(team: Team) -> None:
    await team.create("old")
    await team.api.patch("/v1/projects/old/name", json={"name": "new"})
    await team.api.post("/v1/projects/new/toggle", json={"enable": False})

    entries = (await team.api.get("/v1/projects/new/audit-log")).data["items"]

    assert [entry["action"] for entry in entries] == ["project.disabled", "project.renamed", "project.created"]
    assert entries[0]["actor"]["address"] == "127.0.0.1"


async def test_the_audit_log_has_all_entries_where_another_project_took_a_former_name(
    team: Team, clock: ManualClock
) -> None:
    await team.create("old")
    await team.api.patch("/v1/projects/old/name", json={"name": "new"})
    clock.advance(HOUR_MS)
    await team.api.patch("/v1/projects/new/name", json={"name": "newest"})
    clock.advance(HOUR_MS)
    await team.create("new")
    for enable in (False, True):
        await team.api.post("/v1/projects/new/toggle", json={"enable": enable})

    pages, query = [], "?limit=2"
    while query:
        page = (await team.api.get(f"/v1/projects/newest/audit-log{query}")).data
        pages.append([(entry["action"], entry["details"].get("before")) for entry in page["items"]])
        query = f"?limit=2&cursor={page['nextCursor']}" if page["nextCursor"] else ""

    assert pages == [[("project.renamed", "new"), ("project.renamed", "old")], [("project.created", None)]]


async def test_the_audit_log_has_each_entry_once_where_a_project_got_its_name_back_at_once(team: Team) -> None:
    await team.create("old")
    for name, new_name in (("old", "new"), ("new", "old")):
        await team.api.patch(f"/v1/projects/{name}/name", json={"name": new_name})

    assert await team.actions("old") == ["project.renamed", "project.renamed", "project.created"]


async def test_settings_are_changed_one_by_one(team: Team) -> None:
    await team.create()

    changed = (
        await team.api.patch(
            "/v1/projects/site",
            json={"buildCmd": "make", "autoDeploy": True, "env": [{"name": "A", "value": "1"}], "disk": 1000},
        )
    ).data

    assert (changed["buildCmd"], changed["autoDeploy"], changed["disk"]) == ("make", True, 1000)
    assert changed["env"] == [{"name": "A", "value": "1"}]
    assert changed["buildDir"] == "dist"
    assert "triggeredDeploymentUuid" not in changed
    for bad in ({"disk": 1001}, {"buildCmd": None}, {"baseDir": "a/../.."}, {"tier": {"key": "x"}}):
        assert (await team.api.patch("/v1/projects/site", json=bad)).status == 400


async def test_a_range_of_replicas_without_its_end_is_one_number(team: Team) -> None:
    await team.create("app", "container", autoScaling={"enabled": True, "minReplicas": 3})

    assert (await team.read("app"))["autoScaling"] == {
        "enabled": True, "minReplicas": 3, "maxReplicas": 3, "targetCpuPercent": 80,
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"env": [{"name": "A", "value": "1"}]},
        {"secrets": [{"name": "S", "value": "1"}]},
        {"tier": {"key": "small"}},
        {"disk": 5},
        {"autoScaling": {"enabled": True, "maxReplicas": 3}},
    ],
)
async def test_a_container_app_is_deployed_again_when_what_it_runs_with_changes(
    team: Team, change: dict[str, Any]
) -> None:
    await team.create("app", "container")

    changed = (await team.api.patch("/v1/projects/app", json=change)).data
    again = (await team.api.patch("/v1/projects/app", json={"startCmd": "node ."})).data

    assert (await team.deployments("app"))[0]["deploymentUuid"] == changed["triggeredDeploymentUuid"]
    assert "triggeredDeploymentUuid" not in again


async def test_the_tier_that_an_app_has_by_default_is_shown_and_no_change(team: Team) -> None:
    await team.create("app", "container")

    shown = (await team.read("app"))["tier"]
    same = (await team.api.patch("/v1/projects/app", json={"tier": {"key": shown["key"]}})).data

    assert (shown["key"], shown["cpu"], shown["memory"]) == ("mini", 1, 1)
    assert same["tier"] == shown
    assert "triggeredDeploymentUuid" not in same


async def test_secrets_are_a_complete_set_and_never_read_back(team: Team) -> None:
    await team.create(secrets=[{"name": "KEEP", "value": "kept"}, {"name": "DROP", "value": "dropped"}])

    body = {"secrets": [{"name": "KEEP"}, {"name": "NEW", "value": "fresh"}]}
    changed = await team.api.patch("/v1/projects/site", json=body)
    names = (await team.api.get("/v1/projects/site/secrets")).data

    assert names == [{"name": "KEEP"}, {"name": "NEW"}]
    assert b"kept" not in changed.body
    assert (await team.api.post("/v1/projects/site/secrets/reveal", json={"name": "KEEP"})).data == {
        "name": "KEEP",
        "value": "kept",
    }


async def test_a_new_secret_needs_a_value(team: Team) -> None:
    await team.create()

    reply = await team.api.patch("/v1/projects/site", json={"secrets": [{"name": "A", "value": "1"}, {"name": "B"}]})

    assert reply.error["fields"].keys() == {"secrets[1].value"}
    assert (await team.api.get("/v1/projects/site/secrets")).data == []


async def test_who_reveals_a_secret_is_written_down(team: Team) -> None:
    await team.create(secrets=[{"name": "TOKEN", "value": "hunter22"}])

    shown = await team.api.post("/v1/projects/site/secrets/reveal", json={"name": "TOKEN"})
    missing = await team.api.post("/v1/projects/site/secrets/reveal", json={"name": "OTHER"})
    entry = (await team.api.get("/v1/projects/site/audit-log")).data["items"][0]

    assert shown.headers["cache-control"] == "no-store"
    assert missing.status == 404
    assert (entry["action"], entry["details"]) == ("project.secret_revealed", {"secret": "TOKEN"})


async def test_a_disabled_project_says_so_at_its_address_and_is_not_deployed(team: Team) -> None:
    await team.create()

    off = (await team.api.post("/v1/projects/site/toggle", json={"enable": False})).data

    assert off["enabled"] is False
    assert (await team.hosts()).disabled == {"site.localhost"}
    assert (await team.api.post("/v1/projects/site/deploy", json={})).status == 409
    assert (await team.api.post("/v1/projects/site/toggle", json={"enable": True})).data["enabled"] is True
    assert (await team.hosts()).disabled == set()
    assert (await team.api.post("/v1/projects/site/toggle", json={"enable": "yes"})).status == 400


async def test_what_is_deleted_is_gone(team: Team) -> None:
    await team.create(secrets=[{"name": "A", "value": "1"}])
    await team.create("app", "container")

    static = (await team.api.delete("/v1/projects/site")).data
    container = (await team.api.delete("/v1/projects/app")).data

    assert static == {"deleted": True, "slug": "static", "async": False}
    assert container == {"deleted": True, "slug": "container", "async": True}
    assert (await team.api.get("/v1/projects/site")).status == 404
    assert (await team.create()).status == 200
    assert (await team.api.get("/v1/projects/site/secrets")).data == []


async def test_a_member_makes_projects_and_only_an_admin_deletes_them(app: App, db: Database) -> None:
    member = await make_team(app, db, role=Role.MEMBER)
    viewer = await make_team(app, db, role=Role.VIEWER)

    assert (await member.create("mine")).status == 200
    assert (await member.api.delete("/v1/projects/mine")).status == 403
    assert (await viewer.create("theirs")).status == 403
    assert (await viewer.api.get("/v1/projects")).status == 200


@pytest.mark.settings(billing="manual")
async def test_a_free_plan_has_three_projects_and_no_paid_tier(app: App, db: Database) -> None:
    free = await make_team(app, db, plan=Plan.FREE)

    paid = await free.create("app", "container", tier={"key": "micro"})
    made = [(await free.create(f"s{number}")).status for number in range(4)]

    assert paid.status == 402
    assert made == [200, 200, 200, 402]
