"""The two ways in: the public address for everybody, and a socket of this machine for the platform itself."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import LARGE_BYTES, DoorCall, LargeWebCall, WebCall, next_activation
from moorage.runtime.edge.calls.function import Function, Route
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.protocol import Connection, Refused
from moorage.runtime.edge.routes import Table

STARTED = f"{time.time():.6f}"
DONE = Answer(200, b"{}", ((b"content-type", answers.JSON),))
TWICE = Failure(409, "conflict", "This call was made before")
REMEMBERED = 20_000
REMEMBERED_BYTES = 4096  # of a body; the connection remembers no longer request
_DOORS = {"api": spool.API, "schedule": spool.SCHEDULE}


class Invoke(msgspec.Struct):
    function: int
    activation: str
    door: str = "api"
    schedule: int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Routes(msgspec.Struct):
    routes: list[Route]


class Changes(msgspec.Struct):
    set: list[Route] = []
    drop: list[int] = []


class PublicDoor:
    """Calls from outside, at `/api/v1/web/…` or at the host of an organization."""

    def __init__(self, table: Table, pool: Pool, targets: web.Targets) -> None:
        self._table = table
        self._submit = pool.submit
        self._targets = targets

    def __call__(self, connection: Connection, request: Request) -> Answer | None:
        known = request.known
        if known is not None and known[0] == self._table.generation:
            self._submit(WebCall(known[1], next_activation(), known[2], connection, request))
            return None
        target, function = self._find(request)
        if function is None or target is None or _is_refused(request, target, function):
            return self._without_function(request, target)
        try:
            params = web.params_of(request, target, web.headers_json(request.headers), raw=function.raw_http)
        except Refused as refused:
            return refused.failure.answer(request.request_id or answers.fresh_id())
        request.origin = target.origin
        if len(request.body) < REMEMBERED_BYTES:
            request.known = (self._table.generation, function, params)
        else:
            request.body = b""  # It is in the params; twice, it would take twice the memory while the call waits.
        kind = LargeWebCall if len(params) > LARGE_BYTES else WebCall
        self._submit(kind(function, next_activation(), params, connection, request))
        return None

    def early(self, request: Request) -> Answer | None:
        """Return the answer to a request whose body will not be looked at; None where there is a function to call."""
        target, function = self._find(request)
        if function is None or target is None or _is_refused(request, target, function):
            return self._without_function(request, target)
        return None

    def _find(self, request: Request) -> tuple[web.Target | None, Function | None]:
        """Return what the address of a request says, and the function that is there."""
        target = self._targets.find(request.target, request.find_header(b"host"))
        return target, None if target is None else self._table.find(target.org, target.name)

    def _without_function(self, request: Request, target: web.Target | None) -> Answer:
        if request.method == b"OPTIONS":
            return answers.preflight(request)
        # Also where the function is gone: its service worker may live on in browsers.
        is_worker = target is not None and target.origin.is_shared and _is_service_worker(request)
        failure = answers.SERVICE_WORKER if is_worker else answers.NOT_FOUND
        return failure.answer(request.request_id or answers.fresh_id())


def _is_refused(request: Request, target: web.Target, function: Function) -> bool:
    """Tell whether a request is answered without its function: a preflight, or the script of a service worker."""
    if request.method == b"OPTIONS":
        return not function.own_options
    return target.origin.is_shared and _is_service_worker(request)


def _is_service_worker(request: Request) -> bool:
    """Tell whether a browser asks for the script of a service worker. Pages cannot set either of these headers."""
    return any(
        name == b"service-worker" or (name == b"sec-fetch-dest" and value == b"serviceworker")
        for name, value in request.headers
    )


class LocalDoor:
    """The platform's own calls, and what it says about routes."""

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
                return self._invoke(connection, msgspec.json.decode(request.body, type=Invoke))
            case b"PUT", b"/routes":
                self._table.replace(msgspec.json.decode(request.body, type=Routes).routes)
            case b"PATCH", b"/routes":
                changes = msgspec.json.decode(request.body, type=Changes)
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

    def _invoke(self, connection: Connection, asked: Invoke) -> Answer | None:
        function = self._table.find_by_id(asked.function)
        if function is None:
            return answers.NOT_FOUND.answer(answers.fresh_id())
        activation = asked.activation.encode()
        if len(activation) != 32 or not activation.isalnum() or asked.door not in _DOORS:
            return answers.MALFORMED.answer(answers.fresh_id())
        params = _params(bytes(asked.params))
        door = _DOORS[asked.door]
        if door == spool.SCHEDULE and not self._is_new(asked.activation):
            return TWICE.answer(answers.fresh_id())
        call = DoorCall(function, activation, params, connection, asked.schedule or 0, door=door)
        call.on_refused = lambda: self._seen.pop(asked.activation, None)
        self._pool.submit(call)
        return None

    def _is_new(self, activation: str) -> bool:
        """Tell whether a scheduled call comes for the first time; one that comes again was cut off from its answer."""
        if activation in self._seen:
            return False
        self._seen[activation] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True


def _params(given: bytes) -> bytes:
    """Add what every call carries; a payload that is no object comes as the body."""
    inner = given.strip()
    if inner[:1] != b"{":
        return b'{"__ow_body":%b,"__ow_method":"post"}' % inner
    inner = inner[1:-1].strip()
    return b'{%b,"__ow_method":"post"}' % inner if inner else b'{"__ow_method":"post"}'
