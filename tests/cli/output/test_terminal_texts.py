"""Texts of the platform, of builds and of functions cannot steer the terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from moorage.cli.output import tables, terminal
from moorage.cli.resources.functions import calling
from moorage.client.models import InvokeFunctionResult

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b2Jd\u202ee\x7f"
CONTROL = set("\x07\x1b\x7f\x9b\u202e")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard output and standard error those of a terminal without colours."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return made


@pytest.mark.boundary("stranger-to-user", "No text of the platform, of a build or of a function steers the terminal.")
def test_lines_and_json_have_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    result = InvokeFunctionResult(
        activation_id="1", status="success", result={"text": HOSTILE}, version=1, duration_ms=1.0, error=None
    )

    terminal.say(HOSTILE)
    terminal.note(f"the deployment failed: {HOSTILE}", "red")
    terminal.say_value(f"{HOSTILE}\n")
    tables.show_json({"text": HOSTILE})
    calling.show_result(result, as_json=False)

    assert "the deployment failed: abc2Jde" in shown.getvalue()
    assert not CONTROL & set(shown.getvalue())


def test_json_on_a_terminal_has_the_same_content(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    tables.show_json({"text": HOSTILE})

    assert json.loads(shown.getvalue()) == {"text": HOSTILE}


def test_a_pipe_gets_json_and_values_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_json({"text": "\x9bé"})
    terminal.say_value("\x1b\x9b\n")

    assert capsys.readouterr().out == '{\n  "text": "\x9bé"\n}\n\x1b\x9b\n'


def test_colours_of_the_command_stay_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")

    terminal.note("failed\x1b[2J", "red")

    assert shown.getvalue() == "\x1b[31mfailed\x1b[0m\n"
