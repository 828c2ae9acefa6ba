"""Answers of tools: JSON or log lines, masked and of bounded size; errors with the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from moorage.cli.assistant.masking import Guard
from moorage.cli.output.errors import NEXT_STEPS
from moorage.client.errors import ApiError, ClientError, NotFound

MAX_CHARS: Final = 20_000  # of one answer; about 5,000 tokens of a language model
MASKED_CHARS: Final = 20 * MAX_CHARS  # of a log; older lines are dropped before credentials are masked
MAX_LINE_CHARS: Final = 1_000  # of one line of a log, and of one text in an answer that is too long
MISSING: Final = "list the resources of that kind to see the names that exist"


def as_json(data: Any, guard: Guard) -> str:
    """Return data as compact JSON. Lists lose their last items, then texts are cut, until it fits."""
    value = guard.data(msgspec.to_builtins(data))
    text = _encode(value)
    if len(text) > MAX_CHARS and isinstance(value, dict):
        text = _encode(_shorten(value))
    if len(text) > MAX_CHARS:
        return f"{text[:MAX_CHARS]}\n[cut: the answer has {len(text)} characters]"
    return text


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _shorten(value: dict[str, Any]) -> dict[str, Any]:
    """Drop items of the longest list until the answer fits; `leftOut` counts them."""
    name = max(value, key=lambda each: len(_encode(value[each])) if isinstance(value[each], list) else 0)
    items = value[name]
    if not isinstance(items, list):
        return {key: _cut(each) for key, each in value.items()}
    room = MAX_CHARS - len(_encode({**value, name: [], "leftOut": len(items)}))
    kept: list[Any] = []
    for item in items:
        room -= len(_encode(item)) + 1
        if room < 0:
            break
        kept.append(item)
    return {**value, name: kept, "leftOut": len(items) - len(kept)}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_LINE_CHARS:
        return f"{value[:MAX_LINE_CHARS]}… [{len(value)} characters]"
    return value


def as_log(lines: Sequence[str], guard: Guard, *, empty: str) -> str:
    """Return the newest lines of a log that fit; the first line says how many earlier ones are left out."""
    masked = guard.text("\n".join(_newest(lines, MASKED_CHARS))).split("\n") if lines else []
    kept: list[str] = []
    room = MAX_CHARS
    for line in reversed(masked):
        shown = _cut(line)
        room -= len(shown) + 1
        if room < 0:
            break
        kept.append(shown)
    if not kept:
        return empty
    left_out = len(lines) - len(kept)
    head = [f"[{left_out} earlier lines are left out]"] if left_out > 0 else []
    return "\n".join([*head, *reversed(kept)])


def _newest(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line)
        if room < 0 and kept:
            break
        kept.append(line)
    return kept[::-1]


def explain(error: ClientError, guard: Guard) -> str:
    """Return the message of an error with its fields, its trace id and the next step."""
    parts = [str(error)]
    if isinstance(error, ApiError):
        parts += [f"{name}: {message}" for name, message in error.fields.items() if message not in parts[0]]
        if error.trace_id:
            parts.append(f"trace id: {error.trace_id}")
    step = MISSING if isinstance(error, NotFound) else NEXT_STEPS.get(type(error))
    if step is not None:
        parts.append(f"next: {step}")
    return guard.message("\n".join(parts))[:MAX_CHARS]
