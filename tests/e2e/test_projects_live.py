"""From a push or an archive to a live site, and what its owner does with it then, all through the public gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import Sites, new_name, page
from tests.products.repositories.support import Checkout
from tests.runtime.builds.build_support import write_files

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.group("projects")

# A front end as they are: a package with a build script, and something that it depends on.
NODE = {
    "package.json": {
        "name": "front-end",
        "version": "1.0.0",
        "scripts": {"build": "node build.js"},
        "dependencies": {"greeting": "file:./greeting"},
    },
    "build.js": (
        "const fs = require('fs');\nconst greet = require('greeting');\n"
        "fs.mkdirSync('dist');\nfs.writeFileSync('dist/index.html', `<h1>${greet('harbor')}</h1>`);\n"
        "console.log('built with', process.version);\n"
    ),
    "greeting/package.json": {"name": "greeting", "version": "1.0.0", "main": "index.js"},
    "greeting/index.js": "module.exports = (whom) => `ahoy ${whom}`;\n",
}


def scratch(sites: Sites) -> list[Path]:
    """Return the folders in which something is being built."""
    return list((sites.running.data / "builds").iterdir())


def make_tracked(sites: Sites, name: str, **fields: Any) -> None:
    """Make a project whose repository is pushed later, and deployed then."""
    first = sites.ended(sites.create_project(name, f"acme/{name}", autoDeploy=True, **fields))
    assert first["status"] == "failed"
    assert first["reason"].startswith(f"acme/{name} does not exist")


def test_a_push_shows_the_deployment_and_ends_with_the_address_at_which_it_is_live(
    sites: Sites, work: Checkout
) -> None:
    name = new_name("pushed")
    sites.push(work, f"acme/{name}")
    sites.ended(sites.create_project(name, f"acme/{name}", autoDeploy=True))
    before = sites.text(name)
    sha = work.commit("the second", index_html=page("two"), about_html=page("about"))

    said = sites.push(work, f"acme/{name}")

    assert before == page("one")
    assert said[0] == f"Deploying {name} ({sha[:12]})"
    assert f"Checked out {sha[:12]} the second" in said
    assert said[-1] == f"http://{name}.localhost:{sites.running.ports['gateway']}"
    assert (sites.text(name), sites.text(name, "/about")) == (page("two"), page("about"))
    newest = sites.deployments(name)[0]
    assert (newest["status"], newest["commitSha"], newest["enable"]) == ("succeeded", sha, True)


def test_a_push_alone_is_enough_until_a_project_is_created_for_the_repository(sites: Sites, work: Checkout) -> None:
    name = new_name("alone")

    said = sites.push(work, f"acme/{name}")
    alone = sites.text(name)
    body = {"slug": "static", "name": f"{name}-own", "repositoryName": f"acme/{name}"}
    created = sites.call("POST", "/v1/projects?wait=60", body)
    own = sites.text(f"{name}-own")

    assert said[0].startswith(f"Created the project {name}, because none used acme/{name}: http://{name}.localhost:")
    assert said[-1] == f"http://{name}.localhost:{sites.running.ports['gateway']}"
    assert created["status"] == "succeeded"
    assert (alone, own) == (page("one"), page("one"))
    wait_until(lambda: sites.visit(name).status == 404)


def test_a_push_to_a_branch_that_nobody_tracks_changes_nothing(sites: Sites, work: Checkout) -> None:
    name = new_name("branches")
    make_tracked(sites, name)
    sites.push(work, f"acme/{name}")
    work.git("checkout", "--quiet", "-b", "feature/one")
    work.commit("elsewhere", index_html=page("elsewhere"))

    said = sites.push(work, f"acme/{name}", "feature/one")

    assert said == []
    assert sites.text(name) == page("one")
    assert len(sites.deployments(name)) == 2


def test_a_node_project_is_recognized_installed_built_and_live(sites: Sites, tmp_path: Path) -> None:
    name = new_name("node")
    work = Checkout.init(tmp_path / "node")
    write_files(work.folder, NODE)
    work.commit()
    make_tracked(sites, name, slug="auto")
    before = sites.call("GET", f"/v1/projects/{name}")["slug"]

    said = sites.push(work, f"acme/{name}")

    assert any(line.startswith("built with v") for line in said)
    assert said[-1].startswith(f"http://{name}.localhost:")
    assert (before, sites.call("GET", f"/v1/projects/{name}")["slug"]) == (None, "static")
    assert sites.text(name) == "<h1>ahoy harbor</h1>"
    assert sites.visit(name, "/package.json").status == 404


def test_a_build_that_fails_says_why_and_leaves_the_old_site_alone(sites: Sites, work: Checkout) -> None:
    name = new_name("failing")
    make_tracked(sites, name, buildCmd="mkdir -p dist && cp index.html dist/ && sh check.sh")
    work.commit("checked", check_sh="exit 0\n")
    sites.push(work, f"acme/{name}")
    work.commit("broken", index_html=page("broken"), check_sh="echo the mast is missing >&2\nexit 3\n")

    said = sites.push(work, f"acme/{name}")

    assert "the mast is missing" in said
    reason = "the build command `mkdir -p dist && cp index.html dist/ && sh check.sh` failed: exit code 3"
    assert said[-1] == f"Deployment failed: {reason}"
    assert sites.text(name) == page("one")
    newest, live, *_ = sites.deployments(name)
    assert (newest["status"], newest["enable"], live["enable"]) == ("failed", False, True)
    assert newest["reason"] == reason


def test_an_unknown_branch_and_an_unknown_commit_fail_with_a_reason(sites: Sites, work: Checkout) -> None:
    name = new_name("unknown")
    sites.push(work, f"acme/{name}")
    missing = "0123456789abcdef0123456789abcdef01234567"

    no_branch = sites.ended(sites.create_project(name, f"acme/{name}", branch="nowhere"))
    no_commit = sites.ended(sites.deploy(name, commitSha=missing))

    assert (no_branch["status"], no_commit["status"]) == ("failed", "failed")
    assert no_branch["reason"] == f"branch 'nowhere' does not exist in acme/{name}"
    assert no_commit["reason"] == f"commit {missing} does not exist in acme/{name}"


def test_an_archive_is_live_at_the_address_that_its_answer_names(sites: Sites) -> None:
    name = new_name("zipped")

    sent = sites.upload(name, {"site/index.html": page("zip"), "site/assets/app.css": "h1{}"})
    ended = sites.ended(sent["uploadId"])

    assert sent["liveUrl"] == f"http://{name}.localhost:{sites.running.ports['gateway']}"
    assert (sent["fileCount"], ended["status"], ended["projectUrl"]) == (2, "succeeded", sent["liveUrl"])
    assert sites.text(name) == page("zip")
    assert sites.visit(name, "/assets/app.css").header("content-type") == "text/css; charset=utf-8"


def test_a_rollback_brings_an_earlier_release_back_and_keeps_the_later_one(sites: Sites) -> None:
    name = new_name("rolled")
    first, second = (sites.publish(name, {"index.html": page(text)}) for text in ("one", "two"))

    back = sites.call("POST", f"/v1/projects/{name}/rollback", {"deploymentUuid": first})["deploymentUuid"]
    sites.ended(back)
    after = sites.text(name)
    forth = sites.call("POST", f"/v1/projects/{name}/rollback", {"deploymentUuid": second})["deploymentUuid"]
    sites.ended(forth)

    assert (after, sites.text(name)) == (page("one"), page("two"))
    assert [each["kind"] for each in sites.deployments(name)] == ["rollback", "rollback", "upload", "upload"]
    assert [each["enable"] for each in sites.deployments(name)] == [True, False, False, False]


def test_a_project_that_is_switched_off_answers_503_until_it_is_on_again(sites: Sites) -> None:
    name = new_name("toggled")
    uuid = sites.publish(name, {"index.html": page("on")})

    sites.call("POST", f"/v1/projects/{name}/toggle", {"enable": False})
    off = sites.visit(name)
    refused = sites.call("POST", f"/v1/projects/{name}/rollback", {"deploymentUuid": uuid}, status=409)
    sites.call("POST", f"/v1/projects/{name}/toggle", {"enable": True})

    assert (off.status, page("on") in off.body.decode()) == (503, False)
    assert refused["code"] == "conflict"
    assert sites.text(name) == page("on")


def test_the_old_address_of_a_renamed_project_leads_to_the_new_one(sites: Sites) -> None:
    old, new = new_name("before"), new_name("after")
    sites.publish(old, {"index.html": page("moved"), "deep/page.html": page("deep")})

    sites.call("PATCH", f"/v1/projects/{old}/name", {"name": new})
    answer = sites.visit(old, "/deep/page?from=old")

    port = sites.running.ports["gateway"]
    assert (answer.status, answer.header("location")) == (308, f"http://{new}.localhost:{port}/deep/page?from=old")
    assert sites.text(new, "/deep/page") == page("deep")


def test_rules_are_in_force_when_the_request_that_set_them_is_answered(sites: Sites) -> None:
    name = new_name("ruled")
    sites.publish(name, {"index.html": page("home"), "docs/intro.html": page("intro")})

    sites.call(
        "PUT",
        f"/v1/projects/{name}/headers",
        {"headers": [{"source": "/docs/*", "name": "X-Harbor", "value": "docs"}]},
    )
    sites.call(
        "PUT",
        f"/v1/projects/{name}/redirects",
        {
            "redirects": [
                {"source": "/blog/:year/:slug", "destination": "/docs/:slug?year=:year", "status": 301},
                {"source": "/old/*", "destination": "/docs/*", "status": 302},
            ]
        },
    )
    ruled, plain = sites.visit(name, "/docs/intro"), sites.visit(name)
    named, rest = sites.visit(name, "/blog/2024/intro"), sites.visit(name, "/old/intro")
    sites.call("PUT", f"/v1/projects/{name}/redirects", {"redirects": []})

    assert (ruled.header("x-harbor"), plain.header("x-harbor")) == ("docs", None)
    assert (named.status, named.header("location")) == (301, "/docs/intro?year=2024")
    assert (rest.status, rest.header("location")) == (302, "/docs/intro")
    assert sites.visit(name, "/old/intro").status == 404


def test_a_deleted_project_is_unknown_to_the_gateway(sites: Sites) -> None:
    name = new_name("deleted")
    sites.publish(name, {"index.html": page("gone")})

    sites.call("DELETE", f"/v1/projects/{name}")
    answer = sites.visit(name)

    assert (answer.status, page("gone") in answer.body.decode()) == (404, False)
    assert sites.call("GET", f"/v1/projects/check-name?name={name}")["available"] is True


def test_a_project_that_is_deleted_while_it_is_built_leaves_nothing_behind(sites: Sites, work: Checkout) -> None:
    name = new_name("dropped")
    sites.push(work, f"acme/{name}")
    uuid = sites.create_project(name, f"acme/{name}", buildCmd="echo begun; sleep 1; mkdir dist; echo > dist/a.html")
    next(event for event in sites.follow(uuid) if event.data.get("message") == "begun")
    before, crashes = scratch(sites), sites.crashes()

    sites.call("DELETE", f"/v1/projects/{name}")
    wait_until(lambda: not scratch(sites))
    sites.publish(new_name("next"), {"index.html": page("next")})

    assert len(before) == 1
    assert sites.visit(name).status == 404
    assert sites.crashes() == crashes
