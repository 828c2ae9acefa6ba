"""Help of the command line: complete, with types and defaults."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import moorage
from moorage.cli.commands import ENTRIES, app
from moorage.cli.help import MAX_WIDTH, Entry, summary
from moorage.settings import Settings


def run(*arguments: str) -> str:
    """Return the output in 80 columns."""
    return CliRunner().invoke(app, list(arguments)).output


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_version_is_printed_alone() -> None:
    assert run("--version") == run("version") == f"{moorage.__version__}\n"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_listed_summary_is_the_first_paragraph_of_the_help(entry: Entry) -> None:
    command = entry.load()

    assert command.name == entry.name
    assert summary(command.help) == entry.summary


def test_the_command_without_arguments_lists_the_groups_with_whole_sentences() -> None:
    shown = run()

    assert [entry.title for entry in ENTRIES if f"\n{entry.title}:\n" not in shown] == []
    assert "with a fix for each gap." in words(shown)
    assert re.findall(r"\.\.\.$", shown, re.MULTILINE) == ["..."]  # of the usage line


@pytest.mark.parametrize("group", ["admin", "databases", "engines", "keys", "audit"])
def test_commands_of_a_group_are_not_cut(group: str) -> None:
    shown = run(group, "--help")

    assert re.findall(r"\.\.\.$", shown.partition("Commands:")[2], re.MULTILINE) == []


def test_a_setting_shows_its_type_its_variable_and_its_default() -> None:
    shown = words(run("up", "--help"))

    assert "--api-port <int> Port of the API and console. [MOORAGE_API_PORT; default: 8080]" in shown
    assert "--mode <development|production>" in shown
    assert "--data <path> Folder for all state. [MOORAGE_DATA; default: .moorage]" in shown
    assert "--trusted-proxies <list>" in shown
    assert "--master-key <secret>" in shown
    assert [name for name in Settings.model_fields if f"[MOORAGE_{name.upper()}" not in shown] == []


def test_help_uses_the_width_of_a_wide_terminal() -> None:
    command = [sys.executable, "-m", "moorage.cli.main", "up", "--help"]
    env = {**os.environ, "COLUMNS": "200"}

    wide = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert 100 < max(map(len, wide.splitlines())) <= MAX_WIDTH
