"""Request handlers: of web calls, and of the control process on the unix socket."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from moorage.core.kit.decoding import decode
from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import LARGE_BYTES, LargeWebCall, PlatformCall, WebCall, next_activation
from moorage.runtime.edge.calls.function import AnyFunction, Route
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.protocol import Connection, Refused
from moorage.runtime.edge.routes import Table

STARTED = f"{time.time():.6f}"
DONE = Answer(200, b"{}", ((b"content-type", answers.JSON),))
DUPLICATE = Failure(409, "conflict", "This call was made before")
MAX_REMEMBERED_CALLS = 20_000
MAX_REMEMBERED_BYTES = 4096  # of a body; longer requests are not in the request cache
_SOURCES = {"api": spool.API, "schedule": spool.SCHEDULE}


class Invoke(msgspec.Struct):
    function: int
    activation: str
    door: str = "api"
    schedule: int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Known(msgspec.Struct):
    activation: str


class Routes(msgspec.Struct):
    routes: list[Route]


class Changes(msgspec.Struct):
    set: list[Route] = []
    drop: list[int] = []


class PublicHandler:
    """Handles web calls at `/api/v1/web/…` and at the hosts of organizations."""

    def __init__(self, table: Table, pool: Pool, targets: web.TargetCache) -> None:
        self._table = table
        self._submit = pool.submit
        self._targets = targets

    def __call__(self, connection: Connection, request: Request) -> Answer | None:
        resolved = request.resolved
        if resolved is not None and resolved[0] == self._table.generation:
            self._submit(WebCall(resolved[1], next_activation(), resolved[2], connection, request))
            return None
        target, function = self._find(request)
        if function is None or target is None or _is_refused(request, target, function):
            return self._answer_without_call(request, target, function)
        try:
            params = web.params_of(request, target, web.headers_json(request.headers), raw=function.raw_http)
        except Refused as refused:
            return refused.failure.answer_to(request)
        request.origin = target.origin
        if len(request.body) < MAX_REMEMBERED_BYTES:
            request.resolved = (self._table.generation, function, params)
        else:
            request.body = b""  # The params contain it; a second copy would double the memory of a waiting call.
        kind = LargeWebCall if len(params) > LARGE_BYTES else WebCall
        self._submit(kind(function, next_activation(), params, connection, request))
        return None

    def answer_early(self, request: Request) -> Answer | None:
        """Return the answer if it does not depend on the body, else None."""
        target, function = self._find(request)
        if function is None or target is None or _is_refused(request, target, function):
            return self._answer_without_call(request, target, function)
        return None

    def _find(self, request: Request) -> tuple[web.FunctionTarget | None, AnyFunction | None]:
        """Return the parsed target of a request, and its function."""
        target = self._targets.find(request.target, request.find_header(b"host"))
        return target, None if target is None else self._table.find(target.org, target.name)

    def _answer_without_call(
        self, request: Request, target: web.FunctionTarget | None, function: AnyFunction | None
    ) -> Answer:
        if request.method == b"OPTIONS" and function is not None:
            return answers.preflight(request)
        # Also for removed functions, whose service worker may still be in browsers.
        is_worker = target is not None and target.origin.is_shared and _is_service_worker(request)
        failure = answers.SERVICE_WORKER if is_worker else answers.NOT_FOUND
        return failure.answer_to(request)


def _is_refused(request: Request, target: web.FunctionTarget, function: AnyFunction) -> bool:
    """Whether the edge answers itself: a preflight or a service worker script."""
    if request.method == b"OPTIONS":
        return not function.own_options
    return target.origin.is_shared and _is_service_worker(request)


def _is_service_worker(request: Request) -> bool:
    """Whether a service worker script is requested; pages cannot set the headers."""
    return any(
        name == b"service-worker" or (name == b"sec-fetch-dest" and value == b"serviceworker")
        for name, value in request.headers
    )


class PlatformHandler:
    """Handles calls and route updates of the control process."""

    def __init__(self, table: Table, pool: Pool, on_routes: Any) -> None:
        self._table = table
        self._pool = pool
        self._on_routes = on_routes
        self._seen: dict[str, None] = {}

    def __call__(self, connection: Connection, request: Request) -> Answer | None:
        try:
            return self._answer(connection, request)
        except (msgspec.DecodeError, RecursionError) as error:
            return Failure(400, "bad_request", str(error)).answer(answers.fresh_id())

    def _answer(self, connection: Connection, request: Request) -> Answer | None:
        match request.method, request.target:
            case b"POST", b"/invoke":
                return self._invoke(connection, decode(request.body, Invoke))
            case b"POST", b"/known":
                known = decode(request.body, Known).activation in self._seen
                return web.health({"known": known})
            case b"PUT", b"/routes":
                self._table.replace(decode(request.body, Routes).routes)
            case b"PATCH", b"/routes":
                changes = decode(request.body, Changes)
                self._table.drop(changes.drop)
                for route in changes.set:
                    self._table.put(route)
            case b"GET", b"/health":
                return web.health(
                    {
                        "started": STARTED,
                        "routes": len(self._table),
                        "instances": self._pool.instances,
                        "inFlight": self._pool.in_flight,
                        "calls": self._pool.calls,
                        "sandbox": self._pool.sandbox,
                    }
                )
            case _:
                return answers.NOT_FOUND.answer(answers.fresh_id())
        self._on_routes()
        return DONE

    def _invoke(self, connection: Connection, invoke: Invoke) -> Answer | None:
        function = self._table.find_by_id(invoke.function)
        if function is None:
            return answers.NOT_FOUND.answer(answers.fresh_id())
        activation = invoke.activation.encode()
        if len(activation) != 32 or not activation.isalnum() or invoke.door not in _SOURCES:
            return answers.MALFORMED.answer(answers.fresh_id())
        params = _params(bytes(invoke.params))
        source = _SOURCES[invoke.door]
        if source == spool.SCHEDULE and not self._is_new(invoke.activation):
            return DUPLICATE.answer(answers.fresh_id())
        call = PlatformCall(function, activation, params, connection, invoke.schedule or 0, source)
        call.on_refused = lambda: self._seen.pop(invoke.activation, None)
        self._pool.submit(call)
        return None

    def _is_new(self, activation: str) -> bool:
        """Whether a scheduled call is new; the platform repeats unanswered ones."""
        if activation in self._seen:
            return False
        self._seen[activation] = None
        if len(self._seen) > MAX_REMEMBERED_CALLS:
            del self._seen[next(iter(self._seen))]
        return True


def _params(payload: bytes) -> bytes:
    """Return the params of a platform call; a non-object becomes `__ow_body`."""
    inner = payload.strip()
    if inner[:1] != b"{":
        return b'{"__ow_body":%b,"__ow_method":"post"}' % inner
    inner = inner[1:-1].strip()
    return b'{%b,"__ow_method":"post"}' % inner if inner else b'{"__ow_method":"post"}'
