"""JSON Schema as tables of fields, for the API page and the reference.

A schema is a tree with references, unions and cycles. Every schema becomes a table: unsupported keywords are left out,
cycles end where they close, and long tables are truncated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from moorage.core.kit.records import dataclass

Schema = dict[str, Any]

MAX_DEPTH = 10
MAX_ROWS = 300  # Longer tables are truncated; the OpenAPI document has the rest.
LABEL_DEPTH = 4

# Keywords that imply a missing `type`.
_IMPLIED = {"properties": "object", "additionalProperties": "object", "items": "array", "prefixItems": "array"}
_TEXTS = {
    "uuid": "6f1f3c1e-8c0a-4c53-9a57-0d5a3a1c2b4d",
    "date-time": "2026-01-31T09:30:00.000Z",
    "date": "2026-01-31",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "binary": "@file",
}
# Candidates for the example of a text with a pattern; the first match is used.
_GUESSES = ("harbor", "main", "HARBOR", "1.0.0", "0 9 * * *", "/harbor", "example.com", "0f" * 20, "16", "a@b.co")


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a table: the path, type and rules of a value."""

    path: str  # `autoScaling.minReplicas`, `items[].name`
    type: str
    required: bool
    rules: tuple[str, ...]
    text: str

    def presence(self, *, is_answer: bool) -> str:
        """Mark required fields of a body and optional fields of an answer."""
        return ("" if self.required else "may be missing") if is_answer else ("required" if self.required else "")


