"""Output rules of all commands: colours only on a terminal, no control characters of others, errors on stderr."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final, NoReturn, TextIO

import typer

STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_JSON = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # JSON escapes the others itself.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


def is_terminal(stream: TextIO | None = None) -> bool:
    return (stream or sys.stdout).isatty()


def has_colour(stream: TextIO | None = None) -> bool:
    """Report whether colours may be written: a terminal, and NO_COLOR is not set."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return a text in styles of STYLES; unchanged where colours may not be written."""
    if not styles or not has_colour(stream):
        return text
    return f"\x1b[{';'.join(STYLES[each] for each in styles)}m{text}\x1b[0m"


def plain(text: object) -> str:
    """Return a text of the platform without control characters, so that it cannot steer the terminal."""
    return _CONTROL.sub("", _ESCAPE.sub("", str(text))).replace("\n", " ").replace("\t", " ")


def log_text(text: str) -> str:
    """Return a line of user output: colours stay on a terminal, every other escape sequence is dropped."""
    line = _shown(text, None)
    return f"{line}\x1b[0m" if "\x1b[" in line else line


def json_text(text: str) -> str:
    """Return JSON for standard output; on a terminal, without control characters, as escapes of JSON."""
    return _CONTROL_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) if is_terminal() else text


def _shown(text: str, stream: TextIO | None) -> str:
    """Return a text without escape sequences, except colours where they may be written."""
    keep = has_colour(stream)
    parts = []
    position = 0
    for match in _COLOUR.finditer(text):
        parts += [_clean(text[position : match.start()]), match[0] if keep else ""]
        position = match.end()
    parts.append(_clean(text[position:]))
    return "".join(parts)


def _clean(text: str) -> str:
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def say(text: str = "", *styles: str) -> None:
    """Print one line on standard output, without control characters: names and messages are texts of others."""
    typer.echo(_shown(paint(text, *styles), None))


def say_value(text: str) -> None:
    """Print a stored value on standard output: unchanged in a pipe, without control characters on a terminal."""
    sys.stdout.write(_clean(text) if is_terminal() else text)


def note(text: str, *styles: str) -> None:
    """Print one line on standard error: progress and hints, so that a pipe gets the result alone."""
    typer.echo(_shown(paint(text, *styles, stream=sys.stderr), sys.stderr), err=True)


def fail(message: str, code: int = 1) -> Any:
    """Print an error on standard error and exit."""
    stop(message, code)


def stop(message: str, code: int = 1) -> NoReturn:
    note(f"moorage: {message}")
    raise typer.Exit(code)
