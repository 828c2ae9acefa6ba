"""The model classes of the client: one module for each tag of the OpenAPI document."""

from __future__ import annotations

import textwrap
from typing import Any

from moorage.docs.client_source.operations import attribute
from moorage.docs.client_source.types import Types, camel, is_page, ref_name, snake

NOTE = "Generated from the OpenAPI document by `make docs`; edits are lost."
HEADER = f'"""{{title}}. {NOTE}"""\n\nfrom __future__ import annotations\n'
COMMENT_WIDTH = 110
LAZY = '''
def __getattr__(name: str) -> Any:
    """Import the module of a model on first use: a command needs few of them."""
    module = next((module for module, names in _NAMES.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    model = globals()[name] = getattr(import_module(f"moorage.client.{module}"), name)
    return model
'''
PAGES = frozenset(("CursorPage", "Page"))


def refs(schema: Any) -> list[str]:
    """Return the names of all models that a schema names, in order."""
    if isinstance(schema, dict):
        own = [name] if (name := ref_name(schema)) else []
        return own + [each for key, value in schema.items() if key != "discriminator" for each in refs(value)]
    return [each for value in schema for each in refs(value)] if isinstance(schema, list) else []


def by_tag(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the models of each tag; a model belongs to the first tag that uses it."""
    schemas = document["components"]["schemas"]
    owners: dict[str, str] = {}

    def claim(name: str, tag: str) -> None:
        if name not in owners:
            owners[name] = tag
            for each in refs(schemas[name]):
                claim(each, tag)

    for operations in document["paths"].values():
        for operation in operations.values():
            success = [value for status, value in operation["responses"].items() if status.startswith("2")]
            for name in refs(
                [operation.get("requestBody", {}), *({"content": each.get("content")} for each in success)]
            ):
                claim(name, operation["tags"][0])
    grouped: dict[str, list[str]] = {}
    for name in schemas:
        if name in owners and not is_page(name):
            grouped.setdefault(attribute(owners[name]), []).append(name)
    return grouped


def modules(document: dict[str, Any]) -> dict[str, str]:
    """Return the source of each module of models, by file name."""
    groups = by_tag(document)
    homes = {name: tag for tag, names in groups.items() for name in names}
    sources = {f"{tag}.py": _module(tag, names, homes, document) for tag, names in groups.items()}
    return {"__init__.py": _package(groups), **sources}


def _package(groups: dict[str, list[str]]) -> str:
    """Return the package: names of all models, whose modules are imported on first use."""
    modules = {f"models.{tag}": names for tag, names in sorted(groups.items())} | {"model": list(PAGES)}
    lines = [HEADER.format(title="All models of the API"), "from typing import TYPE_CHECKING, Any", ""]
    lines.append("if TYPE_CHECKING:")
    lines += [f"    from moorage.client.{module} import *  # noqa: F403" for module in modules]
    lines.append("\n_NAMES = {")
    for module, names in modules.items():
        wrapped = textwrap.fill(" ".join(sorted(names)), COMMENT_WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines.append(f'    "{module}": """\n{wrapped}\n    """,')
    lines += ["}\n", LAZY]
    return "\n".join(lines)


def _module(tag: str, names: list[str], homes: dict[str, str], document: dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    classes, types = [], Types()
    inputs = _input_names(document)
    for name in _ordered(names, schemas):
        types.is_input = name in inputs
        classes.append(_model(name, schemas[name], types))
    body = "\n\n\n".join(classes)
    imports = ["from typing import Any, Literal", "import msgspec", "from moorage.client.model import List, Model"]
    foreign: dict[str, set[str]] = {}
    for each in types.used - set(names) - PAGES:
        foreign.setdefault(homes[each], set()).add(each)
    imports += [
        f"from moorage.client.models.{home} import {', '.join(sorted(models))}" for home, models in foreign.items()
    ]
    title = f"Models of the group {tag.replace('_', ' ')}"
    return HEADER.format(title=title) + "\n" + "\n".join(imports) + f"\n\n\n{body}\n"


def _ordered(names: list[str], schemas: dict[str, Any]) -> list[str]:
    """Put unions last: they are expressions that need the classes."""
    return sorted(names, key=lambda name: "oneOf" in schemas[name])


def _input_names(document: dict[str, Any]) -> set[str]:
    schemas = document["components"]["schemas"]
    names: set[str] = set()

    def add(name: str) -> None:
        if name not in names:
            names.add(name)
            for each in refs(schemas[name]):
                add(each)

    for operations in document["paths"].values():
        for operation in operations.values():
            for name in refs(operation.get("requestBody", {})):
                add(name)
    return names


def _model(name: str, schema: dict[str, Any], types: Types) -> str:
    if "oneOf" in schema:
        return f"{name} = {types.of(schema)}"
    if "properties" not in schema:
        return f"{name} = {types.of({key: value for key, value in schema.items() if key != 'title'})}"
    lines = [f"class {name}(Model, kw_only=True):"]
    if description := schema.get("description"):
        lines.append(textwrap.indent(f'"""{_sentence(description)}"""\n', "    "))
    required = set(schema.get("required", ()))
    for field, kind in schema["properties"].items():
        lines += _field(field, kind, types, is_required=field in required)
    return "\n".join(lines) if schema["properties"] else "\n".join([*lines, "    pass"])


def _field(name: str, schema: dict[str, Any], types: Types, *, is_required: bool) -> list[str]:
    python = snake(name)
    renamed = f'name="{name}"' if camel(python) != name else ""
    kind = types.of(schema)
    if is_required and "const" in schema and types.is_input:
        default = repr(schema["const"]).replace("'", '"')
    elif is_required:
        default = ""
    elif types.is_input:
        kind, default = f"{kind} | msgspec.UnsetType", "msgspec.UNSET"
    else:
        kind, default = kind if kind.endswith("None") or kind == "Any" else f"{kind} | None", "None"
    if renamed:
        arguments = ", ".join(filter(None, (renamed, f"default={default}" if default else "")))
        default = f"msgspec.field({arguments})"
    comment = schema.get("description", "")
    above = [f"    # {line}" for line in textwrap.wrap(_sentence(comment), COMMENT_WIDTH)] if comment else []
    return [*above, f"    {python}: {kind}" + (f" = {default}" if default else "")]


def _sentence(text: str) -> str:
    return " ".join(text.split())
