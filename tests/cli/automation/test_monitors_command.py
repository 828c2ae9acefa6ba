"""`moorage monitors` and `moorage alerts` against a running platform."""

from __future__ import annotations

import pytest
from tests.cli.live import Shell
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import new_name

pytestmark = pytest.mark.group("cli-live")

NOWHERE = "https://nowhere.invalid/health"  # A name that no resolver knows: each check fails.


def test_a_monitor_is_created_shown_changed_paused_and_deleted(shell: Shell) -> None:
    name = new_name("Shop")

    created = shell.json("monitors", "create", name, NOWHERE, "--interval", "300", "--retries", "0", "--status", "2xx")
    number = str(created["id"])
    wait_until(lambda: shell.client.monitors.read(number).last_heartbeat is not None)
    listed = [line.split("\t") for line in shell.ok("monitors", "list").splitlines()]
    bars = shell.terminal("monitors", "list")
    shown = shell.terminal("monitors", "show", name)
    changed = shell.json("monitors", "update", name, "--keyword", "in order", "--interval", "600")
    shell.ok("monitors", "pause", name)

    assert created["statusCodes"] == ["2xx"]
    assert [row[1:3] for row in listed if row[0] == number] == [[name, "down"]]
    assert name in bars.text
    assert "·" * 20 in bars.text
    assert "response time in ms" in shown.text
    assert "24 h, uptime 0.00 %" in shown.text
    assert (changed["keyword"], changed["interval"]) == ("in order", 600)
    assert "status\tpaused" in shell.ok("monitors", "show", number)
    shell.ok("monitors", "resume", name, "--wait")
    assert "status\tdown" in shell.ok("monitors", "show", number)
    assert shell("monitors", "delete", name).returncode == 2
    shell.ok("monitors", "delete", name, "--yes")
    assert f"there is no monitor {name}" in shell("monitors", "show", name).stderr


def test_an_alert_is_created_tested_changed_and_deleted(shell: Shell) -> None:
    name = new_name("Harbor")
    shell.client.monitors.create(name=name, url=NOWHERE)

    alert = shell.json("alerts", "create", name, "--severity", "critical", "--no-email")
    number = str(alert["id"])
    changed = shell.json("alerts", "update", number, "--threshold", "0", "--acknowledge")
    typed = shell.terminal(
        "alerts", "update", number, "--webhook", keys={"webhook: ": "https://hooks.invalid/secret-path\n"}
    )
    tested = shell("alerts", "test", number)

    assert (alert["metric"], alert["condition"], alert["threshold"]) == ("status", "eq", 0)
    assert changed["acknowledged"] is True
    assert typed.code == 0, typed.text
    assert "secret-path" not in typed.text
    assert tested.stdout.startswith("webhook\t")
    assert shell.json("monitors", "incidents", name) == []
    rows = [line.split("\t") for line in shell.ok("alerts", "list").splitlines()]
    assert [row[1:4] for row in rows if row[0] == number] == [[name, "status eq 0 for 1 min", "critical"]]
    assert "SEVERITY" in shell.terminal("alerts", "list", name).text
    assert shell("alerts", "delete", number).returncode == 2
    shell.ok("alerts", "delete", number, "--yes")
    assert shell("alerts", "delete", number, "--yes").returncode == 1
    assert shell.json("alerts", "list", name) == []


def test_two_monitors_of_one_name_need_their_number(shell: Shell) -> None:
    name = new_name("Twin")
    numbers = [shell.client.monitors.create(name=name, url=NOWHERE).id for _ in range(2)]

    done = shell("monitors", "pause", name)

    assert done.returncode == 1
    assert f"use one of the numbers {numbers[0]}, {numbers[1]}" in done.stderr


def test_an_alert_about_another_metric_needs_its_rule(shell: Shell) -> None:
    done = shell("alerts", "create", "any", "--metric", "response_time")

    assert "needs --condition and --threshold" in done.stderr
