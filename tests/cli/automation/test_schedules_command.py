"""`moorage schedules` against a running platform."""

from __future__ import annotations

import json

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name

pytestmark = pytest.mark.group("cli-live")

ECHO = "def main(params):\n    return {'name': params.get('name')}\n"


def test_a_schedule_is_created_changed_run_and_deleted(shell: Shell) -> None:
    function = shell.sites.create(new_name("scheduled"), "python", ECHO)
    name = new_name("nightly")

    words = ("schedules", "create", name, function, "--cron", "0 6 * * *", "--timezone", "Europe/Berlin")
    created = shell.json(*words, "-d", '{"name": "Ada"}')
    changed = shell.json("schedules", "update", name, "--cron", "@hourly", "--disable")
    ran = shell("schedules", "run", name)
    rows = [line.split("\t") for line in shell.ok("schedules", "list").splitlines()]

    assert (created["cronSchedule"], created["timezone"], created["enabled"]) == ("0 6 * * *", "Europe/Berlin", True)
    assert (changed["cronSchedule"], changed["enabled"], changed["params"]) == ("@hourly", False, {"name": "Ada"})
    assert json.loads(ran.stdout) == {"name": "Ada"}
    assert [row[1:5] for row in rows if row[0] == name] == [[function, "@hourly", "Europe/Berlin", "no"]]
    assert "CRON" in shell.terminal("schedules", "list").text
    assert shell("schedules", "delete", name).returncode == 2
    shell.ok("schedules", "delete", str(created["id"]), "--yes")
    assert f"there is no schedule {name}" in shell("schedules", "show", name).stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["create", "x", "absent", "--cron", "@daily"], "function"),
        (["create", "x", "absent", "--cron", "@daily", "-d", "[1]"], "--data should be a JSON object"),
        (["update", "absent", "--enable"], "there is no schedule absent"),
    ],
)
def test_mistakes_are_explained(shell: Shell, words: list[str], reason: str) -> None:
    done = shell("schedules", *words)

    assert done.returncode == 1
    assert reason in done.stderr
