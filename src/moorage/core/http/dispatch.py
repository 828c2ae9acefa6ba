"""From a request to an answer: the one place where the order of checks stands.

    rate limit, unknown path, credential, suspension, organization, card wall, role floor, then the route's own
    validation, then the handler in its unit of work

Reads run in one unit, gate included. Writes pass the gate first, so that no body is read for a stranger.

A request without a credential, or to a route that needs none, counts against the client's address before anything
else. A credential has to be looked up first: the gate then counts the token if it is valid and the address if not, and
a client that is over its limit gets 429 in both cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol

from moorage.core import disk
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import forms, strictjson
from moorage.core.http.answer import Answer, Stream, failure
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency.once import Replay, Write, again, encode
from moorage.core.http.limits import proxies
from moorage.core.http.limits.cors import Cors
from moorage.core.http.limits.rate import RateLimiter, address_key, token_key
from moorage.core.http.limits.streams import StreamSlots
from moorage.core.http.match import RouteTree
from moorage.core.http.models import validate
from moorage.core.http.request import ClientGone, Counted, Request, basic_password, uncounted
from moorage.core.http.route import Route, Scope
from moorage.core.http.sending import Send, Sender
from moorage.core.http.sse import EventStream
from moorage.core.telemetry import Telemetry
from moorage.errors import BadRequest, DiskFull, Internal, MoorageError, NotFound, RateLimited, Unauthorized


class Ask(NamedTuple):
    """What a request says about who sends it, for which organization."""

    token: str | None
    organization: str | None  # header, else query
    path_organization: str | None
    client: str | None = None  # the address that the request came from
    count_request: Callable[[bool], None] = uncounted  # takes whether the credential is valid; raises RateLimited


class Gate(Protocol):
    """Decides who passes; identity/ provides it."""

    def admit(self, tx: Tx, route: Route, ask: Ask) -> Any:
        """Return the caller, or raise the error that the order of checks comes to first.

        Calls `ask.count_request` once it is known whether the credential is valid, before any other check.
        """
        ...

    def check_again(self, tx: Tx, route: Route, ask: Ask, caller: Any) -> None:
        """Raise where a caller that was admitted would not be admitted now, or only in a lower role."""
        ...

    async def passed(self, db: Database, caller: Any) -> None:
        """Note that a caller was let in; runs beside the request and may write."""
        ...


class Mount(NamedTuple):
    """Everything below a path, whatever the method, answered by one handler in its own way.

    It reads the body itself before it answers, decides itself who may, and sets the request's caller. Its clients may
    send the token as the password of Basic credentials. None means that there is nothing at the path.
    """

    path: str  # ends with a slash
    handle: Callable[[Request], Awaitable[Answer | Stream | None]]
    is_counted: bool = True  # against the rate limit


class Dispatcher:
    """The ASGI application of the API."""

    def __init__(
        self,
        routes: Iterable[Route],
        db: Database,
        gate: Gate,
        telemetry: Telemetry,
        *,
        fallback: Callable[[Request], Awaitable[Answer | None]] | None = None,
        mounts: Iterable[Mount] = (),
    ) -> None:
        self.tree = RouteTree(routes)
        self.db = db
        self.gate = gate
        self.telemetry = telemetry
        settings = db.env.settings
        self.limiter = RateLimiter(settings.rate_limit)
        self.slots = StreamSlots(settings.streams_per_token, settings.streams_per_organization)
        self.cors = Cors.of(settings)
        self.sender = Sender(settings, self.cors, telemetry)
        self.fallback = fallback
        self.mounts = tuple(mounts)
        self._timeout_s = settings.body_timeout_s
        self._trusted = proxies.networks(settings.trusted_proxies)
        # Stores that can read within the event loop offer this; others read in a thread.
        self._peek_now: Any = getattr(db, "peek_now", None)
        self._at_work: set[tuple[int, str, str, str]] = set()
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
        found = None if "\x00" in request.path else self.tree.find(request.method, request.path)
        route = found[0] if found else None
        mount = None if found else self._mount(request.path)
        try:
            self._count(request, route, mount)
            answer = await self._answer(request, *found) if found else await self._unknown(request, mount)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the HTTP edge: whatever it is, the client gets the envelope
            answer = self._refusal(request, error)
        await self.sender.send(send, request, answer)
        self.telemetry.request(request, route or mount, answer.status, time.perf_counter() - started)

    def answer_now(self, scope: dict[str, Any]) -> bool:
        """Answer a point read within this call, without a task of its own; the server asks here first.

        Return False, having done nothing, for every other request.
        """
        found = self.tree.find("GET", scope["path"]) if scope["method"] == "GET" else None
        if found is None or not found[0].point or self._peek_now is None or "\x00" in scope["path"]:
            return False
        started = time.perf_counter()
        request = Request(scope, None, self._timeout_s)
        if not self.sender.may_send_now(request):
            return False
        route, values = found
        try:
            self._count(request, route)
            answer = self._read_now(request, route, values)
        except Exception as error:  # noqa: BLE001 - the HTTP edge: whatever it is, the client gets the envelope
            answer = self._refusal(request, error)
        self.sender.send_now(request, answer)
        self.telemetry.request(request, route, answer.status, time.perf_counter() - started)
        return True

    def _refusal(self, request: Request, error: Exception) -> Answer:
        if (isinstance(error, Internal) or not isinstance(error, MoorageError)) and disk.is_full(error):
            self.telemetry.log.error("the disk is full", path=request.path, why=str(error), trace_id=request.trace_id)
            error = DiskFull()
        if isinstance(error, MoorageError):
            return failure(error, request.trace_id)
        self.telemetry.crashed(request.trace_id, error)
        return failure(Internal("Something went wrong on our side; try again"), request.trace_id)

    async def close(self) -> None:
        """Let what runs beside requests come to its end; after this the store may be closed."""
        await asyncio.gather(*self._background, return_exceptions=True)

    def _mount(self, path: str) -> Mount | None:
        return next((mount for mount in self.mounts if path.startswith(mount.path)), None)

    def _count(self, request: Request, route: Route | None, mount: Mount | None = None) -> None:
        """Count a request against the client's address, or leave that to the gate; raises RateLimited."""
        if self._trusted:
            request.client = proxies.client_of(request.client, request.header(b"x-forwarded-for"), self._trusted)
        request.token = token = _token(request, route, mount)
        target = mount or route
        if target is not None and not target.is_counted:
            return
        request.count_request = functools.partial(self._count_credential, request)
        if token is None or (mount is None and (route is None or route.scope is Scope.PUBLIC)):
            request.count_request(False)
        elif (reset := self.limiter.find_spent(token)) is not None:
            # Needs no look-up: the token was valid a moment ago, and has used its window up.
            self._refuse_more(request, reset)

    def _count_credential(self, request: Request, is_valid: bool) -> None:
        """Count a request, once: against its token if that is valid, else against the client's address."""
        if request.counted is not None:
            return
        token = request.token if is_valid else None
        key = token_key(token) if token is not None else address_key(request.client)
        may, left, reset = self.limiter.count(key, token)
        if not may:
            self._refuse_more(request, reset)
        request.counted = Counted(self.limiter.limit, left, reset, may)

    def _refuse_more(self, request: Request, reset: int) -> NoReturn:
        request.counted = Counted(self.limiter.limit, 0, reset, may=False)
        raise RateLimited("Too many requests")

    async def _unknown(self, request: Request, mount: Mount | None) -> Answer | Stream:
        if mount is not None and "\x00" not in request.path:
            answer = await mount.handle(request)
            request.count_request(False)  # Where the mount asked no gate, the token is only a claim.
            self._note(request.caller)
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
        self._note(request.caller)
        return answer

    def _read_now(self, request: Request, route: Route, values: list[str]) -> Answer:
        if self._needs_no_store(route):
            return encode(route, route.handler(**self._arguments(request, route, values)))
        answer: Answer = self._peek_now(self._read_unit(request, route, values))
        self._note(request.caller)
        return answer

    def _needs_no_store(self, route: Route) -> bool:
        return route.scope is Scope.PUBLIC and "tx" not in route.wants

    def _read_unit(self, request: Request, route: Route, values: list[str]) -> Callable[[Tx], Answer]:
        """Return the unit of a read: the gate and the handler see the same moment."""
        ask = self._ask(request, route, values)

        def unit(tx: Tx) -> Answer:
            request.caller = self._admit(tx, route, ask)
            return encode(route, route.handler(**self._arguments(request, route, values, tx=tx)))

        return unit

    async def _run_write(self, request: Request, route: Route, ask: Ask, values: list[str]) -> Answer:
        await self._pass_gate(request, route, ask)
        raw = await request.body(route.body_limit)

        def unit(tx: Tx) -> Answer:
            given = self._arguments(request, route, values, tx=tx, body=raw)
            return encode(route, route.handler(**given))

        claim = self._claim(request, route, raw)
        write = Write(self.db, request, route, claim)
        if claim is None:
            return await write(unit)
        with self._alone(claim):
            try:
                return await write(unit)
            except Replay as replay:
                return again(request, replay.answer)

    async def _run_async(self, request: Request, route: Route, ask: Ask, values: list[str]) -> Answer | Stream:
        await self._pass_gate(request, route, ask)
        if route.events and request.caller is not None:
            self._take_slot(request)
        form = await forms.read(request, route.upload, self.db.env.settings) if route.upload else None
        try:
            # A handler that takes the request itself reads the body itself.
            reads = route.body is not None or "request" not in route.wants
            raw = await request.body(route.body_limit) if reads else b""
            claim = self._claim(request, route, form.fingerprint if form else raw) if route.is_write else None
            write = Write(self.db, request, route, claim)
            given = {"form": form, "write": write}
            call = functools.partial(self._call, request, route, ask, values, raw, given)
            if claim is None:
                answer: Answer | Stream = await call()
                return answer
            with self._alone(claim):
                return await (write.run(call) if "write" in route.wants else write.run_outside(call))
        finally:
            if form:
                form.discard()

    async def _call(
        self, request: Request, route: Route, ask: Ask, values: list[str], raw: bytes, offered: dict[str, Any]
    ) -> Any:
        given = self._arguments(request, route, values, body=raw)
        given |= {name: value for name, value in offered.items() if name in route.wants}
        result = await route.handler(**given)
        if isinstance(result, EventStream) and request.caller is not None:
            result.recheck.check = functools.partial(self._check_again, request, route, ask)
            result.pace.reserve = functools.partial(self.slots.reserve, request.caller.org_id)
        return result if isinstance(result, Stream) else encode(route, result)

    def _take_slot(self, request: Request) -> None:
        """Count an event stream that is about to open, until its request ends; raises RateLimited."""
        try:
            request.release = self.slots.take(request.token or "", request.caller.org_id)
        except RateLimited:
            if request.counted is not None:
                request.counted = request.counted._replace(may=False)  # So that the answer carries `Retry-After`.
            raise

    async def _check_again(self, request: Request, route: Route, ask: Ask) -> None:
        """Raise where a stream that is open could not be opened now."""
        await self.db.peek(lambda tx: self.gate.check_again(tx, route, ask, request.caller))

    @contextlib.contextmanager
    def _alone(self, claim: idempotency.Claim) -> Iterator[None]:
        """Hold the key within this process; raises Conflict where another request of it does."""
        if claim.place in self._at_work:
            raise idempotency.still_at_work()
        self._at_work.add(claim.place)
        try:
            yield
        finally:
            self._at_work.discard(claim.place)

    def _claim(self, request: Request, route: Route, raw: bytes) -> idempotency.Claim | None:
        key = request.header(b"idempotency-key")
        if key is None or request.caller is None:
            return None
        caller = request.caller
        return idempotency.Claim(
            org_id=caller.org_id or 0,
            actor=caller.actor,
            route=f"{request.method} {request.path}",
            key=idempotency.check_key(key),
            fingerprint=idempotency.fingerprint(raw),
        )

    async def _pass_gate(self, request: Request, route: Route, ask: Ask) -> None:
        if route.scope is not Scope.PUBLIC:
            request.caller = await self.db.peek(lambda tx: self._admit(tx, route, ask))
            self._note(request.caller)

    def _admit(self, tx: Tx, route: Route, ask: Ask) -> Any:
        if route.scope is Scope.PUBLIC:
            return None
        if ask.token is None:
            raise Unauthorized("A bearer token is needed")
        return self.gate.admit(tx, route, ask)

    def _note(self, caller: Any) -> None:
        if caller is not None and caller.is_first_use:
            task = asyncio.get_running_loop().create_task(self.gate.passed(self.db, caller))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _ask(self, request: Request, route: Route, values: list[str]) -> Ask:
        organization = request.header(b"x-organization-id")
        if organization is None and b"organization_id=" in request.query_string and route.scope is not Scope.PUBLIC:
            organization = request.from_query("organization_id")
        path_org = values[0] if route.scope is Scope.PATH_ORG else None
        return Ask(request.token, organization, path_org, request.client, request.count_request)

    def _arguments(
        self, request: Request, route: Route, values: list[str], *, tx: Tx | None = None, body: bytes = b""
    ) -> dict[str, Any]:
        """Validate and return what the handler asked for; a path parameter that names nothing is a 404."""
        given: dict[str, Any] = {}
        for (name, parse), text in zip(route.params, values, strict=True):
            value = parse(text)
            if value is None:
                raise NotFound("There is nothing at this address")
            if name in route.wants:
                given[name] = value
        if "tx" in route.wants:
            given["tx"] = tx
        if "caller" in route.wants:
            given["caller"] = request.caller
        if "request" in route.wants:
            given["request"] = request
        if route.query is not None:
            given["query"] = validate(route.query, request.query())
        if route.body is not None:
            given["body"] = _read_body(request, route, body)
        return given


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


def _read_body(request: Request, route: Route, raw: bytes) -> Any:
    assert route.body is not None
    if not raw and route.body_optional:
        return validate(route.body, {})
    kind = request.media_type
    if kind and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise BadRequest("The body should be JSON, with Content-Type: application/json")
    return validate(route.body, strictjson.parse(raw))


async def _not_http(scope: dict[str, Any], receive: Any, send: Send) -> None:
    if scope["type"] == "lifespan":
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
