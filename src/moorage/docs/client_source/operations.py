"""Operations of the OpenAPI document as methods of the client: names, arguments and answers."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from moorage.docs.client_source.types import Types, ref_name, snake

# Words of a group that its methods leave out: `client.databases.create`, not `create_database`.
NOUNS = {
    "Scheduled functions": "scheduled_function",
    "Organizations": "org",
    "GitHub": "installation",
    "Identity": "",
    "Registries": "registry",
}
ATTRIBUTES = {"Scheduled functions": "schedules", "GitHub": "github"}
# Called by Stripe, GitHub and browsers, never by a program with a token.
LEFT_OUT = frozenset(("receive_stripe_event", "receive_github_event", "show_callback"))
DOC_WIDTH = 100


@dataclass(slots=True)
class Argument:
    name: str  # of the method
    kind: str
    api_name: str
    default: str | None = None  # None: required


@dataclass(slots=True)
class Method:
    """One method; `paging` is the class of pages that it returns, or empty."""

    name: str
    http: str
    path: str
    doc: str
    path_args: list[Argument] = field(default_factory=list)
    query: list[Argument] = field(default_factory=list)
    body: list[Argument] = field(default_factory=list)
    body_model: str = ""  # the input class; empty where `body` is passed as it is
    is_form: bool = False
    has_optional_body: bool = False
    returns: str = "None"
    has_envelope: bool = True
    is_stream: bool = False
    paging: str = ""
    item: str = ""

    @property
    def iterator(self) -> str:
        return "_".join(["iterate", *self.name.split("_")[1:]])


def attribute(tag: str) -> str:
    return ATTRIBUTES.get(tag, snake(tag))


def noun_of(tag: str) -> str:
    return NOUNS.get(tag, snake(tag).removesuffix("s"))


def short_name(operation_id: str, tag: str) -> str:
    noun = noun_of(tag)
    if not noun:
        return operation_id
    text = f"_{operation_id}_"
    for form in (f"_{noun}s_", f"_{snake(tag)}_", f"_{noun}_"):
        text = text.replace(form, "_")
    return text.strip("_") or operation_id


def groups(document: dict[str, Any], types: Types) -> dict[str, list[Method]]:
    """Return the methods of each tag."""
    methods_by_tag: dict[str, list[Method]] = {}
    for path, operations in document["paths"].items():
        for http, operation in operations.items():
            if operation["operationId"] not in LEFT_OUT:
                method = _method(http, path, operation, document, types)
                methods_by_tag.setdefault(operation["tags"][0], []).append(method)
    for tag, methods in methods_by_tag.items():
        names = [method.name for method in methods]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two operations of {tag} get the name {', '.join(doubled)}")
    return methods_by_tag


def _method(http: str, path: str, operation: dict[str, Any], document: dict[str, Any], types: Types) -> Method:
    doc = _docstring(operation["summary"], operation.get("description", ""))
    method = Method(short_name(operation["operationId"], operation["tags"][0]), http.upper(), path, doc)
    types.is_input = True
    for parameter in operation.get("parameters", ()):
        _add_parameter(method, parameter, types)
    _add_body(method, operation.get("requestBody"), document, types)
    taken = {each.name for each in (*method.body, *method.query)}
    for each in method.path_args:
        if each.name in taken:  # `name` of a project and `name` of its secret
            each.name = f"{noun_of(operation['tags'][0])}_{each.name}"
    types.is_input = False
    _add_answer(method, operation["responses"], types)
    return method


def _docstring(summary: str, description: str) -> str:
    head = textwrap.fill(f"{' '.join(summary.split()).rstrip('.')}.", DOC_WIDTH)
    rest = [textwrap.fill(" ".join(block.split()), DOC_WIDTH) for block in description.split("\n\n") if block.strip()]
    return "\n\n".join([head, *rest])


def _add_parameter(method: Method, parameter: dict[str, Any], types: Types) -> None:
    name = parameter["name"]
    argument = Argument(snake(name), types.of(parameter["schema"]), name)
    if parameter["in"] == "path":
        argument.kind = "int | str" if argument.kind == "int" else argument.kind
        method.path_args.append(argument)
    elif parameter["in"] == "query" and name not in ("access_token", "organization_id"):
        if not parameter.get("required"):
            argument.kind, argument.default = f"{argument.kind} | None", "None"
        method.query.append(argument)


def _add_body(method: Method, body: dict[str, Any] | None, document: dict[str, Any], types: Types) -> None:
    if body is None:
        return
    ((kind, content),) = body["content"].items()
    method.is_form = kind == "multipart/form-data"
    method.has_optional_body = not body.get("required", False)
    schema = content["schema"]
    parts = schema.get("allOf", [schema])
    name = next((reference for part in parts if (reference := ref_name(part))), None)
    resolved = document["components"]["schemas"][name] if name else parts[0]
    if method.is_form:
        method.body = [*_arguments(resolved, types), Argument("file", "Upload", _file_field(parts))]
    elif "properties" in resolved and name:
        method.body_model = types.of({"$ref": name})
        method.body = _arguments(resolved, types)
    else:
        method.body = [Argument("body", types.of({"$ref": name}) if name else "Any", "body")]


def _file_field(parts: list[dict[str, Any]]) -> str:
    """Return the name of the form field that carries the file."""
    properties = (item for part in parts for item in part.get("properties", {}).items())
    return str(next(name for name, schema in properties if schema.get("format") == "binary"))


def _arguments(schema: dict[str, Any], types: Types) -> list[Argument]:
    required = set(schema.get("required", ()))
    arguments = []
    for name, kind in schema.get("properties", {}).items():
        if name in required:
            arguments.append(Argument(snake(name), types.of(kind), name))
        else:
            arguments.append(Argument(snake(name), f"{types.of(kind)} | UnsetType", name, "UNSET"))
    return arguments


def _add_answer(method: Method, responses: dict[str, Any], types: Types) -> None:
    answer = next(value for status, value in responses.items() if status.startswith("2"))
    ((kind, content),) = answer["content"].items()
    if kind == "text/event-stream":
        method.is_stream, method.returns = True, "Event"
        return
    schema = content.get("schema", {})
    properties = schema.get("properties", {})
    method.has_envelope = "success" in properties
    data = properties.get("data") if method.has_envelope else schema
    if data is None:
        return
    method.returns = types.of(data)
    if method.returns.startswith(("CursorPage[", "Page[")):
        method.paging, _, rest = method.returns.partition("[")
        method.item = rest.removesuffix("]")
