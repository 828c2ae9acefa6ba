"""The API page: all routes of the OpenAPI document as HTML.

The page loads no other resources. It starts with an introduction to the first call; every route shows its fields, a
curl command, and a form that sends the request to this server. All text of the document is escaped. The script of the
page builds the forms when they are opened, from one attribute for each route.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from moorage.core.http.answer import STATUS
from moorage.core.http.openapi.operations import (
    Operation,
    answer_of,
    body_of,
    curl,
    errors_of,
    form_example,
    operations,
    sentence,
)
from moorage.core.http.openapi.schema_text import Field, Schema, Schemas
from moorage.core.http.pages import style


def render(document: Schema) -> str:
    """Return the page of an OpenAPI document."""
    info = document.get("info", {})
    server = (document.get("servers") or [{}])[0].get("url", "")
    schemas, routes = Schemas(document), operations(document)
    title = f"{info.get('title', 'API')} API"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{sheet()}</style></head><body>",
        f"<nav aria-label=Contents>{_contents(title, routes)}</nav><main>",
        f"<h1>{escape(title)}</h1><p>{_text(info.get('description', ''))} "
        f"<span class=soft>Version {escape(str(info.get('version', '')))}.</span></p>",
        _introduction(document, server),
    ]
    for tag, tagged in routes.items():
        parts.append(f'<section id="{_id(tag)}"><h2>{escape(tag)}</h2>')
        parts += [_route(operation, schemas, server) for operation in tagged]
        parts.append("</section>")
    return "\n".join([*parts, f"</main><script>{script()}</script></body></html>\n"])


def sheet() -> str:
    return style.sheet("moorage.core.http.openapi", "page.css")


@cache
def script() -> str:
    return (files("moorage.core.http.openapi") / "page.js").read_text()


def _contents(title: str, routes: dict[str, list[Operation]]) -> str:
    topics = {"start": "First call", "envelope": "Answers", "errors": "Errors", "limits": "Limits and pages"}
    links = "".join(f'<li><a href="#{name}">{title}</a>' for name, title in topics.items())
    parts = [
        f'<p class=home><a href="/docs">{escape(title)}</a> <a href="/">Console</a></p>',
        '<input id=filter type=search placeholder="Filter routes" aria-label="Filter routes" autocomplete=off>',
        f"<ul>{links}</ul>",
    ]
    for tag, tagged in routes.items():
        links = "".join(f'<li><a href="{_href(op.anchor)}">{_method(op)} {_path(op.path)}</a>' for op in tagged)
        parts.append(f"<details open><summary>{escape(tag)}</summary><ul>{links}</ul></details>")
    return "".join(parts)


def _introduction(document: Schema, server: str) -> str:
    url = escape(server)
    responses = document.get("components", {}).get("responses", {})
    rows = "".join(
        f"<tr><td><code>{name}</code><td>{status}<td>{_text(responses.get(str(status), {}).get('description', ''))}"
        for name, status in STATUS.items()
    )
    return f"""<section id=start><h2>First call</h2>
<p>Send an API token, or the session token of a login, as a bearer token. On the machine that the platform runs on,
<code>moorage admin token</code> prints one:</p>
<pre tabindex=0><code>TOKEN=$(moorage admin token)
curl {url}/v1/me -H "Authorization: Bearer $TOKEN"</code></pre>
<p>An API token belongs to one organization. A session token belongs to a person: say which organization it acts on with
the header <code>x-organization-id</code>, unless there is only one. The same content is available as an OpenAPI 3.1
document at <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>
<form id=token-form><p>Each route below has a form that sends the request from this page. Paste a token once; it stays
in this tab.</p>
<label>Token <input id=token type=password autocomplete=off></label>
<label>Organization id, for the session token of a person with several
<input id=organization type=text autocomplete=off></label>
<div class=row><button type=submit>Store</button>
<button type=button id=take class="button plain" hidden>Use my session of the console</button>
<span id=token-state class=soft role=status></span></div></form></section>
<section id=envelope><h2>Answers</h2>
<p>A success carries <code>data</code>, or nothing more; the tables below list what is in <code>data</code>. A failure
carries a code, a message, the bad fields by name where there are any, and the id to search the logs for, which is also
the header <code>x-request-id</code>. Times are UTC with milliseconds.</p>
<pre tabindex=0><code>{{"success": true, "data": {{"id": 1}}}}
{{"success": false, "error": {{"code": "bad_request", "message": "The request is not valid",
  "fields": {{"name": "is required"}}, "traceId": "4bf92f3577b34da6"}}}}</code></pre>
