"""Completion in a real bash, the scripts of other shells, and names of a platform that cannot be asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import page
from tests.ports import free_port

from moorage.cli.session.completion import names_in

pytestmark = pytest.mark.group("cli-live")

BASH = """
source <(moorage completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_moorage_completion moorage
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(shell: Shell, *words: str, **env: str) -> list[str]:
    """Return what bash offers for the last word."""
    path = f"{Path(sys.executable).parent}:{shell.env['PATH']}"
    argv = ["bash", "--norc", "-c", BASH, "bash", *words]
    done = subprocess.run(
        argv, env=shell.env | {"PATH": path} | env, cwd=shell.home, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_subcommands_and_options(shell: Shell) -> None:
    assert complete(shell, "moorage", "whoa") == ["whoami"]
    assert complete(shell, "moorage", "context", "") == ["list", "use"]
    assert complete(shell, "moorage", "login", "--de") == ["--demo"]


def test_a_platform_that_cannot_be_reached_is_silent(shell: Shell) -> None:
    unreachable = f"http://127.0.0.1:{free_port()}"

    assert complete(shell, "moorage", "projects", "show", "", MOORAGE_URL=unreachable) == []
    assert complete(shell, "moorage", "projects", "show", "", MOORAGE_TOKEN="mrg_wrong") == []
    assert complete(shell, "moorage", "projects", "show", "", MOORAGE_URL="no address") == []


def test_bash_completes_the_names_of_projects(shell: Shell) -> None:
    shell.sites.publish("completed-site", {"index.html": page("x")})

    assert complete(shell, "moorage", "projects", "show", "completed-") == ["completed-site"]


@pytest.mark.parametrize(("name", "begins"), [("zsh", "#compdef moorage"), ("fish", "complete --command moorage")])
def test_scripts_of_other_shells_are_printed(shell: Shell, name: str, begins: str) -> None:
    assert shell.ok("completion", name).startswith(begins)


def test_an_unknown_shell_is_refused_with_those_that_exist(shell: Shell) -> None:
    done = shell("completion", "tcsh")

    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


@pytest.mark.parametrize("data", [None, [], {}, {"items": None}, [1, {"name": None}], "text"])
def test_an_odd_answer_has_no_names(data: object) -> None:
    assert names_in(data, "name") == []
