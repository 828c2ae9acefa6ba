"""Calls of operations by the OpenAPI document: parameters come from links, and each answer is checked against it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
TIMEOUT_S = 60.0
SETTLED_S = 120.0
LOOK_S = 0.05
_EXPRESSION = re.compile(r"\$(?:response\.body#(?P<pointer>/.*)|request\.path\.(?P<name>\w+))")


@functools.cache
def library() -> Any:
    """Import Schemathesis on its first use: each process that collects tests would import it, for half a second."""
    return importlib.import_module("schemathesis")


@functools.cache
def checks() -> list[Any]:
    return [getattr(library().checks, name) for name in CHECKS]


@dataclass(frozen=True)
class Upload:
    """A multipart body: its fields, and one file."""

    field: str
    content: bytes
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Answered:
    """A request that succeeded: its path parameters and its answer."""

    path: Mapping[str, Any]
    body: Any

    @property
    def data(self) -> Any:
        return self.body["data"]

    def value_of(self, expression: str) -> Any:
        """Return what a runtime expression of a link stands for."""
        match = _EXPRESSION.fullmatch(expression)
        assert match is not None, expression
        if match["name"]:
            return self.path[match["name"]]
        found = self.body
        for part in match["pointer"].split("/")[1:]:
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found


@dataclass
class Operations:
    """The operations of one platform, and how each of them was answered so far."""

    url: str
    document: dict[str, Any]
    statuses: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    answered: dict[str, Answered] = field(default_factory=dict)  # the latest success of each operation
    paths: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the path parameters of that success

    def __post_init__(self) -> None:
        found: list[Any] = list(library().openapi.from_dict(self.document).get_all_operations())
        made = [each.ok() for each in found]
        self.by_id = {each.definition.raw["operationId"]: each for each in made}
        self.session = requests.Session()

    def links_to(self, target: str) -> dict[str, Mapping[str, str]]:
        """Return the parameters of each link to an operation, by the operation whose answer has the link."""
        found = {}
        for source, operation in self.by_id.items():
            for response in operation.definition.raw["responses"].values():
                if target in response.get("links", {}):
                    found[source] = response["links"][target]["parameters"]
        return found

    def follow(self, target: str, source: str | None = None) -> dict[str, Any]:
        """Return the path parameters of an operation, by a link from an answer that was given before."""
        for origin, parameters in self.links_to(target).items():
            if origin in self.answered and source in (None, origin):
                with contextlib.suppress(LookupError):  # An empty list leads nowhere.
                    return {name: self.answered[origin].value_of(each) for name, each in parameters.items()}
        raise AssertionError(f"no answer so far leads to {target}")

    def call(
        self,
        operation_id: str,
        *,
        token: str | None,
        path: Mapping[str, Any],
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Call an operation, check its answer against the document, and return the status."""
        operation = self.by_id[operation_id]
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        is_stream = "text/event-stream" in str(operation.definition.raw["responses"].get("200"))
        url = self.url + operation.path.format(**path)
        given: dict[str, Any] = {"params": query, "headers": sent, "timeout": TIMEOUT_S, "stream": is_stream}
        with contextlib.closing(self.session.request(operation.method, url, **given, **_sent(body))) as response:
            self.statuses[operation_id][response.status_code] += 1
            if response.ok:
                self.paths[operation_id] = path
            if is_stream and response.ok:
                assert response.headers["content-type"].startswith("text/event-stream")
                return response.status_code
            case = operation.Case(path_parameters=dict(path), query=dict(query or {}), headers=sent)
            case.validate_response(response, checks=checks())
            assert response.ok, f"{operation.label}: {response.status_code} {response.text[:500]}"
            is_json = response.headers["content-type"] == "application/json"
            self.answered[operation_id] = Answered(path, json.loads(response.content) if is_json else response.text)
            return response.status_code

    def missed(self) -> list[str]:
        """Return the operations that never succeeded."""
        return [each for each in self.by_id if not any(200 <= status < 300 for status in self.statuses[each])]


def _sent(body: Any) -> dict[str, Any]:
    if isinstance(body, Upload):
        return {"data": dict(body.fields), "files": {body.field: (f"{body.field}.zip", body.content)}}
    if isinstance(body, bytes):
        return {"data": body}
    return {} if body is None else {"json": body}


def wait_until(condition: Callable[[], object]) -> None:
    """Return when a condition holds."""
    deadline = time.monotonic() + SETTLED_S
    for _ in itertools.count():
        if condition():
            return
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(LOOK_S)
