"""Speaking to the function gateway: HTTP on its unix socket.

The gateway is a process of its own and may be restarting at any moment. So a call says which of two things happened
when there is no answer: nothing was sent, and it may simply be sent again; or something was, and only the records tell
whether the function ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from moorage.core.net.local_http import BrokenOff, LocalHttp, NotConnected, Reply
from moorage.errors import Conflict, Internal, MoorageError, NotFound, RateLimited

CONNECT_S = 2.0  # A restart of the gateway takes less; a caller should not see one.
AGAIN_S = 0.05


class EdgeUnreachable(Internal):
    """Nothing was sent: the call did not run."""

    def __init__(self) -> None:
        super().__init__("The function gateway does not answer right now; the function was not called. Try again")


class EdgeLost(Internal):
    """The call was sent and no answer came: it may have run."""

    def __init__(self) -> None:
        super().__init__("The function gateway stopped before it answered; the function's invocations show if it ran")


class Call(msgspec.Struct, frozen=True):
    """One invocation to ask for. `params` is any JSON value, or `msgspec.Raw` where it is text already."""

    function_id: int = msgspec.field(name="function")
    activation_id: str = msgspec.field(name="activation")
    door: Literal["api", "schedule"]
    params: Any
    schedule_id: int | None = msgspec.field(name="schedule", default=None)


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """What came of an invocation. An error of the function is an outcome, not an exception."""

    status: Literal["success", "error"]
    result: msgspec.Raw
    error: str | None
    duration_ms: float
    version: int
    activation_id: str


class EdgeRoute(msgspec.Struct, frozen=True):
    """What the gateway knows of one function. It ignores a revision that is older than the one it has."""

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


class Health(msgspec.Struct, frozen=True):
    routes: int = 0
    started: Any = None  # differs from one start of the gateway to the next


_encode = msgspec.json.Encoder().encode
_read_outcome = msgspec.json.Decoder(Outcome).decode
_read_health = msgspec.json.Decoder(Health).decode


class EdgeClient:
    """One client per process. It keeps connections open, and makes as many as there are calls in flight."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.is_expected = True  # whether this machine runs a gateway: an API process alone need not wait for one
        self._http = LocalHttp(socket_path)

    async def invoke(self, call: Call) -> Outcome:
        """Run a function and return what came of it.

        Raises NotFound and RateLimited where the gateway refuses, Conflict where it has been given this activation
        before, EdgeUnreachable and EdgeLost where it does not answer.
        """
        status, body = await self._send("POST", "/invoke", _encode(call))
        if status != 200:
            raise _refusal(status)
        try:
            return _read_outcome(body)
        except msgspec.DecodeError as error:
            raise EdgeLost from error

    async def put_routes(self, routes: Sequence[EdgeRoute]) -> None:
        """Replace all routes; returns once they are in force."""
        await self._ask("PUT", "/routes", _encode({"routes": routes}))

    async def change_routes(self, routes: Sequence[EdgeRoute], drop: Sequence[int] = ()) -> None:
        """Set some routes and drop others; returns once they are in force."""
        await self._ask("PATCH", "/routes", _encode({"set": routes, "drop": drop}))

    async def health(self) -> Health:
        body = await self._ask("GET", "/health", b"")
        try:
            return _read_health(body)
        except msgspec.DecodeError as error:
            raise EdgeLost from error

    async def close(self) -> None:
        await self._http.close()

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        status, answer = await self._send(method, path, body)
        if status != 200:
            raise _refusal(status)
        return answer

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        """Send one request, trying to connect for a while. Nothing is ever sent twice."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CONNECT_S
        while True:
            try:
                return await self._http.send(method, path, body)
            except NotConnected as error:
                if loop.time() + AGAIN_S >= give_up_at:
                    raise EdgeUnreachable from error
                await asyncio.sleep(AGAIN_S)
            except BrokenOff as error:
                raise EdgeLost from error


def _refusal(status: int) -> MoorageError:
    if status == 404:
        return NotFound("The function gateway does not know this function")
    if status == 429:
        return RateLimited("The function's queue is full; try again when some of its calls have ended")
    if status == 409:
        return Conflict("The function gateway was given this call before")
    return EdgeLost()
