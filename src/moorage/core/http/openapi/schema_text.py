"""JSON Schema in words: what the API page and the reference say about a body or an answer.

A schema is a tree with references, unions and cycles; a reader wants a table of fields. Whatever the schema, this
returns a table: what it cannot say is left out, a cycle ends where it closes, and a huge schema is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Schema = dict[str, Any]

MAX_DEPTH = 10
MAX_ROWS = 300  # A table that is longer than this helps nobody; the document has the rest.
LABEL_DEPTH = 4

# Keywords that say what kind of value it is, from which a missing `type` can be told.
_IMPLIED = {"properties": "object", "additionalProperties": "object", "items": "array", "prefixItems": "array"}
_TEXTS = {
    "uuid": "6f1f3c1e-8c0a-4c53-9a57-0d5a3a1c2b4d",
    "date-time": "2026-01-31T09:30:00.000Z",
    "date": "2026-01-31",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "binary": "@file",
}
# What a text with a pattern may look like: the first that fits is shown.
_GUESSES = ("harbor", "main", "HARBOR", "1.0.0", "0 9 * * *", "/harbor", "example.com", "0f" * 20, "16", "a@b.co")


@dataclass(frozen=True, slots=True)
class Field:
    """One row: where the value stands, what it is, and what it has to be."""

    path: str  # `autoScaling.minReplicas`, `items[].name`
    type: str
    required: bool
    rules: tuple[str, ...]
    text: str

    def presence(self, *, is_answer: bool) -> str:
        """Say what stands out: in a body what must be there, in an answer what may be missing."""
        return ("" if self.required else "may be missing") if is_answer else ("required" if self.required else "")


class Schemas:
    """Reads the schemas of one document, following its references."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def resolve(self, schema: Any, seen: frozenset[str] = frozenset()) -> Schema:
        """Return a schema without `$ref` and `allOf`: what they lead to stands in it."""
        if not isinstance(schema, dict):
            return {}
        own = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        found: Schema = {}
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            seen |= {ref}
            found = self.resolve(self._find(ref), seen)
        for part in _parts(schema, "allOf"):
            found = _merge(found, self.resolve(part, seen))
        return _merge(found, own)

    def label(self, schema: Any, depth: int = 0) -> str:
        """Say what kind of value a schema is for: `string (uuid)`, `list of objects`, `integer or null`."""
        if depth > LABEL_DEPTH:
            return "any"
        found = self.resolve(schema)
        if values := _values(found):
            return _join(_kind_of(value) for value in values)
        words = [self._word(kind, found, depth) for kind in _kinds(found)]
        words = words or [self.label(option, depth + 1) for option in _options(found)]
        return _join(words) or "any"

    def rules(self, schema: Any) -> tuple[str, ...]:
        """Say what a value has to be beyond its kind, and what stands in where it is left out."""
        found = self.resolve(schema)
        said = [*_own_rules(found)]
        for option in _options(found):
            resolved = self.resolve(option)
            said += [] if _kinds(resolved) == ["object"] else _own_rules(resolved)
        if "array" in _kinds(found):
            said += [f"each {rule}" for rule in _own_rules(self.resolve(found.get("items")))]
        if found.get("default") is not None:
            said.append(f"default {code(found['default'])}")
        return tuple(dict.fromkeys(said))

    def fields(self, schema: Any) -> list[Field]:
        """Return a row for every field in a schema, nested ones after their parent."""
        rows: list[Field] = []
        for row in self._walk(schema, "", frozenset()):
            if len(rows) == MAX_ROWS:
                rows.append(Field("…", "", False, (), "The OpenAPI document has the rest."))
                break
            rows.append(row)
        return _without_repeats(rows)

    def example(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        """Return a value that fits a schema, with only the fields that have to be there."""
        found = self.resolve(schema)
        for given in (*_parts(found, "examples"), found.get("example"), *_values(found), found.get("default")):
            if given is not None:
                return given
        kinds = [kind for kind in _kinds(found) if kind != "null"]
        options = [option for option in _options(found) if self.label(option) != "null"]
        if depth > MAX_DEPTH or (not kinds and not options):
            return {} if name == "" else None
        if not kinds or (options and "properties" not in found):
            return self.example(options[0], name, depth + 1)
        return self._example_of(kinds[0], found, name, depth)

    def _example_of(self, kind: str, found: Schema, name: str, depth: int) -> Any:
        if kind == "object":
            properties = _properties(found)
            wanted = [each for each in _parts(found, "required") if each in properties]
            return {each: self.example(properties[each], each, depth + 1) for each in wanted}
        if kind == "array":
            return [self.example(found.get("items"), name, depth + 1)] if found.get("minItems") else []
        if kind in ("integer", "number"):
            return found.get("minimum", 1)
        return True if kind == "boolean" else _example_text(found, name)

    def _find(self, ref: str) -> Any:
        place: Any = self._document
        for part in ref.removeprefix("#/").split("/"):
            place = place.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
        return place

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
        found = self.resolve(schema)
        yield from self._properties(found, path, above)
        if "items" in found:
            yield from self._walk(found["items"], f"{path}[]", above)
        if isinstance(found.get("additionalProperties"), dict):
            yield from self._walk(found["additionalProperties"], f"{path}.*" if path else "*", above)
        yield from self._variants(found, path, above)

    def _properties(self, found: Schema, path: str, above: frozenset[str]) -> Iterator[Field]:
        required = _parts(found, "required")
        for name, each in _properties(found).items():
            place = f"{path}.{name}" if path else str(name)
            text = self.resolve(each).get("description", "")
            yield Field(place, self.label(each), name in required, self.rules(each), str(text))
            yield from self._walk(each, place, above)

    def _variants(self, found: Schema, path: str, above: frozenset[str]) -> Iterator[Field]:
        """The fields of each form that a union may take, with a note of which form has them."""
        forms = [option for option in _options(found) if self._has_fields(option)]
        for number, form in enumerate(forms, start=1):
            note = f"In the form {self._form_name(form, found, number)}." if len(forms) > 1 else ""
            for row in self._walk(form, path, above):
                text = " ".join(part for part in (note, row.text) if part)
                yield replace(row, text=text)

    def _has_fields(self, schema: Any) -> bool:
        found = self.resolve(schema)
        return any(key in found for key in ("properties", "items", "additionalProperties", "anyOf", "oneOf"))

    def _form_name(self, form: Any, union: Schema, number: int) -> str:
        discriminator = union.get("discriminator")
        discriminator = discriminator if isinstance(discriminator, dict) else {}
        mapping = discriminator.get("mapping")
        for value, ref in mapping.items() if isinstance(mapping, dict) else ():
            if isinstance(form, dict) and form.get("$ref") == ref:
                return f"`{discriminator.get('propertyName')}` = `{value}`"
        return str(self.resolve(form).get("title") or number)


def code(value: Any) -> str:
    """Write a JSON value as code; texts lose their quotes, because every value would have them."""
    return f"`{value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)}`"


def _own_rules(schema: Schema) -> list[str]:
    said = [_span(schema, "minLength", "maxLength", " characters"), _span(schema, "minimum", "maximum")]
    said += [_span(schema, "minItems", "maxItems", " items"), _span(schema, "minProperties", "maxProperties", " names")]
    if "exclusiveMinimum" in schema:
        said.append(f"above {schema['exclusiveMinimum']}")
    if "exclusiveMaximum" in schema:
        said.append(f"below {schema['exclusiveMaximum']}")
    if "multipleOf" in schema:
        said.append(f"a multiple of {schema['multipleOf']}")
    if "pattern" in schema:
        said.append(f"matches {code(schema['pattern'])}")
    if "const" in schema:
        said.append(f"always {code(schema['const'])}")
    if enum := _parts(schema, "enum"):
        said.append("one of " + ", ".join(code(value) for value in enum))
    said += ["no repeats"] if schema.get("uniqueItems") else []
    said += ["deprecated"] if schema.get("deprecated") else []
    return [rule for rule in said if rule]


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
    # Capitals stand for what only the caller knows.
    return "harbor" if lower.endswith("name") else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() or "TEXT"


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _values(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else _parts(schema, "enum")


def _kinds(schema: Schema) -> list[str]:
    given = schema.get("type")
    if isinstance(given, list):
        return [str(kind) for kind in given]
    if isinstance(given, str):
        return [given]
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
    """Return the references that a schema is made of, to know a cycle when it closes."""
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
    # bool comes before int, which it is one of.
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
    """Forms of a union share fields: the same row twice says nothing new."""
    return list(dict.fromkeys(rows))