class Schemas:
    """Reads the schemas of one OpenAPI document and resolves references."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def resolve(self, schema: Any, seen: frozenset[str] = frozenset()) -> Schema:
        """Return a schema with the content of `$ref` and `allOf` merged into it."""
        if not isinstance(schema, dict):
            return {}
        own = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        merged: Schema = {}
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            seen |= {ref}
            merged = self.resolve(self._find(ref), seen)
        for part in _parts(schema, "allOf"):
            merged = _merge(merged, self.resolve(part, seen))
        return _merge(merged, own)

    def label(self, schema: Any, depth: int = 0) -> str:
        """Describe a type: `string (uuid)`, `list of objects`, `integer or null`."""
        if depth > LABEL_DEPTH:
            return "any"
        resolved = self.resolve(schema)
        if values := _values(resolved):
            return _join(_kind_of(value) for value in values)
        words = [self._word(kind, resolved, depth) for kind in _kinds(resolved)]
        words = words or [self.label(option, depth + 1) for option in _options(resolved)]
        return _join(words) or "any"

    def rules(self, schema: Any) -> tuple[str, ...]:
        """Describe the constraints of a value beyond its type, and its default."""
        resolved = self.resolve(schema)
        rules = [*_own_rules(resolved)]
        for each in _options(resolved):
            option = self.resolve(each)
            rules += [] if _kinds(option) == ["object"] else _own_rules(option)
        if "array" in _kinds(resolved):
            rules += [f"each {rule}" for rule in _own_rules(self.resolve(resolved.get("items")))]
        if resolved.get("default") is not None:
            rules.append(f"default {code(resolved['default'])}")
        return tuple(dict.fromkeys(rules))

    def fields(self, schema: Any) -> list[Field]:
        """Return a row for every field of a schema, nested fields after their parent."""
        rows: list[Field] = []
        for row in self._walk(schema, "", frozenset()):
            if len(rows) == MAX_ROWS:
                rows.append(Field("…", "", False, (), "The OpenAPI document has the rest."))
                break
            rows.append(row)
        return _without_repeats(rows)

    def example(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        """Return a value that matches a schema, with only its required fields."""
        resolved = self.resolve(schema)
        examples = (*_parts(resolved, "examples"), resolved.get("example"))
        for value in (*examples, *_values(resolved), resolved.get("default")):
            if value is not None:
                return value
        kinds = [kind for kind in _kinds(resolved) if kind != "null"]
        options = [option for option in _options(resolved) if self.label(option) != "null"]
        if depth > MAX_DEPTH or (not kinds and not options):
            return {} if name == "" else None
        if not kinds or (options and "properties" not in resolved):
            return self.example(options[0], name, depth + 1)
        return self._example_of(kinds[0], resolved, name, depth)

    def _example_of(self, kind: str, schema: Schema, name: str, depth: int) -> Any:
        if kind == "object":
            properties = _properties(schema)
            required = [each for each in _parts(schema, "required") if each in properties]
            return {each: self.example(properties[each], each, depth + 1) for each in required}
        if kind == "array":
            return [self.example(schema.get("items"), name, depth + 1)] if schema.get("minItems") else []
        if kind in ("integer", "number"):
            return schema.get("minimum", 1)
        return True if kind == "boolean" else _example_text(schema, name)

    def _find(self, ref: str) -> Any:
        node: Any = self._document
        for part in ref.removeprefix("#/").split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return node

    def _word(self, kind: str, schema: Schema, depth: int) -> str:
        if kind == "array":
            return f"list of {_plural(self.label(schema.get('items'), depth + 1))}"
        extra = schema.get("additionalProperties")
        if kind == "object" and isinstance(extra, dict) and extra and not schema.get("properties"):
            return f"map of {_plural(self.label(extra, depth + 1))}"
        if kind == "string" and schema.get("format"):
            return f"string ({schema['format']})"
        return kind

    def _walk(self, schema: Any, path: str, above: frozenset[str]) -> Iterator[Field]:
        refs = _refs(schema)
        if refs & above or path.count(".") + path.count("[") > MAX_DEPTH:
            return
        above |= refs
        resolved = self.resolve(schema)
        yield from self._properties(resolved, path, above)
        if "items" in resolved:
            yield from self._walk(resolved["items"], f"{path}[]", above)
        if isinstance(resolved.get("additionalProperties"), dict):
            yield from self._walk(resolved["additionalProperties"], f"{path}.*" if path else "*", above)
        yield from self._variants(resolved, path, above)

    def _properties(self, schema: Schema, path: str, above: frozenset[str]) -> Iterator[Field]:
        required = _parts(schema, "required")
        for name, each in _properties(schema).items():
            field_path = f"{path}.{name}" if path else str(name)
            text = self.resolve(each).get("description", "")
            yield Field(field_path, self.label(each), name in required, self.rules(each), str(text))
            yield from self._walk(each, field_path, above)

    def _variants(self, schema: Schema, path: str, above: frozenset[str]) -> Iterator[Field]:
        """Yield the fields of each form of a union, with a note that names the form."""
        forms = [option for option in _options(schema) if self._has_fields(option)]
        for number, form in enumerate(forms, start=1):
            note = f"In the form {self._form_name(form, schema, number)}." if len(forms) > 1 else ""
            for row in self._walk(form, path, above):
                text = " ".join(part for part in (note, row.text) if part)
                yield replace(row, text=text)

    def _has_fields(self, schema: Any) -> bool:
        resolved = self.resolve(schema)
        return any(key in resolved for key in ("properties", "items", "additionalProperties", "anyOf", "oneOf"))

    def _form_name(self, form: Any, union: Schema, number: int) -> str:
        discriminator = union.get("discriminator")
        discriminator = discriminator if isinstance(discriminator, dict) else {}
        mapping = discriminator.get("mapping")
        for value, ref in mapping.items() if isinstance(mapping, dict) else ():
            if isinstance(form, dict) and form.get("$ref") == ref:
                return f"`{discriminator.get('propertyName')}` = `{value}`"
        return str(self.resolve(form).get("title") or number)


def code(value: Any) -> str:
    """Format a JSON value as code; texts without quotes."""
    return f"`{value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)}`"


def _own_rules(schema: Schema) -> list[str]:
    rules = [_span(schema, "minLength", "maxLength", " characters"), _span(schema, "minimum", "maximum")]
    rules += [
        _span(schema, "minItems", "maxItems", " items"),
        _span(schema, "minProperties", "maxProperties", " names"),
    ]
    if "exclusiveMinimum" in schema:
        rules.append(f"above {schema['exclusiveMinimum']}")
    if "exclusiveMaximum" in schema:
        rules.append(f"below {schema['exclusiveMaximum']}")
    if "multipleOf" in schema:
        rules.append(f"a multiple of {schema['multipleOf']}")
    if "pattern" in schema:
        rules.append(f"matches {code(schema['pattern'])}")
    if "const" in schema:
        rules.append(f"always {code(schema['const'])}")
    if enum := _parts(schema, "enum"):
        rules.append("one of " + ", ".join(code(value) for value in enum))
    rules += ["no repeats"] if schema.get("uniqueItems") else []
    rules += ["deprecated"] if schema.get("deprecated") else []
    return [rule for rule in rules if rule]


def _span(schema: Schema, low: str, high: str, unit: str = "") -> str:
    least, most = schema.get(low), schema.get(high)
    least = None if least == 0 and unit else least
    if least is None and most is None:
        return ""
    if most is None or most == 2**63 - 1:
        return f"at least {least}{unit}"
    if least is None:
        return f"at most {most}{unit}"
    return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"


def _example_text(schema: Schema, name: str) -> str:
    if isinstance(pattern := schema.get("pattern"), str):
        return next((guess for guess in _GUESSES if _matches(pattern, guess)), "…")
    known = _TEXTS.get(str(schema.get("format")))
    if known:
        return known
    lower = name.lower()
    if "email" in lower or "url" in lower:
        return _TEXTS["email" if "email" in lower else "uri"]
    # Words in capitals are placeholders.
    return "harbor" if lower.endswith("name") else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() or "TEXT"


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _values(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else _parts(schema, "enum")


def _kinds(schema: Schema) -> list[str]:
    declared = schema.get("type")
    if isinstance(declared, list):
        return [str(kind) for kind in declared]
    if isinstance(declared, str):
        return [declared]
    return list(dict.fromkeys(kind for key, kind in _IMPLIED.items() if key in schema))


def _options(schema: Schema) -> list[Any]:
    return [*_parts(schema, "anyOf"), *_parts(schema, "oneOf")]


def _parts(schema: Schema, key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _properties(schema: Schema) -> Schema:
    value = schema.get("properties")
    return value if isinstance(value, dict) else {}


def _refs(schema: Any) -> frozenset[str]:
    """Return the references of a schema, to detect cycles."""
    if not isinstance(schema, dict):
        return frozenset()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return frozenset(own).union(*(_refs(part) for part in _parts(schema, "allOf")))


def _merge(one: Schema, other: Schema) -> Schema:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**_properties(one), **_properties(other)}
    if "required" in one and "required" in other:
        both["required"] = [*_parts(one, "required"), *_parts(other, "required")]
    return both


def _kind_of(value: Any) -> str:
    # bool is a subclass of int, so it comes first.
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number", list: "list", dict: "object"}
    return next((kind for type_, kind in kinds.items() if isinstance(value, type_)), "null")


def _join(words: Any) -> str:
    unique = [word for word in dict.fromkeys(words) if word != "any"]
    return " or ".join(sorted(unique, key=lambda word: word == "null"))


def _plural(label: str) -> str:
    if label == "any":
        return "anything"
    return f"{label}s" if label.isalpha() else f"({label})" if " or " in label else label


def _without_repeats(rows: list[Field]) -> list[Field]:
    """Remove duplicate rows, because the forms of a union share fields."""
    return list(dict.fromkeys(rows))
