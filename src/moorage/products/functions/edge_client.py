"""Client of the edge: HTTP on its unix socket.

The edge is a separate process and may restart at any time. So a call without a response raises one of two errors:
EdgeUnreachable if nothing was sent, so that the call can be repeated; EdgeLost if the call was sent, so that only the
records show whether the function ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from moorage.core.kit.decoding import decoder_of
from moorage.core.net.http1 import ResponseError
from moorage.core.net.local_http import LocalHttp, NotConnected, Reply
from moorage.errors import Conflict, Internal, MoorageError, NotFound, RateLimited

CONNECT_TIMEOUT_S = 2.0  # longer than a restart of the edge, so that callers do not notice one
CONNECT_RETRY_S = 0.05
T = TypeVar("T")


class EdgeUnreachable(Internal):
    """Nothing was sent: the call did not run."""

    def __init__(self) -> None:
        super().__init__("The edge process of functions does not answer; the function was not called. Try again")


class EdgeLost(Internal):
    """The call was sent without a response: it may have run."""

    def __init__(self) -> None:
        super().__init__("The edge process stopped before it answered; the function's invocations show if it ran")


class Call(msgspec.Struct, frozen=True):
    """Request of one invocation; `params` is a JSON value, or encoded `msgspec.Raw`."""

    function_id: int = msgspec.field(name="function")
    activation_id: str = msgspec.field(name="activation")
    source: Literal["api", "schedule"] = msgspec.field(name="door")
    params: Any
    schedule_id: int | None = msgspec.field(name="schedule", default=None)


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """Result of an invocation; an error of the function is an outcome too."""

    status: Literal["success", "error"]
    result: msgspec.Raw
    error: str | None
    duration_ms: float
    version: int
    activation_id: str


class EdgeRoute(msgspec.Struct, frozen=True):
    """A function at the edge, which ignores revisions older than its own."""

    id: int
    org: str
    name: str
    revision: int
    version: int
    runtime: str
    digest: str
    main: str
    timeout_ms: int
    memory_mb: int
    env: list[tuple[str, str]]
    network: str
    raw_http: bool
    own_options: bool
    secrets: list[str]  # names in `env` whose values the edge must not show


class Health(msgspec.Struct, frozen=True):
    routes: int = 0
    started: Any = None  # differs for each start of the edge


encode = msgspec.json.Encoder().encode
_read_outcome = decoder_of(Outcome).decode
_read_health = decoder_of(Health).decode


class EdgeClient:
    """Client with keep-alive connections, one per call in flight. One per process."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.is_expected = True  # whether this machine runs an edge; an API process alone must not wait for one
        self._http = LocalHttp(socket_path)

    async def invoke(self, call: Call, *, is_repeated: bool = False) -> Outcome:
        """Run a function and return its outcome. `is_repeated`: the call may have been sent before.

        Raises NotFound and RateLimited if the edge refuses, Conflict for a known activation id, EdgeUnreachable and
        EdgeLost if the edge does not answer.
        """
        return outcome_of(await self._send("POST", "/invoke", encode(call)))

    async def put_routes(self, routes: Sequence[EdgeRoute]) -> None:
        """Replace all routes; returns when they are active."""
        await self._request("PUT", "/routes", encode({"routes": routes}))

    async def change_routes(self, routes: Sequence[EdgeRoute], drop: Sequence[int] = ()) -> None:
        """Set some routes and drop others; returns when they are active."""
        await self._request("PATCH", "/routes", encode({"set": routes, "drop": drop}))

    async def health(self) -> Health:
        return health_of(await self._send("GET", "/health", b""))

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, method: str, path: str, body: bytes) -> None:
        status, _ = await self._send(method, path, body)
        if status != 200:
            raise refusal(status)

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        """Send one request; retries only the connect, so that nothing is sent twice."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CONNECT_TIMEOUT_S
        while True:
            try:
                return await self._http.send(method, path, body)
            except NotConnected as error:
                if loop.time() + CONNECT_RETRY_S >= give_up_at:
                    raise EdgeUnreachable from error
                await asyncio.sleep(CONNECT_RETRY_S)
            except ResponseError as error:
                raise EdgeLost from error


def outcome_of(reply: Reply) -> Outcome:
    """Return the outcome of a call; raises the error of a refusal."""
    return _decoded(reply, _read_outcome)


def health_of(reply: Reply) -> Health:
    return _decoded(reply, _read_health)


def _decoded(reply: Reply, read: Callable[[bytes], T]) -> T:
    if reply.status != 200:
        raise refusal(reply.status)
    try:
        return read(reply.body)
    except msgspec.DecodeError as error:
        raise EdgeLost from error


def refusal(status: int) -> MoorageError:
    if status == 404:
        return NotFound("The edge does not know this function")
    if status == 429:
        return RateLimited("The function's queue is full; try again when some of its calls have ended")
    if status == 409:
        return Conflict("The edge has already received this call")
    return EdgeLost()
