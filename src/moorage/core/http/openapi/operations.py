"""Operations of the OpenAPI document, for the API page and the reference."""

from __future__ import annotations

import json
import re
import shlex
from urllib.parse import quote

from moorage.core.http.openapi.schema_text import Schema, Schemas
from moorage.core.kit.records import dataclass

METHODS = ("get", "post", "put", "patch", "delete")
SCOPES = {
    "identity": "any credential",
    "org": "acts on the active organization",
    "path_org": "acts on the organization in the path",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route of the OpenAPI document."""

    method: str
    path: str
    spec: Schema

    @property
    def anchor(self) -> str:
        return f"{self.method}:{self.path}"

    @property
    def access(self) -> str:
        """Describe the required credential, role and organization."""
        if not self.spec.get("security", True):
            return "no credential"
        scope, min_role = self.spec.get("x-scope"), self.spec.get("x-role-floor", "any")
        roles = [] if min_role == "any" else [f"role {min_role} or above"]
        return ", ".join([*roles, SCOPES.get(str(scope), str(scope or "any credential"))])


def operations(document: Schema) -> dict[str, list[Operation]]:
    """Return the routes by tag, in the order of the document."""
    by_tag: dict[str, list[Operation]] = {tag["name"]: [] for tag in document.get("tags", [])}
    for path, item in document.get("paths", {}).items():
        for method in METHODS:
            if spec := item.get(method):
                tag = (spec.get("tags") or ["Other"])[0]
                by_tag.setdefault(tag, []).append(Operation(method, path, spec))
    return {tag: routes for tag, routes in by_tag.items() if routes}


def body_of(operation: Operation, schemas: Schemas) -> tuple[str, Schema] | None:
    """Return the content type and schema of the request body."""
    return _content(schemas.resolve(operation.spec.get("requestBody")))


def answer_of(operation: Operation, schemas: Schemas) -> tuple[str, str, Schema | None]:
    """Return status, content type and schema (in the envelope: `data`)."""
    for status, response in operation.spec.get("responses", {}).items():
        if status.startswith("2"):
            kind, schema = _content(schemas.resolve(response)) or ("", {})
            envelope = schemas.resolve(schema).get("properties", {})
            return status, kind, envelope.get("data") if "success" in envelope else schema
    return "200", "", None


def errors_of(operation: Operation) -> list[str]:
    return [status for status in operation.spec.get("responses", {}) if not status.startswith("2")]


def sentence(operation: Operation) -> str:
    """Return the summary and the description of a route as one text."""
    summary, description = operation.spec.get("summary", ""), operation.spec.get("description", "")
    return " ".join(part for part in (summary and f"{summary}.", description) if part)


def _content(holder: Schema) -> tuple[str, Schema] | None:
    for kind, media in holder.get("content", {}).items():
        return kind, media.get("schema") or {}
    return None


def curl(operation: Operation, schemas: Schemas, server: str) -> str:
    """Return a curl command for a route; words in capitals are placeholders."""
    path = re.sub(r"{(\w+)}", lambda match: match[1].upper(), operation.path)
    parts = ["curl"] if operation.method == "get" else ["curl", "-X", operation.method.upper()]
    if answer_of(operation, schemas)[1] == "text/event-stream":
        parts.insert(1, "-N")
    parts.append(shlex.quote(server + path + _query(operation, schemas)))
    lines = [" ".join(parts)]
    if operation.spec.get("security", True):
        lines.append('-H "Authorization: Bearer $TOKEN"')
    return " \\\n  ".join([*lines, *_curl_body(operation, schemas)])


def _query(operation: Operation, schemas: Schemas) -> str:
    pairs = [
        f"{quote(each['name'])}={quote(str(schemas.example(each.get('schema'), each['name'])))}"
        for each in operation.spec.get("parameters", [])
        if each.get("in") == "query" and each.get("required")
    ]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _curl_body(operation: Operation, schemas: Schemas) -> list[str]:
    body = body_of(operation, schemas)
    if body is None:
        return []
    kind, schema = body
    if kind == "multipart/form-data":
        return [f"-F {shlex.quote(f'{name}={value}')}" for name, value in form_example(schemas, schema).items()]
    value = json.dumps(schemas.example(schema), ensure_ascii=False)
    return [f"-H 'Content-Type: {kind}'", f"-d {shlex.quote(value)}"]


def form_example(schemas: Schemas, schema: Schema) -> Schema:
    """Return example values of a multipart body; `@FILE` for files."""
    properties: Schema = schemas.resolve(schema).get("properties", {})
    example = schemas.example(schema)
    files = {name for name, each in properties.items() if schemas.resolve(each).get("format") == "binary"}
    return {
        name: "@FILE" if name in files else example[name] for name in properties if name in files or name in example
    }
