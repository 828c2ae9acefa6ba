"""Keys of moorage.toml, derived from the input models of the client.

A key is the API's name in kebab-case: `baseDir` is `base-dir`. The type decides how a value is written:

| in the API | in the file |
|---|---|
| a list of objects with `name` and `value` (`env`, `headers`) | a table: `{ LOG_LEVEL = "info" }` |
| an object with `key` alone (`tier`) | a text: `"micro"` |
| `secrets` | a list of names; values are never in the file |
| another object (`autoScaling`) | a table with the keys of that object |
| an address that the API never returns (`slackWebhook`) | `{ env = "SLACK_WEBHOOK" }`: read when it is needed |

A new field of the API is therefore a new key without new code.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from moorage.client.model import Model

# Fields that the API accepts and never returns. Their values come from the environment of the command.
HIDDEN = frozenset(("webhook_url", "slack_webhook"))
SECRETS = "secrets"


class Shape(StrEnum):
    """How the value of a key is written in the file."""

    PLAIN = "plain"  # as in the API
    PAIRS = "pairs"  # a table of texts
    KEY = "key"  # a text in place of an object with the field `key`
    NAMES = "names"  # a list of names of secrets
    TABLE = "table"  # a table with keys of its own
    HIDDEN = "hidden"  # `{ env = "NAME" }`


@dataclass(frozen=True, slots=True)
class Field:
    """One key of the file."""

    key: str
    name: str  # of the models' field
    shape: Shape
    kind: Any  # type of the value; for a table the model of its keys
    is_required: bool = False
    is_updatable: bool = True  # false: the API accepts it at creation only
    text: str = ""  # description for editors

    @property
    def table(self) -> dict[str, Field]:
        return derive((self.kind,), None)


def to_key(name: str) -> str:
    return name.replace("_", "-")


def derive(
    create: tuple[type[Model], ...],
    update: type[Model] | None,
    *,
    left_out: Iterable[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Field]:
    """Return the keys of a resource: fields of any of the models for creation and of the one for changes."""
    names = renamed or {}
    changed = {each.name for each in msgspec.structs.fields(update)} if update is not None else set()
    fields: dict[str, Field] = {}
    for model in (*create, *((update,) if update is not None else ())):
        for info in msgspec.structs.fields(model):
            if info.name in left_out:
                continue
            key = names.get(info.name, to_key(info.name))
            kind = _without_unset(info.type)
            if key in fields:
                fields[key] = _merged(fields[key], kind)
                continue
            shape, kind = _shape(info.name, kind)
            is_required = info.required and all(_requires(each, info.name) for each in create)
            is_updatable = update is None or info.name in changed
            fields[key] = Field(key, info.name, shape, kind, is_required, is_updatable)
    return fields


def _requires(model: type[Model], name: str) -> bool:
    return any(each.required for each in msgspec.structs.fields(model) if each.name == name)


def _without_unset(kind: Any) -> Any:
    """Return a type without UNSET and None, which a file expresses by leaving the key out."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = tuple(each for each in get_args(kind) if each not in (msgspec.UnsetType, type(None)))
    return members[0] if len(members) == 1 else Union[members]  # noqa: UP007 - of a tuple


def _merged(field: Field, kind: Any) -> Field:
    """Join the choices of one key of several models, such as the kinds of a project."""
    if get_origin(field.kind) is Literal and get_origin(kind) is Literal:
        choices = tuple(dict.fromkeys((*get_args(field.kind), *get_args(kind))))
        return replace(field, kind=Literal[choices])
    return field


def _shape(name: str, kind: Any) -> tuple[Shape, Any]:
    if name in HIDDEN:
        return Shape.HIDDEN, kind
    if get_origin(kind) is list and _is_model(get_args(kind)[0]):
        names = {each.name for each in msgspec.structs.fields(get_args(kind)[0])}
        if names == {"name", "value"}:
            return (Shape.NAMES, list[str]) if name == SECRETS else (Shape.PAIRS, dict[str, str])
    if _is_model(kind):
        names = {each.name for each in msgspec.structs.fields(kind)}
        return (Shape.KEY, str) if names == {"key"} else (Shape.TABLE, kind)
    return Shape.PLAIN, kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Model)


def to_input(model: type[Any], entry: Mapping[str, Any], fields: Mapping[str, Field]) -> Any:
    """Return an input model of the client with the values of an entry that the model has."""
    known = {each.name: each for each in msgspec.structs.fields(model)}
    values = {
        field.name: _to_api(field, known[field.name].type, entry[key])
        for key, field in fields.items()
        if key in entry and field.name in known and field.shape is not Shape.NAMES
    }
    return model(**{name: value for name, value in values.items() if value is not None})


def _to_api(field: Field, kind: Any, value: Any) -> Any:
    kind = _without_unset(kind)
    if field.shape is Shape.PAIRS:
        pair = get_args(kind)[0]
        return [pair(name=name, value=text) for name, text in value.items()]
    if field.shape is Shape.KEY:
        return kind(key=value)
    if field.shape is Shape.TABLE:
        return to_input(kind, value, field.table)
    return value


def from_output(output: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return the values of a resource of the platform in the shapes of the file; unset ones are left out."""
    entry: dict[str, Any] = {}
    for key, field in fields.items():
        value = getattr(output, field.name, None)
        if value is None or field.shape in (Shape.HIDDEN, Shape.NAMES):
            continue
        entry[key] = _to_file(field, value)
    return entry


def _to_file(field: Field, value: Any) -> Any:
    if field.shape is Shape.PAIRS:
        return {each.name: each.value for each in value}
    if field.shape is Shape.KEY:
        return value.key
    if field.shape is Shape.TABLE:
        return from_output(value, field.table)
    return value
