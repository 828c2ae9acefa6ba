"""`moorage projects`, `deployments` and `exec` against a running platform."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import page
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("cli-live")


def test_projects_are_listed_in_a_pipe_in_a_terminal_and_as_json(shell: Shell, site: str) -> None:
    rows = [line.split("\t") for line in shell.ok("projects", "list").splitlines()]
    shown = shell.terminal("projects", "list")

    assert [row[:3] for row in rows if row[0] == site] == [[site, "static", "succeeded"]]
    assert site in [each["name"] for each in shell.json("projects", "list", "--kind", "static")]
    assert shown.code == 0
    assert "NAME" in shown.text
    assert "\x1b[32msucceeded" in shown.raw


def test_a_project_is_shown_with_its_address(shell: Shell, site: str) -> None:
    shown = dict(line.split("\t") for line in shell.ok("projects", "show", site).splitlines())

    assert (shown["name"], shown["state"], shown["kind"]) == (site, "succeeded", "static")
    assert shell.json("projects", "show", site)["projectUrl"] == shown["url"]


def test_a_wrong_name_gets_the_closest_one(shell: Shell, site: str) -> None:
    done = shell("projects", "show", "cli-stie")

    assert done.returncode == 1
    assert "did you mean cli-site?" in done.stderr
    assert "trace id: " in done.stderr
    assert "`moorage projects list` shows" in shell("projects", "show", "qqqqqqqq").stderr


def test_settings_are_changed_and_a_command_without_any_is_refused(shell: Shell, site: str) -> None:
    shell.ok("projects", "update", site, "--analytics", "--build-cmd", "make")

    changed = shell.json("projects", "show", site)
    assert (changed["enableAnalytics"], changed["buildCmd"]) == (True, "make")
    assert shell("projects", "update", site).returncode == 2
    assert "expected a number such as 2" in shell("projects", "update", site, "--replicas", "5-1").stderr


def test_a_project_is_created_renamed_paused_and_deleted(shell: Shell, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "born")
    work.commit("the first", **{"index.html": page("born")})
    shell.sites.call("PATCH", f"/v1/orgs/{shell.sites.org}", {"createOnPush": False})
    shell.sites.push(work, "acme/born")

    created = shell("projects", "create", "cli-born", "acme/born", "--json")
    renamed = shell.ok("projects", "rename", "cli-born", "cli-renamed")
    shell.ok("projects", "pause", "cli-renamed")
    is_served = shell.json("projects", "show", "cli-renamed")["enabled"]
    shell.ok("projects", "resume", "cli-renamed")
    refused = shell("projects", "delete", "cli-renamed")
    typed_wrong = shell.terminal("projects", "delete", "cli-renamed", keys={"go on": "cli\n"})
    typed = shell.terminal("projects", "delete", "cli-renamed", keys={"go on": "cli-renamed\n"})

    assert created.returncode == 0, created.stderr
    assert json.loads(created.stdout)["status"] == "succeeded"
    assert "Live at" in created.stderr
    assert "renamed cli-born to cli-renamed" in renamed
    assert not is_served
    assert (refused.returncode, "confirm with --yes" in refused.stderr) == (2, True)
    assert (typed_wrong.code, "the names differ" in typed_wrong.text) == (1, True)
    assert typed.code == 0, typed.text
    assert shell("projects", "show", "cli-renamed").returncode == 1


def test_options_that_a_kind_does_not_have_are_refused(shell: Shell) -> None:
    done = shell("projects", "create", "cli-odd", "acme/odd", "--kind", "static", "--start-cmd", "x")

    assert (done.returncode, "has no --start-cmd" in done.stderr) == (1, True)


def test_the_fields_of_a_refused_request_are_printed(shell: Shell) -> None:
    done = shell("projects", "create", "Not A Name", "acme/odd", "--no-wait")

    assert done.returncode == 1
    assert "  name: " in done.stderr


def test_a_role_that_is_too_low_is_explained(shell: Shell, site: str, viewer: str) -> None:
    done = shell("projects", "pause", site, MOORAGE_TOKEN=viewer)

    assert done.returncode == 1
    assert "`moorage whoami` shows your role" in done.stderr


def test_an_expired_token_and_a_wrong_organization_are_explained(shell: Shell) -> None:
    assert "sign in with `moorage login`" in shell("projects", "list", MOORAGE_TOKEN="psk_expired").stderr
    assert shell("--org", "999999", "projects", "list").returncode == 1


def test_the_audit_log_has_the_changes(shell: Shell, site: str) -> None:
    rows = shell.json("projects", "audit-log", site, "--limit", "200")

    assert "project.created" in {row["action"] for row in rows}
    assert len(shell.ok("projects", "audit-log", site, "--limit", "1").splitlines()) == 1


def test_charts_are_drawn_on_a_terminal_and_numbers_go_to_a_pipe(shell: Shell, app: str, site: str) -> None:
    shell.sites.visit(app)
    shell.ok("projects", "update", site, "--analytics")
    shell.sites.visit(site)

    metrics, analytics = shell.terminal("projects", "metrics", app), shell.terminal("projects", "analytics", site)

    assert "CPU, percent of the tier" in metrics.text
    assert "│" in metrics.text
    assert "visitors" in analytics.text
    assert len(shell.ok("projects", "metrics", app, "--range", "1h").splitlines()) == 60
    assert shell.json("projects", "metrics", app)["bucketSeconds"] == 60
    assert len(shell.ok("projects", "analytics", site, "--range", "7d").splitlines()) == 7


def test_deployments_are_listed_shown_and_rolled_back(shell: Shell, site: str) -> None:
    before = shell.json("deployments", "list", site)
    live = next(each for each in before if each["enable"])

    rolled = shell("deployments", "rollback", site, "--json")
    after = shell.json("deployments", "list", site)

    assert rolled.returncode == 0, rolled.stderr
    assert json.loads(rolled.stdout)["status"] == "succeeded"
    assert [each["enable"] for each in after].count(True) == 1
    assert shell.json("deployments", "show", site, live["deploymentUuid"][:8])["status"] == "succeeded"
    assert shell.json("deployments", "show", live["deploymentUuid"])["projectName"] == site
    assert "has no deployment ffff" in shell("deployments", "show", site, "ffff").stderr
    shell.ok("deployments", "rollback", site, live["deploymentUuid"][:8])


def test_the_log_of_a_deployment_is_printed_followed_and_parsed(shell: Shell, app: str) -> None:
    followed = shell("deployments", "redeploy", app, "--restart")
    printed = shell.ok("deployments", "logs", app, "-f")
    lines = [json.loads(line) for line in shell.ok("deployments", "logs", app, "--json").splitlines()]

    assert followed.returncode == 0, followed.stderr
    assert "is live at" in followed.stderr
    assert "Live at" in printed
    assert "Live at" in lines[-1]["message"]


def test_a_deployment_without_waiting_says_how_to_follow_it(shell: Shell, app: str) -> None:
    started = shell("deployments", "redeploy", app, "--restart", "--no-wait")
    uuid = started.stdout.split()[1]

    assert f"moorage deployments logs {uuid} -f" in started.stderr
    assert shell.ok("deployments", "logs", uuid, "-f")


def test_a_failed_deployment_ends_with_code_1_and_the_reason(shell: Shell, app: str) -> None:
    shell.ok("projects", "update", app, "--build-cmd", "echo broken && false")

    failed = shell("deployments", "redeploy", app, "--latest")
    shell.ok("projects", "update", app, "--build-cmd", "")

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("moorage: the deployment failed: ")
    assert shell("deployments", "logs", app, "-f").returncode == 1


def test_previews_of_a_project_without_any(shell: Shell, app: str) -> None:
    assert shell.json("deployments", "previews", "list", app) == []
    assert shell("deployments", "previews", "approve", app, "7").returncode == 1


def test_a_preview_is_approved_at_the_commit_that_was_shown_and_at_no_other(shell: Shell) -> None:
    name, reviewed, pushed = "cli-forked", "1" * 40, "2" * 40
    shell.sites.create_project(name, "octo/cli-forked", prPreview=True)
    for sha, action in ((reviewed, "opened"), (pushed, "synchronize")):
        head = {"sha": sha, "ref": "change", "repo": {"full_name": "eve/site"}}
        event = {
            "action": action,
            "pull_request": {"number": 7, "title": "A change", "head": head},
            "repository": {"full_name": "octo/cli-forked", "id": 1, "private": False},
        }
        assert shell.sites.deliver("pull_request", event, f"{name}-{action}").status == 200
    wait_until(lambda: pushed in shell.ok("deployments", "previews", "list", name, "--json"))

    late = shell("deployments", "previews", "approve", name, "7", "--commit", reviewed[:12])
    approved = shell("deployments", "previews", "approve", name, "7")

    assert (late.returncode, "review that commit first" in late.stderr) == (1, True)
    assert (approved.returncode, "approved pull request 7" in approved.stdout) == (0, True)
    assert f"pull request 7 is at commit {pushed}: A change" in approved.stderr


def test_a_command_runs_in_the_live_release_with_its_exit_code(shell: Shell, app: str) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"

    done = shell("exec", app, "--", "python", "-c", code)
    line = shell("exec", "--timeout", "30", app, "echo $((40 + 2))")
    shown = shell.terminal("exec", app, "printf '\\033[31mred\\033[0m \\033]0;title\\007end'")

    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert (line.returncode, line.stdout) == (0, "42\n")
    assert "\x1b[31mred" in shown.raw
    assert "title" not in shown.raw


def test_a_command_needs_an_app_and_a_name(shell: Shell, site: str) -> None:
    assert shell("exec", site, "true").returncode == 1
    assert "did you mean cli-site?" in shell("exec", "cli-sit", "true").stderr
    assert shell("exec", site).returncode == 2


def test_ctrl_c_ends_the_log_and_not_the_deployment(shell: Shell, app: str) -> None:
    stopped = shell.terminal("deployments", "redeploy", app, "--latest", keys={"Fetching": "\x03"})
    uuid = stopped.text.partition("moorage deployments logs ")[2].split()[0]

    followed = shell("deployments", "logs", uuid, "-f")

    assert stopped.code == 130
    assert "the deployment goes on" in stopped.text
    assert followed.returncode == 0, followed.stderr
