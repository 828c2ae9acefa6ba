"""Schemas of the OpenAPI document as Python types of the generated client."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from typing import Any

_PAGE = re.compile(r"^(CursorPage|Page)_(\w+)_$")
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def snake(name: str) -> str:
    """Return a name of the API as a Python name."""
    text = re.sub(r"[^0-9A-Za-z]+", "_", re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name)).lower()
    return f"{text}_" if keyword.iskeyword(text) else text


def camel(name: str) -> str:
    """Return the name that msgspec gives a field with `rename="camel"`."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def is_page(name: str) -> bool:
    return _PAGE.match(name) is not None


def ref_name(schema: dict[str, Any]) -> str | None:
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None


@dataclass(slots=True)
class Types:
    """Python types of schemas; collects the models that they name in `used`."""

    prefix: str = ""  # of models
    is_input: bool = False
    used: set[str] = field(default_factory=set)

    def of(self, schema: dict[str, Any] | None) -> str:
        if not schema:
            return "Any"
        if (name := ref_name(schema)) is not None:
            return self._model(name)
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return " | ".join(dict.fromkeys(self.of(each) for each in schema[union]))
        if self.is_input and ("const" in schema or "enum" in schema):
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(_literal(value) for value in values)}]"
        return self._plain(schema)

    def _plain(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type")
        if kind == "array":
            return f"List[{self.of(schema.get('items'))}]"
        if kind == "object":
            extra = schema.get("additionalProperties")
            return f"dict[str, {self.of(extra) if isinstance(extra, dict) else 'Any'}]"
        if isinstance(kind, list):
            return " | ".join(_SIMPLE[each] for each in kind)
        if kind is None and ("enum" in schema or "const" in schema):
            return type(schema.get("enum", [schema.get("const")])[0]).__name__
        return _SIMPLE.get(kind or "", "Any")

    def _model(self, name: str) -> str:
        page = _PAGE.match(name)
        if page is None:
            self.used.add(name)
            return f"{self.prefix}{name}"
        self.used |= {page[1], page[2]}
        return f"{page[1]}[{self.prefix}{page[2]}]"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
