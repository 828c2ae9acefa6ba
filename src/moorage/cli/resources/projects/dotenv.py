"""Files of variables (`.env`): NAME=VALUE lines, quoted where needed.

Double quotes understand the escapes of n, r, t, and of a quote, a dollar sign and a backslash, and may span lines.
Single quotes are literal. `#` begins a comment at the beginning of a line, or after a space behind an unquoted value.
Variables are not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[^\s=#'"]+)[ \t]*=[ \t]*"""
    r"""(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)'|(?P<bare>[^\n]*))[ \t]*(?:\#[^\n]*)?(?:\n|$)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_SAFE = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")


class BadFile(ValueError):
    """A line is no variable; the message has its number, never its value."""


def parse(text: str) -> dict[str, str]:
    """Return the variables of a file in their order; a later line of the same name wins."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    variables: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = text[position:].partition("\n")[0]
        if not line.strip() or line.lstrip().startswith("#"):
            position += len(line) + 1
            continue
        match = _LINE.match(text, position)
        number = text.count("\n", 0, position) + 1
        if match is None:
            raise BadFile(f"line {number}: expected NAME=VALUE")
        if not NAME.fullmatch(match["name"]):
            raise BadFile(f"line {number}: {match['name'][:50]!r} is not a name of a variable")
        variables[match["name"]] = _value(match, number)
        position = match.end()
    return variables


def _value(match: re.Match[str], number: int) -> str:
    if match["double"] is not None:
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match["double"], flags=re.DOTALL)
    if match["single"] is not None:
        return match["single"]
    bare = re.split(r"(?:^|\s)#", match["bare"], maxsplit=1)[0].strip()
    if bare[:1] in ('"', "'"):
        raise BadFile(f"line {number}: the quote is not closed, or text follows it")
    return bare


def render(variables: Mapping[str, str]) -> str:
    """Return a file that `parse` reads back."""
    return "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items())


def _quoted(value: str) -> str:
    if _SAFE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped.replace(chr(10), chr(92) + "n").replace(chr(13), chr(92) + "r")}"'
