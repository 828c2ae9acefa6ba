"""`moorage status`, `open` and `logs` against a running platform."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import page
from tests.relays import relaying

from moorage.cli.overview.problems import problems_in
from moorage.client import models

pytestmark = pytest.mark.group("cli-live")


def test_the_status_of_the_organization_has_all_resources(shell: Shell, site: str) -> None:
    rows = [line.split("\t") for line in shell.ok("status").splitlines()]
    found = shell.json("status")
    shown = shell.terminal("status")

    assert ["project", site, "succeeded"] in [row[:3] for row in rows]
    assert set(found) >= {"me", "usage", "projects", "functions", "databases", "cronjobs", "monitors", "problems"}
    assert shown.code == 0, shown.text
    assert "Recent deployments" in shown.text
    assert site in shown.text


def test_problems_come_first(shell: Shell) -> None:
    shell.sites.create_project("cli-broken", "acme/there-is-no-such-repository")
    shell.sites.running.wait_until(lambda: shell.sites.deployments("cli-broken")[0]["status"] == "failed", timeout_s=60)

    piped, shown = shell.ok("status"), shell.terminal("status")
    shell.ok("projects", "delete", "cli-broken", "--yes")

    first = piped.splitlines()[0].split("\t")
    assert first[0] == "problem"
    assert "problem\tcli-broken\tthe latest deployment failed" in piped
    assert "`moorage deployments logs cli-broken`" in shown.text


def test_usage_near_a_limit_and_failed_resources_are_problems() -> None:
    usage = models.Usage(
        plan="free",
        usage={"projects": models.Used(used=9, limit=10), "functions": models.Used(used=1, limit=10)},
        metered={},
    )
    database = models.DatabaseListItem(
        id=1,
        name="orders",
        type="postgresql",
        version="16.4.0",
        status="failed",
        visibility="private",
        instance_type="free",
        server_details=models.ServerDetails(cpu=1, memory=1, disk=1),
        created_at=None,
    )
    nothing: dict[str, list[object]] = {"monitors": [], "projects": [], "cronjobs": [], "schedules": []}

    found = problems_in({**nothing, "databases": [database], "usage": usage})

    assert [(each.kind, each.name) for each in found] == [("database", "orders"), ("limit", "projects")]


def test_the_status_of_a_project_has_its_deployments(shell: Shell, app: str) -> None:
    lines = shell.ok("status", app).splitlines()

    assert f"project\t{app}" in lines
    assert any(line.startswith("*\t") for line in lines)
    assert shell.json("status", app)["project"]["name"] == app
    assert "DEPLOYMENT" in shell.terminal("status", app).text
    assert "did you mean cli-app?" in shell("status", "cli-apq").stderr


def test_an_address_is_printed_without_a_display_and_opened_with_a_browser(shell: Shell, site: str) -> None:
    browser = shell.home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shell.home}/opened\n')
    browser.chmod(0o755)

    printed = shell.ok("open", site, DISPLAY="", WAYLAND_DISPLAY="", BROWSER="")
    console = shell.ok("open", DISPLAY="", WAYLAND_DISPLAY="", BROWSER="")
    project_page = shell.ok("open", site, "--console", "--print")
    shell.ok("open", site, BROWSER=str(browser))

    assert printed == f"http://{site}.localhost:{shell.sites.running.ports['gateway']}\n"
    assert console == f"{shell.sites.running.url}/\n"
    assert project_page == f"{shell.sites.running.url}/projects/{site}\n"
    assert (shell.home / "opened").read_text() == printed


@contextlib.contextmanager
def following(shell: Shell, *words: str, **env: str) -> Iterator[IO[str]]:
    """Run a command that follows lines, and give its standard output."""
    command = [sys.executable, "-m", "moorage.cli.main", *words]
    with subprocess.Popen(
        command, env=shell.env | env, cwd=shell.home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


def read_until(lines: IO[str], text: str) -> list[str]:
    """Return lines up to the first with a text."""
    seen = []
    for line in lines:
        seen.append(line.rstrip("\n"))
        if text in line:
            return seen
    raise AssertionError(f"{text} is not in {seen}")


def test_lines_of_the_app_are_printed_searched_and_parsed(shell: Shell, app: str) -> None:
    shell.sites.visit(app, "/first-visit")
    shell.sites.running.wait_until(lambda: "/first-visit" in shell.ok("logs", app), timeout_s=60)

    found = shell.ok("logs", app, "--search", "FIRST-VISIT", "--since", "1h")
    lines = [json.loads(line) for line in shell.ok("logs", app, "--since", "1h", "--json").splitlines()]
    shown = shell.terminal("logs", app, "--tail", "5")

    assert [line.split("\t")[1:] for line in found.splitlines()] == [["app", "visited /first-visit"]]
    assert {"app"} < {line["source"].split()[0] for line in lines}
    assert "\x1b[36mapp" in shown.raw
    assert shell.ok("logs", app, "--since", "2100-01-01T00:00:00Z") == ""


def test_lines_are_followed_with_those_of_a_deployment_that_begins(shell: Shell, app: str) -> None:
    with following(shell, "logs", "-f", app, "--tail", "1") as lines:
        read_until(lines, "\tapp\t")
        shell.sites.visit(app, "/followed")
        read_until(lines, "visited /followed")
        shell.sites.deploy(app, operation="restart")

        seen = read_until(lines, "Live at")

    assert "\tdeployment " in seen[-1]


def test_a_lost_connection_is_resumed_without_a_gap(shell: Shell, app: str) -> None:
    with relaying(shell.sites.running.ports["api"]) as relay:
        address = f"http://127.0.0.1:{relay.port}"
        with following(shell, "logs", "-f", app, "--search", "/part-", MOORAGE_URL=address) as lines:
            shell.sites.visit(app, "/part-1")
            read_until(lines, "/part-1")
            assert relay.cut() > 0
            shell.sites.visit(app, "/part-2")

            seen = read_until(lines, "/part-2")

    assert len(seen) == 1


def test_bad_input_of_logs_is_refused(shell: Shell, app: str, tmp_path: Path) -> None:
    assert shell("logs", app, "--since", "yesterday").returncode == 2
    assert "did you mean cli-app?" in shell("logs", "-f", "cli-ap").stderr
    shell.sites.publish("cli-quiet", {"index.html": page("quiet")})
    assert shell.ok("logs", "cli-quiet") == ""
