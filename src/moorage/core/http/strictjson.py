"""Strict JSON parser: refuses ambiguous or unstorable input of clients."""

from __future__ import annotations

import json
import math
from typing import Any

from moorage.core.kit.texts import unusable
from moorage.errors import BadRequest, bad_field

# Legitimate bodies have a few levels; this is far below a stack overflow.
MAX_DEPTH = 64
_WALKED = (str, dict, list)


class _Refused(ValueError):
    pass


class _UnusableText(Exception):
    """Raised for an unstorable text; each caller of `_check` adds its key or index to the location."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.reversed_location: list[str | int] = []


def field_name(location: tuple[str | int, ...]) -> str:
    """Format a location for clients: `autoScaling.minReplicas`, `env[0].name`."""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name or "body"


def parse(body: bytes) -> Any:
    """Return the value of a JSON body; raises BadRequest."""
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError:
        raise BadRequest("The body is nested too deeply") from None
    except _Refused as error:
        raise BadRequest(f"The body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise BadRequest("The body is not valid JSON: it is not UTF-8") from None
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON: {_describe(error)}") from None
    # Only escapes can contain unstorable characters, and only brackets add depth: most bodies need no walk.
    if b"\\u" in body or body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        try:
            if isinstance(value, _WALKED):
                _check(value, MAX_DEPTH)
        except _UnusableText as error:
            raise bad_field(field_name(tuple(reversed(error.reversed_location))), error.problem) from None
    return value


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if problem := unusable(value):
            raise _UnusableText(problem)
        return
    if depth == 0:
        raise BadRequest("The body is nested too deeply")
    if isinstance(value, dict):
        for key in value:
            if problem := unusable(key):
                raise BadRequest(f"The body is not valid: a field name {problem}")
    for part, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, _WALKED):
            try:
                _check(item, depth - 1)
            except _UnusableText as error:
                # The location is built only here: a client could make it long for each of many elements.
                error.reversed_location.append(part)
                raise


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Refused("an object names a field twice")
    return fields


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused("a number is too large")
    return number


def _describe(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
    return "a number has too many digits"
