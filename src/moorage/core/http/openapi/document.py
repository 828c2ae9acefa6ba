"""Generates the OpenAPI 3.1 document from the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from moorage.core.http.answer import STATUS, Answer, Stream
from moorage.core.http.idempotency.keys import MAX_KEY
from moorage.core.http.models import WaitQuery
from moorage.core.http.openapi.links import links_of
from moorage.core.http.route import Route, Scope, Uuid

REF = "#/components/schemas/{name}"
_ERRORS = {
    400: "The request is malformed or invalid; see `fields`",
    401: "No credential, or one that is invalid or has expired",
    402: "A plan limit, a paid feature, or a missing verified payment method (card wall)",
    403: "The role is too low, or the user is suspended",
    404: "Missing, or not the caller's",
    409: "Conflicts with existing state",
    429: "Too many requests",
    500: "Unexpected error",
}


# pydantic keeps its own names for bounds around a custom validator; these are the names of JSON Schema.
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


class _Schema(GenerateJsonSchema):
    """pydantic's JSON schema without titles that repeat field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        generated = super().generate_inner(schema)
        return {_BOUNDS.get(key, key): value for key, value in generated.items()}


def document(routes: Iterable[Route], *, version: str, server: str, tag_order: Sequence[str] = ()) -> dict[str, Any]:
    """Return the OpenAPI document; tags that are not in `tag_order` follow in alphabetical order."""
    shown = list(routes)
    answers = [route.answer for route in shown if _is_data(route.answer)]
    schemas, components = msgspec.json.schema_components(answers, ref_template=REF)
    by_answer = dict(zip((id(answer) for answer in answers), schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in shown:
        operation = _operation(route, by_answer.get(id(route.answer)), components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
        if links := links_of(route, shown, by_answer.get(id(route.answer)), components):
            operation["responses"][str(route.status)]["links"] = links
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": version,
            "description": "Sites, apps, functions, databases, schedules and monitors behind one API.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server}],
        "tags": [{"name": tag} for tag in _ordered({route.tag for route in shown}, tag_order)],
        "paths": paths,
        "components": {
            "schemas": {**components, **_FAILURE},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API token or a session token."}
            },
            "headers": _HEADERS,
            "responses": {
                **{str(status): _failure_response(status, text) for status, text in _ERRORS.items()},
                "Refused": _REFUSED,
            },
        },
    }


def _is_data(answer: Any) -> bool:
    return answer not in (None, NoneType, Stream, Answer)


def _ordered(tags: set[str], order: Sequence[str]) -> list[str]:
    known = [tag for tag in order if tag in tags]
    return [*known, *sorted(tags.difference(known))]


def _operation(route: Route, schema: dict[str, Any] | None, components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": route.summary.rstrip("."),
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _success(route, schema), **_failures(route)},
        "security": [] if route.scope is Scope.PUBLIC else [{"bearer": []}],
    }
    if route.description:
        operation["description"] = route.description
    if route.deprecated:
        operation["deprecated"] = True
    if route.scope is not Scope.PUBLIC:
        operation["x-role-floor"] = str(route.min_role or "any")
        operation["x-scope"] = str(route.scope)
    if body := _body(route, components):
        operation["requestBody"] = body
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    parameters = []
    for name in re.findall(r"{(\w+)}", route.path):
        hint = route.handler.__annotations__.get(name, "int" if name.endswith("_id") else "str")
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if hint in ("int", int):
            schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
        elif hint in ("Uuid", Uuid):
            schema = {"type": "string", "format": "uuid"}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    return parameters


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    queries = [query for query in (route.query, WaitQuery if route.follow else None) if query is not None]
    for query in queries:
        schema = query.model_json_schema(schema_generator=_Schema)
        required = schema.get("required", [])
        for name, each in schema["properties"].items():
            parameters.append({"name": name, "in": "query", "required": name in required, "schema": _drop_null(each)})
    if route.events:
        for name in ("access_token", "organization_id"):
            parameters.append({"name": name, "in": "query", "required": False, "schema": {"type": "string"}})
    return parameters


