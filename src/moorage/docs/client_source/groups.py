"""The method classes of the client: one module for each tag, blocking and asynchronous."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from moorage.docs.client_source.models import HEADER
from moorage.docs.client_source.operations import Argument, Method, attribute, groups
from moorage.docs.client_source.types import Types

CLASS = '''class {cls}:
    """Methods of the group {tag}."""

    def __init__(self, transport: {transport}) -> None:
        self._transport = transport

'''
KEY = Argument("idempotency_key", "str | None", "", "None")


@dataclass(frozen=True, slots=True)
class Flavour:
    """Words that differ between the blocking and the asynchronous client."""

    package: str
    transport_module: str
    transport: str
    prefix: str  # of the classes
    define: str
    wait: str
    iterator: str


BLOCKING = Flavour("api", "blocking", "BlockingTransport", "", "def", "", "Iterator")
ASYNC = Flavour("api_async", "asynchronous", "AsyncTransport", "Async", "async def", "await ", "AsyncIterator")


def modules(document: dict[str, Any], flavour: Flavour) -> dict[str, str]:
    """Return the source of each module, by file name."""
    sources, classes = {}, {}
    for tag, methods in groups(document, Types("models.")).items():
        name = attribute(tag)
        classes[name] = f"{flavour.prefix}{''.join(word.title() for word in name.split('_'))}"
        sources[f"{name}.py"] = _module(tag, methods, classes[name], flavour)
    return {"__init__.py": _package(classes, flavour), **sources}


def _package(classes: dict[str, str], flavour: Flavour) -> str:
    kind = "blocking" if flavour is BLOCKING else "asynchronous"
    module = f"moorage.client.{flavour.package}"
    lines = [
        HEADER.format(title=f"All groups of the API, {kind}"),
        "from functools import cached_property",
        "from typing import TYPE_CHECKING",
        "",
        "if TYPE_CHECKING:",
        f"    from moorage.client.{flavour.transport_module} import {flavour.transport}",
        *(f"    from {module}.{name} import {cls}" for name, cls in sorted(classes.items())),
        f"\n\nclass {flavour.prefix}Groups:",
        '    """One attribute for each group of routes, imported on first use."""\n',
        f"    def __init__(self, transport: {flavour.transport}) -> None:",
        "        self._groups_transport = transport",
    ]
    for name, cls in classes.items():
        lines.append(f"\n    @cached_property\n    def {name}(self) -> {cls}:")
        lines.append(f"        from {module}.{name} import {cls}\n")
        lines.append(f"        return {cls}(self._groups_transport)")
    return "\n".join(lines) + "\n"


def _module(tag: str, methods: list[Method], cls: str, flavour: Flavour) -> str:
    blocks = [_method(method, flavour) for method in methods]
    blocks += [_iterator(method, flavour) for method in methods if method.paging]
    body = "\n\n".join(textwrap.indent(block, "    ") for block in blocks)
    imports = [
        f"from collections.abc import {flavour.iterator}",
        "from typing import Any, Literal",
        "from msgspec import UNSET, UnsetType",
        f"from moorage.client.{flavour.transport_module} import {flavour.transport}",
        "from moorage.client.exchange import Call, Upload, path_part",
        "from moorage.client import models",
        "from moorage.client.model import CursorPage, List, Page",
        "from moorage.client.streams import Event",
    ]
    head = CLASS.format(cls=cls, tag=tag, transport=flavour.transport)
    return HEADER.format(title=f"Routes of the group {tag}") + "\n" + "\n".join(imports) + f"\n\n\n{head}{body}\n"


def _signature(method: Method, arguments: list[Argument], name: str, returns: str, define: str) -> str:
    required = [f"{each.name}: {each.kind}" for each in method.path_args]
    keyword = [f"{each.name}: {each.kind}" + (f" = {each.default}" if each.default else "") for each in arguments]
    listed = ", ".join(["self", *required, *(["*", *keyword] if keyword else [])])
    return f"{define} {name}({listed}) -> {returns}:"


def _arguments(method: Method) -> list[Argument]:
    is_write = method.http != "GET" and not method.is_stream
    return [*method.body, *method.query, *([KEY] if is_write else [])]


def _method(method: Method, flavour: Flavour) -> str:
    doc = _docstring(method.doc)
    if method.is_stream:
        head = _signature(method, _arguments(method), method.name, f"{flavour.iterator}[Event]", "def")
        return f"{head}\n{doc}\n    return self._transport.follow({_call(method)})"
    head = _signature(method, _arguments(method), method.name, method.returns, flavour.define)
    options = "" if method.has_envelope else ", has_envelope=False"
    send = f"{flavour.wait}self._transport.call({_call(method)}, {method.returns}{options})"
    if method.returns == "Any":  # a value of any type is no value of a type
        return f"{head}\n{doc}\n    result: Any = {send}\n    return result"
    return f"{head}\n{doc}\n    {'' if method.returns == 'None' else 'return '}{send}"


def _docstring(text: str) -> str:
    quotes = f'{"r" if chr(92) in text else ""}"""'
    return textwrap.indent(f'{quotes}{text}{chr(10) if chr(10) in text else ""}"""', "    ")


def _call(method: Method) -> str:
    path = method.path
    for each in method.path_args:
        path = path.replace(f"{{{each.api_name}}}", f"{{path_part({each.name})}}")
    parts = [f'"{method.http}"', f'{"f" if method.path_args else ""}"{path}"']
    if method.query:
        parts.append(f"query={{{', '.join(f'{_quoted(each.api_name)}: {each.name}' for each in method.query)}}}")
    if method.is_form:
        fields = [each for each in method.body if each.name != "file"]
        parts.append(f"form={{{', '.join(f'{_quoted(each.api_name)}: {each.name}' for each in fields)}}}")
        field = next(each.api_name for each in method.body if each.name == "file")
        parts.append(f"upload=file, upload_field={_quoted(field)}")
    elif method.body_model:
        parts.append(f"body={method.body_model}({', '.join(f'{each.name}={each.name}' for each in method.body)})")
    elif method.body:
        parts.append("body=body")
    if method.http != "GET" and not method.is_stream:
        parts.append("key=idempotency_key")
    if any(each.name == "wait" for each in method.query):
        parts.append("wait_s=wait or 0")
    return f"Call({', '.join(parts)})"


def _iterator(method: Method, flavour: Flavour) -> str:
    step = "cursor" if method.paging == "CursorPage" else "page"
    given = [each for each in _arguments(method) if each.name != step]
    head = _signature(method, given, method.iterator, f"{flavour.iterator}[{method.item}]", "def")
    passed = ", ".join(
        [*(each.name for each in method.path_args), *(f"{each.name}={each.name}" for each in given), f"{step}={step}"]
    )
    loop = "iterate_cursors" if step == "cursor" else "iterate_pages"
    doc = f"Iterate over the items of all pages of `{method.name}`."
    fetch = f"lambda {step}: self.{method.name}({passed})"
    return f'{head}\n    """{doc}"""\n    return self._transport.{loop}({fetch})'


def _quoted(text: str) -> str:
    return f'"{text}"'
