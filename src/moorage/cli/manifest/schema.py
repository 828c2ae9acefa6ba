"""JSON Schema of moorage.toml for editors, from the same table as the checks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from moorage.cli.manifest.fields import Field, Shape
from moorage.cli.manifest.reading import REMOVED
from moorage.cli.manifest.resources import PROJECT, REMOVABLE, SECTIONS, Resource
from moorage.client.model import Model

DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that editors know for TOML
SCHEMA_FILE = ".moorage.schema.json"
DESCRIPTIONS = {
    "project": "The project of this folder.",
    "databases": "Databases; linked ones give the project their address as a secret.",
    "domains": "Custom domains of the project.",
    "redirects": "Redirects of the project; the first one that matches applies.",
    "headers": "Response headers of the project.",
    "schedules": "Functions that run at fixed times.",
    "cronjobs": "Programs that run at fixed times, from a repository or an image.",
    "monitors": "Checks of URLs; a path is one of the project's address.",
    "alerts": "Alerts of the monitor.",
    "removed": "Names of resources that `moorage apply --prune` deletes.",
    "env": "Environment variables; values of secrets do not belong here.",
    "secrets": "Names of secrets that the project needs; values are never in this file.",
    "kind": "Kind of the project; `auto` is found out from the files.",
}
_FIELD = re.compile(r"    (\w+): ")


def document() -> dict[str, Any]:
    """Return the schema of the whole file."""
    properties = {PROJECT.section: _table(PROJECT)}
    properties |= {each.section: {"type": "array", "items": _table(each)} for each in SECTIONS}
    names = {"type": "array", "items": {"type": "string", "minLength": 1}}
    properties[REMOVED] = {"type": "object", "properties": dict.fromkeys(REMOVABLE, names)}
    properties[REMOVED]["additionalProperties"] = False
    for key, schema in properties.items():
        schema["description"] = DESCRIPTIONS[key]
    return {
        "$schema": DRAFT,
        "title": "moorage.toml",
        "description": "Settings of a folder that is deployed with Moorage.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def text() -> str:
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def _table(resource: Resource) -> dict[str, Any]:
    comments = comments_of(*resource.create, *((resource.update,) if resource.update is not None else ()))
    schema = _object(resource.fields, comments)
    for child in resource.children:
        schema["properties"][child.section] = {
            "type": "array",
            "items": _table(child),
            "description": DESCRIPTIONS[child.section],
        }
    return schema


def _object(fields: Mapping[str, Field], comments: Mapping[str, str]) -> dict[str, Any]:
    properties = {}
    for key, field in fields.items():
        properties[key] = _value(field)
        description = field.text or DESCRIPTIONS.get(key) or comments.get(field.name)
        if description:
            properties[key]["description"] = description
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [key for key, field in fields.items() if field.is_required]
    return schema | ({"required": required} if required else {})


def _value(field: Field) -> dict[str, Any]:
    if field.shape is Shape.TABLE:
        return _object(field.table, comments_of(field.kind))
    if field.shape is Shape.HIDDEN:
        env = {"type": "string", "minLength": 1, "description": "Variable with the value, where `moorage` runs."}
        return {"type": "object", "properties": {"env": env}, "required": ["env"], "additionalProperties": False}
    if field.shape is Shape.PAIRS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    return _type(field.kind)


def _type(kind: Any) -> dict[str, Any]:
    origin, members = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(members)}
    if origin is list:
        return {"type": "array", "items": _type(members[0])}
    if origin is dict or kind is dict:
        return {"type": "object"}
    if members:
        return {"anyOf": [_type(each) for each in members]}
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return {"type": names[kind]} if kind in names else {}


def comments_of(*models: type[Model]) -> dict[str, str]:
    """Return the comments above the fields of generated models: the descriptions of the OpenAPI document."""
    comments: dict[str, str] = {}
    for model in models:
        above: list[str] = []
        for line in inspect.getsource(model).splitlines():
            if line.startswith("    # "):
                above.append(line.removeprefix("    # "))
                continue
            if (field := _FIELD.match(line)) and above:
                comments.setdefault(field[1], " ".join(above))
            above = []
    return comments
