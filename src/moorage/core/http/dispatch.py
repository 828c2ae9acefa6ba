"""ASGI application of the API: fixed order of checks, then the handler.

    rate limit, unknown path, credential, suspension, organization, payment method (card wall), minimum role, then the
    route's own validation, then the handler in its unit of work

Reads run in one unit of work, including the gate. Writes pass the gate first, so that the body of an unauthorized
request is not read.

A request without a credential, or to a public route, first counts against the client's address. A credential is looked
up first: the gate counts a valid token, or the address if the token is invalid. A client over its limit gets 429 in
both cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from moorage.core import disk
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import forms, models, strictjson
from moorage.core.http.answer import Answer, Stream, failure, failure_page
from moorage.core.http.fixed_fields import FixedFields
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency.once import Replay, Write, again, encode
from moorage.core.http.limits.cors import Cors
from moorage.core.http.limits.rate import RateLimiter, address_key, token_key
from moorage.core.http.limits.streams import StreamSlots
from moorage.core.http.match import RouteGroup, RouteTree
from moorage.core.http.relay import Relay
from moorage.core.http.request import ClientGone, Counted, Request, basic_password, uncounted
from moorage.core.http.route import Route, Scope
from moorage.core.http.sending import Send, Sender
from moorage.core.http.sse import EventStream
from moorage.core.http.waiting import Waiter, data_of
from moorage.core.net import error_pages, proxies
from moorage.core.telemetry import Telemetry
from moorage.errors import BadRequest, DiskFull, Elsewhere, Internal, MoorageError, NotFound, RateLimited, Unauthorized

API_PREFIX = "/v1/"
LARGE_BODY_BYTES = 64 * 1024  # Parsing a larger body would delay all other requests of the event loop.


class AccessRequest(NamedTuple):
    """The credential of a request, and the organization that it names."""

    token: str | None
    organization: str | None  # header, else query
    path_organization: str | None
    client: str | None = None  # address of the client
    count_request: Callable[[bool], None] = uncounted  # argument: is the credential valid; raises RateLimited


class Gate(Protocol):
    """Authenticates and authorizes callers; implemented by `accounts/identity`."""

    def admit(self, tx: Tx, route: Route, ask: AccessRequest) -> Any:
        """Return the caller, or raise the error of the first check that fails.

        Calls `ask.count_request` right after the look-up of the credential, before any other check.
        """
        ...

    def recheck(self, tx: Tx, route: Route, ask: AccessRequest, caller: Any) -> None:
        """Raise if an admitted caller would not be admitted now, or only in a lower role."""
        ...

    def record_use(self, db: Database, caller: Any) -> Coroutine[Any, Any, None] | None:
        """Record the use of a credential; return a write for the background, if one is due."""
        ...


class Mount(NamedTuple):
    """A handler for all methods and paths below a prefix.

    The handler reads the body, authorizes the request and sets its caller itself. Clients may send the token as the
    password of Basic credentials. The handler returns None if the path does not exist.
    """

    path: str  # ends with a slash
    handle: Callable[[Request], Awaitable[Answer | Stream | None]]
    is_counted: bool = True  # by the rate limit


class Dispatcher:
    """The ASGI application of the API."""

    def __init__(
        self,
        routes: Iterable[Route | RouteGroup],
        db: Database,
        gate: Gate,
        telemetry: Telemetry,
        *,
        fallback: Callable[[Request], Awaitable[Answer | None]] | None = None,
        mounts: Iterable[Mount] = (),
    ) -> None:
        self.tree = RouteTree(routes)
        self.fixed_fields = FixedFields(self.tree.routes)
        self.db = db
        self.gate = gate
        self.telemetry = telemetry
        settings = db.env.settings
        self.limiter = RateLimiter(settings.rate_limit)
        self.slots = StreamSlots(settings.streams_per_token, settings.streams_per_organization)
        self.cors = Cors.of(settings)
        self.sender = Sender(settings, self.cors, telemetry)
        self.waiter = Waiter(db)
        self.relay: Relay | None = None  # to other machines; None where the store has one
        self.fallback = fallback
        self.mounts = tuple(mounts)
        self._timeout_s = settings.body_timeout_s
        self._trusted = proxies.networks(settings.trusted_proxies)
        # Defined by databases that can read in the event loop; others read in a thread.
        self._peek_now: Any = getattr(db, "peek_now", None)
        self._keys_in_use: set[tuple[int, str, str, str]] = set()
        self._background: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        request = Request(scope, receive, self._timeout_s)
        try:
            await self._serve(request, send)
        finally:
            if request.release is not None:
                request.release()

    async def _serve(self, request: Request, send: Send) -> None:
        started = time.perf_counter()
        await self.tree.declare(request.path)
        match = None if "\x00" in request.path else self.tree.find(request.method, request.path)
        route = match[0] if match else None
        mount = None if match else self._find_mount(request.path)
        try:
            self._count(request, route, mount)
            answer = await self._answer(request, *match) if match else await self._answer_unrouted(request, mount)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - every error is answered in the envelope
            answer = self._error_answer(request, error)
        await self.sender.send(send, request, answer)
        self.telemetry.request(request, route or mount, answer.status, time.perf_counter() - started)

    def answer_now(self, scope: dict[str, Any]) -> bool:
        """Answer a point read without a task; the server tries this first.

        Returns False without any effect for every other request.
        """
        match = self.tree.find("GET", scope["path"]) if scope["method"] == "GET" else None
        if match is None or not match[0].point or self._peek_now is None or "\x00" in scope["path"]:
            return False
        started = time.perf_counter()
        request = Request(scope, None, self._timeout_s)
        if not self.sender.may_send_now(request):
            return False
        route, values = match
        try:
            self._count(request, route)
            answer = self._read_now(request, route, values)
        except Exception as error:  # noqa: BLE001 - every error is answered in the envelope
            answer = self._error_answer(request, error)
        self.sender.send_now(request, answer)
        self.telemetry.request(request, route, answer.status, time.perf_counter() - started)
        return True

    def _error_answer(self, request: Request, error: Exception) -> Answer:
        if (isinstance(error, Internal) or not isinstance(error, MoorageError)) and disk.is_full(error):
            self.telemetry.log.error("the disk is full", path=request.path, why=str(error), trace_id=request.trace_id)
            error = DiskFull()
        if not isinstance(error, MoorageError):
            self.telemetry.crashed(request.trace_id, error)
            error = Internal("Something went wrong on our side; try again")
        # Programs may send the headers of a browser, so the API itself answers in its envelope only.
        is_page = not request.path.startswith(API_PREFIX) and error_pages.accepts_html(request.header(b"accept") or "")
        return (failure_page if is_page else failure)(error, request.trace_id)

    def stop_waiting(self) -> None:
        """Answer the requests that wait for their work (`?wait=`) now."""
        self.waiter.stop()

    async def close(self) -> None:
        """Wait for background tasks; after this the database may be closed."""
        await asyncio.gather(*self._background, return_exceptions=True)

    def _find_mount(self, path: str) -> Mount | None:
        return next((mount for mount in self.mounts if path.startswith(mount.path)), None)

    def _count(self, request: Request, route: Route | None, mount: Mount | None = None) -> None:
        """Count a request by address, or defer that to the gate; raises RateLimited."""
        if self._trusted:
            request.client = proxies.client_of(request.client, request.header(b"x-forwarded-for"), self._trusted)
        request.token = token = _token(request, route, mount)
        target = mount or route
        if target is not None and not target.is_counted:
            request.count_failure = functools.partial(self._count_credential, request, False)
            return
        request.count_request = functools.partial(self._count_credential, request)
        if token is None or (mount is None and (route is None or route.scope is Scope.PUBLIC)):
            request.count_request(False)
        elif (reset := self.limiter.find_spent(token)) is not None:
            # No look-up needed: the token was valid in this window and is over its limit.
            self._refuse_rate(request, reset)

    def _count_credential(self, request: Request, is_valid: bool) -> None:
        """Count a request once: by its token if that is valid, else by address."""
        if request.counted is not None:
            return
        token = request.token if is_valid else None
        key = token_key(token) if token is not None else address_key(request.client)
        may, left, reset = self.limiter.count(key, token)
        if not may:
            self._refuse_rate(request, reset)
        request.counted = Counted(self.limiter.limit, left, reset, may)

    def _refuse_rate(self, request: Request, reset: int) -> NoReturn:
        request.counted = Counted(self.limiter.limit, 0, reset, may=False)
        raise RateLimited("Too many requests")

    async def _answer_unrouted(self, request: Request, mount: Mount | None) -> Answer | Stream:
        if mount is not None and "\x00" not in request.path:
            answer = await mount.handle(request)
            request.count_request(False)  # Without a gate check the token is unverified.
            self._record_use(request.caller)
            if answer is not None:
                return answer
        if request.method == "OPTIONS" and (allowed := self.cors.preflight(request, self.tree.methods(request.path))):
            return allowed
        if self.fallback and request.method in ("GET", "HEAD"):
            page = await self.fallback(request)
            if page is not None:
                return page
        raise NotFound("There is nothing at this address")

    async def _answer(self, request: Request, route: Route, values: list[str]) -> Answer | Stream:
        if route.is_async:
            return await self._run_async(request, route, self._ask(request, route, values), values)
        if route.is_write:
            return await self._run_write(request, route, self._ask(request, route, values), values)
        if self._needs_no_store(route) or (route.point and self._peek_now is not None):
            return self._read_now(request, route, values)
        answer = await self.db.read(self._read_unit(request, route, values))
        self._record_use(request.caller)
        return answer

    def _read_now(self, request: Request, route: Route, values: list[str]) -> Answer:
        if self._needs_no_store(route):
            return encode(route, route.handler(**self._arguments(request, route, values)))
        answer: Answer = self._peek_now(self._read_unit(request, route, values))
        self._record_use(request.caller)
        return answer

    def _needs_no_store(self, route: Route) -> bool:
        return route.scope is Scope.PUBLIC and "tx" not in route.wants

    def _read_unit(self, request: Request, route: Route, values: list[str]) -> Callable[[Tx], Answer]:
        """Return the unit of work of a read: the gate and the handler share one snapshot."""
        ask = self._ask(request, route, values)

        def unit(tx: Tx) -> Answer:
            request.caller = self._admit(tx, route, ask)
            return encode(route, route.handler(**self._arguments(request, route, values, tx=tx)))

        return unit

    async def _run_write(self, request: Request, route: Route, ask: AccessRequest, values: list[str]) -> Answer:
        await self._pass_gate(request, route, ask)
        wait_s = _wait_s(request, route)
        raw = await request.body(route.body_limit)

        def unit(tx: Tx) -> Answer:
            return encode(route, route.handler(**self._arguments(request, route, values, tx=tx, body=raw)))

        claim = self._claim(request, route, raw)
        write = Write(self.db, request, route, claim)
        with self._hold_key(claim):
            try:
                answer = await write(unit)
            except Replay as replay:
                return again(request, replay.answer)
            return await self._wait(request, route, ask, values, write, answer, wait_s)

    async def _run_async(
        self, request: Request, route: Route, ask: AccessRequest, values: list[str]
    ) -> Answer | Stream:
        await self._pass_gate(request, route, ask)
        wait_s = _wait_s(request, route)
        if route.events and request.caller is not None:
            self._take_slot(request)
        form = await forms.read(request, route.upload, self.db.env.settings) if route.upload else None
        try:
            # A handler that takes the request itself reads the body itself.
            reads = route.body is not None or "request" not in route.wants
            raw = await request.body(route.body_limit) if reads else b""
            claim = self._claim(request, route, form.fingerprint if form else raw) if route.is_write else None
            write = Write(self.db, request, route, claim)
            call = functools.partial(self._call, request, route, ask, values, raw, {"form": form, "write": write})
            with self._hold_key(claim):
                answer: Answer | Stream
                if claim is None:
                    answer = await call()
                else:
                    answer = await (write.run(call) if "write" in route.wants else write.run_outside(call))
                if not wait_s or isinstance(answer, Stream) or write.is_replay:
                    return answer
                return await self._wait(request, route, ask, values, write, answer, wait_s)
        finally:
            if form:
                form.discard()

    async def _call(
        self, request: Request, route: Route, ask: AccessRequest, values: list[str], raw: bytes, offered: dict[str, Any]
    ) -> Any:
        read = functools.partial(self._arguments, request, route, values, body=raw)
        is_large = route.body is not None and len(raw) > LARGE_BODY_BYTES
        arguments = await asyncio.to_thread(read) if is_large else read()
        arguments |= {name: value for name, value in offered.items() if name in route.wants}
        try:
            result = await route.handler(**arguments)
        except Elsewhere as elsewhere:
            if self.relay is None or request.header(b"idempotency-key") is not None:
                raise
            return await self.relay.send(request, elsewhere.machine_id, body=raw)
        if isinstance(result, EventStream) and request.caller is not None:
            result.recheck.check = functools.partial(self._recheck, request, route, ask)
            result.pace.reserve = functools.partial(self.slots.reserve, request.caller.org_id)
            result.pace.turn = self.sender.turns.take
        return result if isinstance(result, Stream) else encode(route, result)

    async def _wait(
        self,
        request: Request,
        route: Route,
        ask: AccessRequest,
        values: list[str],
        write: Write,
        answer: Answer,
        wait_s: int,
    ) -> Answer:
        """Return the answer at the end of the work that the request started."""
        if not wait_s or answer.status >= 400:
            return answer
        assert route.follow is not None
        path = {name: parse(text) for (name, parse), text in zip(route.params, values, strict=True)}
        first = data_of(answer, route.answer)
        look = functools.partial(route.follow, caller=request.caller, answer=first, path=path)
        recheck = functools.partial(self._recheck, request, route, ask)
        last = await self.waiter.wait(request, look, wait_s, recheck)
        return answer if last is None else await write.keep(encode(route, last))

    def _take_slot(self, request: Request) -> None:
        """Count an event stream as open until its request ends; raises RateLimited."""
        try:
            request.release = self.slots.take(request.token or "", request.caller.org_id)
        except RateLimited:
            if request.counted is not None:
                request.counted = request.counted._replace(may=False)  # adds `Retry-After` to the answer
            raise

    async def _recheck(self, request: Request, route: Route, ask: AccessRequest) -> None:
        """Raise if the caller could not open the stream now."""
        await self.db.peek(lambda tx: self.gate.recheck(tx, route, ask, request.caller))

    @contextlib.contextmanager
    def _hold_key(self, claim: idempotency.Claim | None) -> Iterator[None]:
        """Hold the key within this process; raises Conflict if another request holds it."""
        if claim is None:
            yield
            return
        if claim.place in self._keys_in_use:
            raise idempotency.in_progress()
        self._keys_in_use.add(claim.place)
        try:
            yield
        finally:
            self._keys_in_use.discard(claim.place)

    def _claim(self, request: Request, route: Route, raw: bytes) -> idempotency.Claim | None:
        key = request.header(b"idempotency-key")
        if key is None or request.caller is None:
            return None
        caller = request.caller
        return idempotency.Claim(
            org_id=caller.org_id or 0,
            actor=caller.actor,
            route=idempotency.route_of(request.method, request.path),
            key=idempotency.check_key(key),
            fingerprint=idempotency.fingerprint(raw),
        )

    async def _pass_gate(self, request: Request, route: Route, ask: AccessRequest) -> None:
        if route.scope is not Scope.PUBLIC:
            request.caller = await self.db.peek(lambda tx: self._admit(tx, route, ask))
            self._record_use(request.caller)

    def _admit(self, tx: Tx, route: Route, ask: AccessRequest) -> Any:
        if route.scope is Scope.PUBLIC:
            return None
        if ask.token is None:
            raise Unauthorized("A bearer token is needed")
        return self.gate.admit(tx, route, ask)

    def _record_use(self, caller: Any) -> None:
        if caller is not None and caller.is_first_use and (write := self.gate.record_use(self.db, caller)) is not None:
            task = asyncio.get_running_loop().create_task(write)
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _ask(self, request: Request, route: Route, values: list[str]) -> AccessRequest:
        organization = request.header(b"x-organization-id") or None
        if organization is None and b"organization_id=" in request.query_string and route.scope is not Scope.PUBLIC:
            organization = request.from_query("organization_id")
        path_org = values[0] if route.scope is Scope.PATH_ORG else None
        return AccessRequest(request.token, organization, path_org, request.client, request.count_request)

    def _arguments(
        self, request: Request, route: Route, values: list[str], *, tx: Tx | None = None, body: bytes = b""
    ) -> dict[str, Any]:
        """Return the handler's arguments; an invalid path parameter is a 404."""
        arguments: dict[str, Any] = {}
        for (name, parse), text in zip(route.params, values, strict=True):
            value = parse(text)
            if value is None:
                raise NotFound("There is nothing at this address")
            if name in route.wants:
                arguments[name] = value
        if "tx" in route.wants:
            arguments["tx"] = tx
        if "caller" in route.wants:
            arguments["caller"] = request.caller
        if "request" in route.wants:
            arguments["request"] = request
        if route.query is not None:
            arguments["query"] = models.validate(route.query, request.query())
        if route.body is not None:
            arguments["body"] = self._read_body(request, route, body, arguments)
        return arguments

    def _read_body(self, request: Request, route: Route, raw: bytes, path: Mapping[str, Any]) -> Any:
        assert route.body is not None
        if not raw and route.body_optional:
            return models.validate(route.body, {})
        kind = request.media_type
        if kind and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise BadRequest("The body should be JSON, with Content-Type: application/json")
        value = strictjson.parse(raw)
        if route.method == "PATCH":
            return self.fixed_fields.validate(route, value, path)
        return models.validate(route.body, value)


def _wait_s(request: Request, route: Route) -> int:
    """Return the seconds of `?wait=`; 0 for a route that starts no work."""
    if route.follow is None or not request.query_string:
        return 0
    return models.validate(models.WaitQuery, request.query()).wait


def _token(request: Request, route: Route | None, mount: Mount | None) -> str | None:
    header = request.headers.get(b"authorization")
    if header is not None:
        if mount is not None and (password := basic_password(header)):
            return password
        scheme, _, token = header.partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None
    if route is not None and route.events:
        return request.from_query("access_token") or None
    return None


async def _not_http(scope: dict[str, Any], receive: Any, send: Send) -> None:
    if scope["type"] == "lifespan":
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
