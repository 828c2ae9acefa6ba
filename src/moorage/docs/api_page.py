"""The page of all routes, from the OpenAPI document."""

from __future__ import annotations

from typing import Any

from moorage.core.http.openapi.operations import Operation, answer_of, body_of, errors_of, operations, sentence
from moorage.core.http.openapi.schema_text import Field, Schemas
from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join

HEAD = ("Name", "Type", "Rules")


def page(document: dict[str, Any]) -> str:
    """Return the page: the routes by tag, each with parameters, body and response."""
    schemas, blocks = Schemas(document), list[str]()
    for tag, group in operations(document).items():
        blocks.append(f"## {tag}")
        for operation in group:
            blocks += _route(operation, schemas)
    return join(
        "# API",
        "The running platform shows the same at `/docs`, with a command for each route, and as an OpenAPI 3.1 document "
        'at `/v1/openapi.json`. An answer is `{"success": true, "data": …}`; the tables list the fields of `data`. '
        "[Errors](errors.md) has the failures.",
        *blocks,
    )


def _route(operation: Operation, schemas: Schemas) -> list[str]:
    deprecated = " Deprecated." if operation.spec.get("deprecated") else ""
    return [
        f"### {operation.method.upper()} {code(operation.path)}",
        sentence(operation) + deprecated,
        f"Access: {operation.access}. Errors: {', '.join(errors_of(operation))}.",
        *_titled("Parameters:", _parameters(operation, schemas)),
        *_body(operation, schemas),
        *_answer(operation, schemas),
    ]


def _parameters(operation: Operation, schemas: Schemas) -> str:
    rows = []
    for each in map(schemas.resolve, operation.spec.get("parameters", [])):
        schema = each.get("schema")
        kind = f"{schemas.label(schema)}, {each['in']}"
        rows.append(Field(each["name"], kind, each.get("required", False), schemas.rules(schema), _description(each)))
    return table(HEAD, [_row(row) for row in rows])


def _description(parameter: dict[str, Any]) -> str:
    return str(parameter.get("description") or parameter.get("schema", {}).get("description", ""))


def _body(operation: Operation, schemas: Schemas) -> list[str]:
    body = body_of(operation, schemas)
    if body is None:
        return []
    kind, schema = body
    rows = table(HEAD, [_row(row) for row in schemas.fields(schema)])
    return _titled(f"Body ({code(kind)}):", rows) or [f"Body ({code(kind)}): {schemas.label(schema)}."]


def _answer(operation: Operation, schemas: Schemas) -> list[str]:
    status, kind, schema = answer_of(operation, schemas)
    if schema is None:
        return [f"Answer {status}: no data."]
    content = schemas.label(schema) if kind == "application/json" else code(kind)
    rows = table(HEAD, [_row(row, is_answer=True) for row in schemas.fields(schema)])
    return _titled(f"Answer {status}, {content}:", rows) or [f"Answer {status}: {content}."]


def _titled(title: str, rows: str) -> list[str]:
    return [title, rows] if rows else []


def _row(row: Field, *, is_answer: bool = False) -> tuple[str, str, str]:
    rules = ", ".join(filter(None, (row.presence(is_answer=is_answer), *row.rules)))
    return code(row.path), row.type, f"{rules}. {row.text}" if rules and row.text else rules or row.text
