"""Differences between moorage.toml and the platform."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from moorage.cli.manifest.reading import Entry, Manifest

MASK = "••••"
_SECRET_NAME = re.compile(
    r"(?i)(secret|token|passw|passphrase|api[-_]?key|private|credential|authorization|cookie|webhook|signing|salt"
    r"|(^|[-_])(key|auth|pwd|dsn)($|[-_]))"
)
_PASSWORD_IN_URL = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^/\s@]+@", re.IGNORECASE)


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value that differs, for display: None where a side has no value, secret-looking values are masked."""

    key: str
    before: Any
    after: Any
    needs_prune: bool = False  # the value is on the platform only
    problem: str = ""  # why the API cannot change it

    def masked(self) -> FieldChange:
        return replace(self, before=masked(self.key, self.before), after=masked(self.key, self.after))


@dataclass(slots=True)
class Change:
    """Difference of one resource. `entry` is the wanted resource, `live` the existing one in the same form."""

    kind: str
    name: str
    action: Action
    fields: list[FieldChange] = field(default_factory=list)
    needs_prune: bool = False
    problem: str = ""  # why it cannot be applied, with the next step
    path: tuple[str | int, ...] = ()  # of the entry in the file
    manifest: Manifest | None = field(default=None, repr=False)
    entry: Entry = field(default_factory=dict)
    live: Entry = field(default_factory=dict)
    ref: Any = None  # id or name of the existing resource in the API
    project: str | None = None
    parent: str | None = None  # name of the monitor of an alert

    @property
    def where(self) -> str:
        """File and line of the entry, or of its section where the file does not have it."""
        return self.where_of("")

    def where_of(self, key: str) -> str:
        """Return file and line of a key, such as `auto-scaling.max-replicas` or `redirects[0].source`."""
        names = [int(each) if each.isdecimal() else each for each in re.findall(r"[^.\[\]]+", key)]
        path = tuple(names) if names[:1] == list(self.path[:1]) else (*self.path, *names)
        return self.manifest.where(*path) if self.manifest is not None else ""

    def due_fields(self, *, prune: bool) -> list[FieldChange]:
        return [each for each in self.fields if prune or not each.needs_prune]

    def is_due(self, *, prune: bool) -> bool:
        """Report whether `apply` changes anything for it."""
        if self.action is Action.NOTHING or self.problem:
            return False
        if self.action is Action.UPDATE:
            return bool(self.due_fields(prune=prune))
        return prune or not self.needs_prune


def is_difference(change: Change) -> bool:
    return change.action is not Action.NOTHING or bool(change.problem)


def problems(changes: list[Change]) -> list[str]:
    """Return the reasons why the file cannot be applied; empty where it can. Missing secrets are no such reason."""
    reasons = [f"{each.where}: {each.problem}" for each in changes if each.problem and each.kind != "secret"]
    for each in changes:
        reasons += [
            f"{each.where_of(one.key)}: {each.kind} {each.name}: {one.problem}" for one in each.fields if one.problem
        ]
    return reasons


def missing_secrets(changes: list[Change]) -> list[str]:
    """Return the names of secrets that the file names and the project does not have."""
    return [each.name for each in changes if each.kind == "secret"]


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def masked(key: str, value: Any) -> Any:
    """Return a value for display: secret-looking ones and passwords in URLs are replaced."""
    if isinstance(value, Mapping):
        return {name: masked(name, each) for name, each in value.items()}
    if not isinstance(value, str) or not value:
        return value
    if is_secret_name(key.rpartition(".")[2]) and not value.startswith("$"):
        return MASK
    return _PASSWORD_IN_URL.sub(rf"\g<before>{MASK}@", value)
