"""Resources by number or name, and settings that were given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from moorage.cli.output.terminal import plain, stop

T = TypeVar("T")


def find(items: Iterable[T], key: str, kind: str) -> T:
    """Return the resource with this number or name; exits if there is none, or if several have the name."""
    listed: list[Any] = list(items)
    matches = [each for each in listed if str(each.id) == key] or [each for each in listed if each.name == key]
    if not matches:
        stop(f"there is no {kind} {plain(key)}; `moorage {kind}s list` shows those that exist")
    if len(matches) > 1:
        numbers = ", ".join(str(each.id) for each in sorted(matches, key=lambda each: each.id))
        stop(f"several {kind}s have the name {plain(key)}; use one of the numbers {numbers}")
    item: T = matches[0]
    return item


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value, for a request that leaves the others as they are."""
    return {name: value for name, value in fields.items() if value is not None}
