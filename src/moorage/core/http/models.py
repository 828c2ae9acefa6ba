"""Base classes of request and response schemas.

`Input` and `QueryInput` are pydantic models: they report all field errors at once, keyed by the names that the client
sent. `Output` is a msgspec struct, because encoding dominates the time of a read. camelCase exists only in the wire
names of these classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from moorage.core.http.strictjson import field_name
from moorage.errors import BadRequest

M = TypeVar("M", bound=BaseModel)

MAX_WAIT_S = 60
MAX_REPORTED_FIELDS = 100


class Input(BaseModel):
    """A JSON body: strict types, unknown fields ignored."""

    # The validator is built by the first request that needs it; most processes never need all of them.
    model_config = ConfigDict(strict=True, alias_generator=to_camel, extra="ignore", frozen=True, defer_build=True)

    def sent(self) -> dict[str, Any]:
        """Return only the fields that the client sent, by their Python names."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def related_problems(cls, sent: Mapping[str, Any]) -> dict[str, str]:
        """Return the problems of fields whose rules depend on other fields, by their names in the request.

        It gets the request before validation, so that these problems are reported with all others.
        """
        return {}


class SnakeInput(Input):
    """A JSON body with snake_case wire names."""

    model_config = ConfigDict(alias_generator=None)


class QueryInput(BaseModel):
    """A query string; its texts are converted to the types of the fields."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, defer_build=True)


class Output(msgspec.Struct, rename="camel", frozen=True):
    """An object in a response."""


def optional(**options: Any) -> Any:
    """Declare a field that may be missing but must not be null."""
    return Field(default=None, json_schema_extra=_without_default, **options)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _whole_number(value: Any) -> Any:
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,15}", value):
            raise ValueError("should be a whole number")
        return int(value)
    return value


QueryInt = Annotated[int, BeforeValidator(_whole_number)]


class WaitQuery(QueryInput):
    """Query of a write that starts work: see `http.waiting`."""

    wait: Annotated[
        QueryInt,
        Field(
            ge=0,
            le=MAX_WAIT_S,
            description="Answer when the work that this request starts has ended, after at most so many seconds.",
        ),
    ] = 0


def validate(model: type[M], value: Any, *, problems: Mapping[str, str] | None = None) -> M:
    """Validate a body or query; raises BadRequest with a message per field.

    `problems` of other parts of the request are reported with those of the value.
    """
    fields = dict(problems or {})
    find_related = getattr(model, "related_problems", None)
    if find_related is not None and isinstance(value, dict):
        fields |= find_related(value)
    valid = None
    try:
        valid = model.model_validate(value)
    except ValidationError as error:
        fields |= _field_messages(error, value, model)
    if valid is None or fields:
        raise _invalid(fields)
    return valid


def _invalid(fields: Mapping[str, str]) -> BadRequest:
    message = "The request is not valid"
    if len(fields) > MAX_REPORTED_FIELDS:
        message += f": {len(fields)} fields, the first {MAX_REPORTED_FIELDS} are listed"
    return BadRequest(message, fields=dict(islice(fields.items(), MAX_REPORTED_FIELDS)))


def accepted_fields(model: type[BaseModel]) -> set[str]:
    """Return the wire names that a request body takes."""
    names: set[str] = set()
    for name, info in model.model_fields.items():
        names.add(info.alias or name)
        if isinstance(info.validation_alias, AliasChoices):
            names.update(choice for choice in info.validation_alias.choices if isinstance(choice, str))
    return names


def _field_messages(error: ValidationError, value: Any, model: type[BaseModel]) -> dict[str, str]:
    """Return a message for each invalid field of the client's input."""
    root = model.model_fields.get("root")
    tags = 1 if root is not None and root.discriminator is not None else 0  # pydantic's locations begin with the tag
    fields: dict[str, str] = {}
    for item in error.errors(include_url=False, include_input=False):
        location = _client_location(item["loc"][tags:], value, item["type"])
        if item["type"] in _TAGS:
            # The discriminator field of the union is invalid or missing.
            location = (*location, item["ctx"]["discriminator"].strip("'"))
        fields.setdefault(field_name(location), _message(item))
    return fields


def _client_location(location: tuple[str | int, ...], value: Any, kind: str) -> tuple[str | int, ...]:
    """Remove the union members that pydantic adds to a location."""
    parts: list[str | int] = []
    for part in location:
        if isinstance(value, dict) and (part in value or (kind == "missing" and part == location[-1])):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            continue
        parts.append(part)
    return tuple(parts)


_TAGS = frozenset(("union_tag_invalid", "union_tag_not_found"))
_MESSAGES = {
    "union_tag_not_found": "is required",
    "missing": "is required",
    "string_type": "should be a string",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "bool_type": "should be true or false",
    "list_type": "should be a list",
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "finite_number": "should be a finite number",
}


def _message(item: Any) -> str:
    if message := _MESSAGES.get(item["type"]):
        return message
    if item["type"] == "union_tag_invalid":
        return f"should be one of {item['ctx']['expected_tags']}"
    text = str(item["msg"]).removeprefix("Value error, ")
    text = text.replace("Input should", "should").replace("String should", "should").replace("List should", "should")
    return text[:1].lower() + text[1:]