def _drop_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a schema, because a query parameter cannot be null."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        return {**{key: value for key, value in schema.items() if key not in ("anyOf", "default")}, **options[0]}
    return schema


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    parameters = []
    if route.scope is Scope.ORG or route.operation == "whoami":
        text = "The organization a session token acts on; an API token carries its own."
        parameters.append(_header("x-organization-id", text, {"type": "string"}))
    if route.is_write and route.scope is not Scope.PUBLIC:
        text = "The same key with the same body takes effect once within 24 hours."
        schema = {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[ -~]+$"}
        parameters.append(_header("Idempotency-Key", text, schema))
    for name in route.webhook_headers:
        text = "The signature of the body." if name == route.webhook_headers[0] else "Sent with each event."
        parameters.append(_header(name, text, {"type": "string"}, required=True))
    return parameters


def _header(name: str, text: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "description": text, "schema": schema}


def _body(route: Route, components: dict[str, Any]) -> dict[str, Any] | None:
    if route.upload is not None:
        fields = _component(route.upload.fields, components) if route.upload.fields else {"type": "object"}
        schema = {"allOf": [fields, _files(route.upload.files)]}
        return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    if route.webhook_headers:
        return {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    if route.body is None:
        return None
    schema = _component(route.body, components)
    return {"required": not route.body_optional, "content": {"application/json": {"schema": schema}}}


def _files(names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of the files of an upload, of which exactly one is read."""
    file: dict[str, Any] = {"type": "string", "format": "binary"}
    if len(names) == 1:
        return {"type": "object", "properties": {names[0]: file}, "required": [names[0]]}
    file["description"] = f"One of {' and '.join(f'`{name}`' for name in names)} is required."
    required = [{"required": [name]} for name in names]
    return {"type": "object", "properties": dict.fromkeys(names, file), "anyOf": required}


def _component(model: type[BaseModel], components: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}", schema_generator=_Schema)
    for name, each in {**schema.pop("$defs", {}), model.__name__: schema}.items():
        if components.setdefault(name, each) != each:
            raise ValueError(f"cannot document {model.__module__}.{model.__name__}: another schema is named {name!r}")
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _success(route: Route, schema: dict[str, Any] | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": "Done",
        "headers": _headers("X-Request-Id", *(_RATE if route.is_counted else [])),
    }
    if route.events:
        return {**answer, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if route.is_page:
        return {**answer, "content": {"text/html": {"schema": {"type": "string"}}}}
    if route.raw or route.answer is Answer:
        return {**answer, "content": {"application/json": {"schema": schema or {}}}}
    envelope: dict[str, Any] = {
        "type": "object",
        "required": ["success"],
        "properties": {"success": {"const": True}},
    }
    if schema is not None:
        envelope["required"] = ["success", "data"]
        envelope["properties"]["data"] = schema
    return {**answer, "content": {"application/json": {"schema": envelope}}}


def _failures(route: Route) -> dict[str, Any]:
    if route.raw:
        refusals = ("400", "401", "429") if route.is_write else ()
        named = {**dict.fromkeys(refusals, "Refused"), "500": "500"}
    else:
        is_public_read = route.scope is Scope.PUBLIC and not route.is_write
        statuses = {400, 429, 500} if is_public_read else set(STATUS.values())
        named = {str(status): str(status) for status in sorted(statuses)}
    return {status: {"$ref": f"#/components/responses/{name}"} for status, name in named.items()}


def _failure_response(status: int, text: str) -> dict[str, Any]:
    return {
        "description": text,
        "headers": _headers("X-Request-Id", *_RATE, *(["Retry-After"] if status == 429 else [])),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}},
    }


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


_RATE = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_HEADERS: dict[str, Any] = {
    "X-Request-Id": {
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 64},
        "description": "Id of the request in logs; an id from the client is used if it is valid.",
    },
    **{
        name: {"schema": {"type": "integer"}, "description": text}
        for name, text in {
            "RateLimit-Limit": "Requests per minute.",
            "RateLimit-Remaining": "Requests left in the window.",
            "RateLimit-Reset": "Seconds left in the window.",
            "Retry-After": "Seconds to wait.",
        }.items()
    },
}
# Refusals of webhook receivers, which answer without the envelope.
_REFUSED: dict[str, Any] = {
    "description": "The request is malformed, its signature does not hold, or too many bodies are received at once",
    "headers": _headers("X-Request-Id"),
    "content": {
        "application/json": {
            "schema": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
        }
    },
}

_FAILURE: dict[str, Any] = {
    "Failure": {
        "type": "object",
        "required": ["success", "error"],
        "properties": {
            "success": {"const": False},
            "error": {
                "type": "object",
                "required": ["code", "message", "traceId"],
                "properties": {
                    "code": {"enum": sorted(STATUS)},
                    "message": {"type": "string"},
                    "fields": {"type": "object", "additionalProperties": {"type": "string"}},
                    "traceId": {"type": "string"},
                },
            },
        },
    }
}
