"""The reference documentation is what the code says, and it is whole."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import pytest
import typer

from moorage.cli.commands import app as command_line
from moorage.core.http.answer import STATUS
from moorage.docs import cli_page, errors_page, markdown, reference, source, states_page
from moorage.settings import Settings

COMMITTED = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


def test_the_committed_reference_is_what_the_code_says_now(pages: dict[str, str]) -> None:
    stale = [
        name
        for name, text in pages.items()
        if not (COMMITTED / name).exists() or (COMMITTED / name).read_text(encoding="utf-8") != text
    ]

    assert not stale, f"docs/reference is stale ({', '.join(stale)}): run make docs"


@pytest.mark.deep
def test_the_command_writes_every_page_whatever_the_environment_says(tmp_path: Path, pages: dict[str, str]) -> None:
    environment = {"MOORAGE_API_PORT": "9999", "MOORAGE_MODE": "production", "PYTHONHASHSEED": "7"}

    argv = [sys.executable, "-m", "moorage.docs", str(tmp_path / "new" / "reference")]
    subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=120)

    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new" / "reference").iterdir()}
    assert written == pages


def test_every_setting_stands_in_the_reference_with_its_flag_and_meaning(pages: dict[str, str]) -> None:
    rows = [line for line in pages["settings.md"].splitlines() if line.startswith("| `MOORAGE_")]

    assert len(rows) == len(Settings.model_fields)
    for (name, field), row in zip(Settings.model_fields.items(), rows, strict=True):
        assert row.startswith(f"| `MOORAGE_{name.upper()}` | `--{name.replace('_', '-')}` |")
        assert field.description, f"{name} has no description"
        assert field.description.replace("|", "\\|") in row


def test_every_named_value_of_a_setting_has_a_meaning(pages: dict[str, str]) -> None:
    named = pages["settings.md"].partition("## Named values")[2]

    assert "| `kubernetes` | pods of a cluster |" in named
    assert "|  |" not in named


def test_every_route_stands_in_the_reference(pages: dict[str, str]) -> None:
    document = reference.openapi_document()

    for path, methods in document["paths"].items():
        for method, spec in methods.items():
            assert f"### {method.upper()} `{path}`\n\n{spec['summary']}." in pages["api.md"]


def test_every_command_stands_in_the_reference_with_its_help(pages: dict[str, str]) -> None:
    found = dict(cli_page.commands(typer.main.get_command(command_line), "moorage"))

    assert {"moorage up", "moorage admin token", "moorage keys rotate"} <= set(found)
    for name, command in found.items():
        assert command.help, f"{name} has no help"
        assert f"## `{name}" in pages["cli.md"]
        assert " ".join(command.help.split("\n\n")[0].split()) in pages["cli.md"]


def test_every_argument_and_option_of_a_command_has_a_meaning() -> None:
    for name, command in cli_page.commands(typer.main.get_command(command_line), "moorage"):
        for parameter in command.params:
            assert parameter.help, f"{name}: {parameter.name} has no help"


def test_every_error_code_stands_in_the_reference_with_its_status(pages: dict[str, str]) -> None:
    assert errors_page.meanings().keys() == STATUS.keys()
    for code, status in STATUS.items():
        assert f"| `{code}` | {status} |" in pages["errors.md"]


def test_every_state_of_every_machine_is_explained_and_drawn(pages: dict[str, str]) -> None:
    found = list(states_page.machines())

    assert {"job", "invitation"} <= {machine.name for machine in found}
    for machine in found:
        assert machine.diagram() in pages["states.md"]
        for state, meaning in states_page.meanings(machine).items():
            assert meaning, f"{machine.name}: {state} has no comment that says what it means"
            assert f"| `{state}` | {meaning}" in pages["states.md"]


class Signal(StrEnum):
    RED = "red"  # stop, and wait
    GREEN = "green"
    BLUE = "blue"


def test_a_meaning_is_the_comment_beside_a_value_and_no_note_to_a_tool() -> None:
    assert source.meanings(Signal) == {"RED": "stop, and wait", "GREEN": "", "BLUE": ""}


class Ship:
    # What it is made of.
    hull: str = "oak"
    mast: str = "fir"
    # Who sails it.
    crew: int = 3


def test_a_heading_is_the_comment_above_a_field() -> None:
    assert source.headings(Ship) == {"hull": "What it is made of", "crew": "Who sails it"}


@pytest.mark.parametrize(
    ("cells", "line"),
    [(["a|b", "c"], "| a\\|b | c |"), (["two\nlines", ""], "| two lines |  |")],
)
def test_a_cell_cannot_break_its_table(cells: list[str], line: str) -> None:
    assert markdown.table(["x", "y"], [cells]).splitlines()[2] == line


@pytest.mark.deep
def test_a_wrong_call_says_how_to_call_it() -> None:
    result = subprocess.run([sys.executable, "-m", "moorage.docs"], capture_output=True, text=True, timeout=60)

    assert result.returncode == 2
    assert "usage: python -m moorage.docs REFERENCE [CLIENT]" in result.stderr