<p>JSON is read strictly: <code>"60"</code> is not a number, and <code>null</code> is only for fields that allow it.
Fields that the API does not know are ignored.</p></section>
<section id=errors><h2>Errors</h2><table><thead><tr><th>Code<th>Status<th>When<tbody>{rows}</table></section>
<section id=limits><h2>Limits and pages</h2>
<p><b>Rate.</b> Requests are counted by token, or by address without one, in windows of a minute: 300 unless the
operator chose another number. <code>RateLimit-Limit</code>, <code>RateLimit-Remaining</code> and
<code>RateLimit-Reset</code> (seconds) say where you are; then comes 429 with <code>Retry-After</code>.</p>
<p><b>Pages.</b> A list with <code>page</code> and <code>pageSize</code> answers <code>items</code> and
<code>total</code>. A list with <code>cursor</code> and <code>limit</code> answers <code>items</code> and
<code>nextCursor</code>: send it back for what follows, until it is <code>null</code>. Other lists are whole.</p>
<p><b>Repeating a write.</b> Send an <code>Idempotency-Key</code> of your own making: within 24 hours, the same key with
the same body gets the first answer again, and the write happens once. With another body, while the first is still at
work, or where the answer showed a secret or was over 256 KB, it is 409.</p></section>"""


def _route(operation: Operation, schemas: Schemas, server: str) -> str:
    spec = operation.spec
    deprecated = " <span class=tag>deprecated</span>" if spec.get("deprecated") else ""
    parts = [
        f'<section id="{_id(operation.anchor)}"><h3><a href="{_href(operation.anchor)}">{_method(operation)} '
        f"{_path(operation.path, 'code')}</a></h3>",
        f"<p>{_text(sentence(operation))}",
        f"<p><span class=tag>{escape(operation.access)}</span>{deprecated}",
        _parameters(spec.get("parameters", []), schemas),
        _body(operation, schemas),
        _answer(operation, schemas),
        _errors(operation),
        f"<pre tabindex=0><code>{escape(curl(operation, schemas, server))}</code></pre>",
        f'<details class=try data-try="{_form_data(operation, schemas)}"><summary>Try it</summary></details></section>',
    ]
    return "\n".join(part for part in parts if part)


def _form_data(operation: Operation, schemas: Schemas) -> str:
    """Return the description of a form for the script of the page, as an attribute value."""
    kind, schema = body_of(operation, schemas) or ("", {})
    is_form = kind == "multipart/form-data"
    parameters = [schemas.resolve(each) for each in operation.spec.get("parameters", [])]
    described = {
        "method": operation.method,
        "path": operation.path,
        "path_names": re.findall(r"{(\w+)}", operation.path),
        "query": [
            [str(each.get("name")), bool(each.get("required"))] for each in parameters if each.get("in") == "query"
        ],
        "form": form_example(schemas, schema) if is_form else {},
        "body": schemas.example(schema) if kind and not is_form else None,
    }
    return escape(json.dumps(described, ensure_ascii=False))


def _parameters(parameters: list[Schema], schemas: Schemas) -> str:
    rows = [
        Field(
            str(each.get("name")),
            f"{schemas.label(each.get('schema'))}, {each.get('in')}",
            bool(each.get("required")),
            schemas.rules(each.get("schema")),
            str(each.get("description") or schemas.resolve(each.get("schema")).get("description", "")),
        )
        for each in map(schemas.resolve, parameters)
    ]
    return f"<h4>Parameters</h4>{_table(rows)}" if rows else ""


def _body(operation: Operation, schemas: Schemas) -> str:
    body = body_of(operation, schemas)
    if body is None:
        return ""
    kind, schema = body
    optional = "" if schemas.resolve(operation.spec["requestBody"]).get("required") else ", may be left out"
    head = f"<h4>Body <code>{escape(kind)}</code>{optional}</h4>"
    return head + (_table(schemas.fields(schema)) or f"<p class=soft>{escape(schemas.label(schema))}")


def _answer(operation: Operation, schemas: Schemas) -> str:
    status, kind, schema = answer_of(operation, schemas)
    head = f"<h4>Answer {escape(status)}"
    if schema is None:
        return f"{head}</h4><p class=soft>No data."
    if kind != "application/json":
        return f"{head} <code>{escape(kind)}</code></h4>"
    return f"{head}, {escape(schemas.label(schema))}</h4>{_table(schemas.fields(schema), is_answer=True)}"


def _errors(operation: Operation) -> str:
    statuses = " ".join(escape(status) for status in errors_of(operation))
    return f'<p class=soft><a href="#errors">Errors</a>: {statuses}' if statuses else ""


def _table(rows: list[Field], *, is_answer: bool = False) -> str:
    if not rows:
        return ""
    body = "".join(_row(row, is_answer) for row in rows)
    return f"<table><thead><tr><th>Name<th>Type<th>Rules<tbody>{body}</table>"


def _row(row: Field, is_answer: bool) -> str:
    rules = [f"<b>{presence}</b>"] if (presence := row.presence(is_answer=is_answer)) else []
    rules += [_text(rule) for rule in row.rules]
    text = f"{'. ' if rules else ''}{_text(row.text)}" if row.text else ""
    return f"<tr><td><code>{escape(row.path)}</code><td>{escape(row.type)}<td>{', '.join(rules)}{text}"


def _method(operation: Operation) -> str:
    return f'<span class="m {operation.method}">{operation.method.upper()}</span>'


def _path(path: str, tag: str = "span") -> str:
    """Return a path that breaks after slashes only."""
    return f"<{tag} class=path>{escape(path[:1])}{escape(path[1:]).replace('/', '/<wbr>')}</{tag}>"


def _text(text: Any) -> str:
    """Escape a text; text between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(text)))


def _id(name: str) -> str:
    return escape(re.sub(r"\s+", "-", name))


def _href(name: str) -> str:
    return "#" + escape(quote(re.sub(r"\s+", "-", name), safe="/:"))
