"""Strict JSON parser: refuses ambiguous or unstorable input of clients."""

from __future__ import annotations

import json
import math
from typing import Any

from moorage.core.kit.texts import unusable
from moorage.errors import BadRequest

# Legitimate bodies have a few levels; this is far below a stack overflow.
MAX_DEPTH = 64
_WALKED = (str, dict, list)


class _Refused(ValueError):
    pass


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
        _check(value, "", MAX_DEPTH)
    return value


def _check(value: Any, path: str, depth: int) -> None:
    if isinstance(value, str):
        if problem := unusable(value):
            raise BadRequest("The request is not valid", fields={path or "body": problem})
    elif isinstance(value, dict):
        _check_depth(depth)
        for key, item in value.items():
            if problem := unusable(key):
                raise BadRequest(f"The body is not valid: a field name {problem}")
            if isinstance(item, _WALKED):
                _check(item, f"{path}.{key}" if path else key, depth - 1)
    elif isinstance(value, list):
        _check_depth(depth)
        for index, item in enumerate(value):
            if isinstance(item, _WALKED):
                _check(item, f"{path}[{index}]", depth - 1)


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise BadRequest("The body is nested too deeply")


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
