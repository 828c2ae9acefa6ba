"""The route registry: one declaration per route.

Request handling and the OpenAPI document both use the declaration, so they always agree. A handler is a plain function;
the dispatcher passes the parameters that it declares:

    tx: Tx            the unit of work (sync handlers; committed by the dispatcher)
    caller            the authenticated caller
    body: Model       the validated JSON body
    query: Model      the validated query
    form: Form        fields and files of a multipart upload (async handlers)
    request: Request  the request itself (async handlers)
    write: Write      the single transaction of an async write (see `http.idempotency.once`)
    anything else     a path parameter, by name: `str`, `int` (an id) or `Uuid`
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Any, TypeVar, get_type_hints

import pydantic

from moorage.core.kit.ids import parse_id, parse_uuid
from moorage.core.kit.records import dataclass

MB = 2**20
JSON_LIMIT = 1 * MB
PUBLIC_JSON_LIMIT = 64 * 1024  # of routes without a credential, such as logins

Uuid = Annotated[str, "uuid"]
F = TypeVar("F", bound=Callable[..., Any])


class Scope(StrEnum):
    """Requirements of a route on its caller; the gate checks them."""

    PUBLIC = "public"  # no credential
    IDENTITY = "identity"  # any credential; no organization is needed
    ORG = "org"  # acts on the caller's active organization
    PATH_ORG = "path_org"  # acts on the organization named in the path
    OPERATOR = "operator"  # a session of an operator of the platform; for all others the route does not exist


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart body: the names of its files and its maximum size."""

    files: tuple[str, ...]
    max_bytes: int
    fields: type[pydantic.BaseModel] | None = None


@dataclass(frozen=True, kw_only=True)
class Route:
    method: str
    path: str
    handler: Callable[..., Any]
    tag: str
    summary: str
    description: str
    scope: Scope = Scope.ORG
    min_role: StrEnum | None = None  # None allows every member
    status: int = 200
    point: bool = False  # a read so small that it may run in the event loop
    walled: bool = False  # requires a verified payment method (card wall)
    paid: bool = False  # requires a paid plan
    secret: bool = False  # the answer shows a secret once: never stored, never cached
    raw: bool = False  # the answer is not wrapped in the envelope
    is_counted: bool = True  # by the rate limit
    is_page: bool = False  # the answer is HTML
    hides_names: bool = True  # False for a fixed path where a resource of `/…/{name}` may have that name
    identifies: tuple[tuple[str, str], ...] = ()  # item paths of other resources, and the property with their id
    events: bool = False  # server-sent events; the token may come in the query
    upload: Upload | None = None
    webhook_headers: tuple[str, ...] = ()  # of a receiver of JSON objects; the first one has the signature
    body_optional: bool = False
    body_limit: int = JSON_LIMIT
    deprecated: bool = False
    changed_by: tuple[tuple[str, str], ...] = ()  # fields that a PATCH refuses, and the route that changes each
    follow: Callable[..., Any] | None = None  # reads the state of the work that a write starts: see `waiting`
    body: type[pydantic.BaseModel] | None = None
    query: type[pydantic.BaseModel] | None = None
    answer: Any = None
    params: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    is_async: bool = False
    wants: frozenset[str] = frozenset()
    operation: str = ""

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


@dataclass
class Router:
    """The routes of one product; every path starts with `prefix`."""

    tag: str
    prefix: str = "/v1"
    routes: list[Route] = field(default_factory=list)

    def get(self, path: str, **options: Any) -> Callable[[F], F]:
        return self._add("GET", path, options)

    def post(self, path: str, **options: Any) -> Callable[[F], F]:
        return self._add("POST", path, options)

    def put(self, path: str, **options: Any) -> Callable[[F], F]:
        return self._add("PUT", path, options)

    def patch(self, path: str, **options: Any) -> Callable[[F], F]:
        return self._add("PATCH", path, options)

    def delete(self, path: str, **options: Any) -> Callable[[F], F]:
        return self._add("DELETE", path, options)

    def _add(self, method: str, path: str, options: dict[str, Any]) -> Callable[[F], F]:
        def register(handler: F) -> F:
            self.routes.append(declare(method, self.prefix + path, handler, tag=self.tag, **options))
            return handler

        return register


def declare(
    method: str,
    path: str,
    handler: Callable[..., Any],
    *,
    tag: str,
    scope: Scope = Scope.ORG,
    walled: bool | None = None,
    **options: Any,
) -> Route:
    """Return the route of a handler; `options` are fields of `Route`."""
    hints = get_type_hints(handler, include_extras=True)
    answer = hints.pop("return", None)
    body, query = hints.get("body"), hints.get("query")
    options.setdefault("body_limit", PUBLIC_JSON_LIMIT if scope is Scope.PUBLIC else JSON_LIMIT)
    summary, _, description = (inspect.getdoc(handler) or handler.__name__).partition("\n\n")
    return Route(
        method=method,
        path=path,
        handler=handler,
        tag=tag,
        scope=scope,
        walled=scope is Scope.ORG if walled is None else walled,
        summary=" ".join(summary.split()),
        description=" ".join(description.split()),
        body=body if isinstance(body, type) and issubclass(body, pydantic.BaseModel) else None,
        query=query,
        answer=answer,
        params=tuple((name, _parser(hints.get(name, str))) for name in re.findall(r"{(\w+)}", path)),
        is_async=inspect.iscoroutinefunction(handler),
        wants=frozenset(inspect.signature(handler).parameters),
        operation=handler.__name__,
        **options,
    )


def _parser(hint: Any) -> Callable[[str], Any]:
    if hint is int:
        return parse_id
    if hint == Uuid:
        return parse_uuid
    return str
