"""Reads a .env file: one `NAME=value` per line, as common tools write it."""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
RESERVED = "__OW_"


class BadEnvFile(Exception):
    """The file cannot be read; the message names the line."""


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file, or none if it does not exist; raises BadEnvFile."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadEnvFile(f"cannot read {path}: {error}") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadEnvFile(f"{path.name}, line {number} should be NAME=value")
        if match[1].upper().startswith(RESERVED):
            raise BadEnvFile(f"{path.name}, line {number}: names that start with {RESERVED} are set by the platform")
        variables[match[1]] = _value(match[2].strip(), path, number)
    return variables


def _value(text: str, path: Path, number: int) -> str:
    """Return a value without its quotes, or without its comment."""
    quote = text[:1]
    if quote not in ('"', "'"):
        return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    end = _closing(text, quote)
    if end < 0:
        raise BadEnvFile(f"{path.name}, line {number} has a quote that is not closed")
    inner = text[1:end]
    return inner if quote == "'" else re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), inner)


def _closing(text: str, quote: str) -> int:
    """Return the offset of the closing quote; -1 without one."""
    at = 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 1
        elif text[at] == quote:
            return at
        at += 1
    return -1
