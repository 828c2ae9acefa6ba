"""`moorage cronjobs` against a running platform."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("cli-live")

NEVER = "0 0 1 1 *"
PROGRAM = "import os, sys\nprint('begins', os.environ.get('MODE'), flush=True)\nsys.exit(int(sys.argv[1]))\n"


def test_a_cronjob_is_built_triggered_followed_changed_and_deleted(shell: Shell, tmp_path: Path) -> None:
    name, repository = new_name("report"), f"demo/{new_name('report-code')}"
    work = Checkout.init(tmp_path / "work")
    work.commit("first", run_py=PROGRAM)
    shell.sites.push(work, repository)

    words = ("--cron", NEVER, "--repository", repository, "--language", "python", "--command", "python run.py 0")
    created = shell.json("cronjobs", "create", name, *words, "--env", "MODE=fast")
    followed = shell("cronjobs", "trigger", name, "--follow")
    logged = shell.ok("cronjobs", "logs", name)
    shell.ok("cronjobs", "update", name, "--command", "python run.py 3", "--env", "OTHER=1")
    failed = shell.terminal("cronjobs", "trigger", name, "-f")

    assert created["status"] == "running"
    assert followed.returncode == 0, followed.stderr
    assert followed.stdout == logged == "begins fast\n"
    assert "the run succeeded, exit code 0" in followed.stderr
    assert failed.code == 1
    assert "exit code 3" in failed.text
    rows = [line.split("\t") for line in shell.ok("cronjobs", "executions", name).splitlines()]
    assert [(row[1], row[4]) for row in rows] == [("failed", "3"), ("succeeded", "0")]
    assert len(shell.json("cronjobs", "executions", name)) == 2
    assert "begins fast" in shell.json("cronjobs", "logs", name, rows[1][0])["logs"]
    shell.ok("cronjobs", "pause", name)
    listed = [line.split("\t")[:3] for line in shell.ok("cronjobs", "list").splitlines()]
    assert [name, NEVER, "paused"] in listed
    shell.ok("cronjobs", "resume", name)
    shown = shell.ok("cronjobs", "show", name)
    assert "runs\t2: 1 succeeded, 1 failed" in shown
    assert "variables\tMODE, OTHER" in shown
    assert shell("cronjobs", "delete", name).returncode == 2
    assert shell.terminal("cronjobs", "delete", name, keys={"[y/N]": "y\n"}).code == 0
    assert shell("cronjobs", "show", name).returncode == 1


def test_a_build_that_fails_ends_with_its_log(shell: Shell, tmp_path: Path) -> None:
    repository = f"demo/{new_name('broken-code')}"
    work = Checkout.init(tmp_path / "work")
    work.commit("first", run_py=PROGRAM)
    shell.sites.push(work, repository)

    words = ("--repository", repository, "--language", "python", "--build", "python -c 'raise SystemExit(\"no boat\")'")
    done = shell("cronjobs", "create", new_name("broken"), "--cron", NEVER, *words)

    assert done.returncode == 1
    assert "no boat" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("failed")


def test_a_source_is_needed_and_only_one(shell: Shell) -> None:
    assert "either --image or --repository" in shell("cronjobs", "create", "x", "--cron", NEVER).stderr
