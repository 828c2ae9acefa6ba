"""HTTP probes of apps: health checks, and measurements during a switch.

The path comes from the user and the response from the user's app, so neither is trusted: the path is encoded for the
request line, and the time and bytes that are read of a response are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Coroutine
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from moorage.core.net.http1 import BadResponse, Connection, CutOff, Response, ResponseError, connect, encode_request
from moorage.products.analytics.lines import OWN_AGENT as AGENT
from moorage.runtime.engines.ports import Address

MAX_BODY_BYTES = 2**20  # The rest of a longer body is not read.
RESPONSE_TIMEOUT_S = 5.0
LONG_RESPONSE_TIMEOUT_S = 20.0  # for an app that listens and did not answer in time
DRAIN_TIMEOUT_S = 0.25  # for the body of a health check: many apps log an error when a client closes too early
RESPONSE_TIMEOUT_TICKS = 20
PAUSE_CHECK_INTERVAL_S = 0.02
MIN_PAUSE_S = 0.05  # by which the event loop is late; less is normal
MAX_SHOWN_CHARS = 200
# Characters that stay as they are in a request line; "%" is one, because the user may have encoded the path already.
SAFE = "/?%:@!$&'()*+,;=-._~[]"
HEALTHY = range(200, 400)
GATEWAY_ERRORS = frozenset((502, 503, 504))
TOO_MANY_REQUESTS = 429  # A rate limit of the app applies to probes too, so it is no failure of the switch.


class WrongAnswer(str):
    """Reason of a failed check that the app did answer; status 0 if it was not HTTP."""

    status: int

    def __new__(cls, text: str, status: int = 0) -> Self:
        answer = super().__new__(cls, text)
        answer.status = status
        return answer


class NoAnswer(str):
    """Reason of a failed check that the app accepted and did not answer in time."""

    __slots__ = ()


def target_of(path: str) -> str:
    """Encode a path for a request line."""
    encoded = quote(path, safe=SAFE, errors="surrogatepass")
    return encoded if encoded.startswith("/") else f"/{encoded}"


async def check(
    address: Address, path: str, host: str, timeout_s: float = RESPONSE_TIMEOUT_S, *, accepted: Container[int] = HEALTHY
) -> str | None:
    """Return None if the app at an address answers an accepted status, else the reason."""
    refused = f"nothing listens on PORT ({address.port}) yet"
    return await _probe(address.host, address.port, path, host, timeout_s, refused, accepted)


async def check_through(
    gateway_host: str,
    gateway_port: int,
    host: str,
    path: str,
    timeout_s: float = RESPONSE_TIMEOUT_S,
    *,
    accepted: Container[int] = HEALTHY,
) -> str | None:
    """Same as `check`, through the public gateway."""
    refused = "the gateway refuses connections"
    return await _probe(gateway_host, gateway_port, path, host, timeout_s, refused, accepted)


async def _probe(
    address: str, port: int, path: str, host: str, timeout_s: float, refused: str, accepted: Container[int]
) -> str | None:
    target = target_of(path)
    request = f"GET {target[:MAX_SHOWN_CHARS]}"
    try:
        async with asyncio.timeout(timeout_s):
            status = await _status_of(address, port, target, host)
    except TimeoutError:
        return NoAnswer(f"no answer within {timeout_s:g} s")
    except ConnectionRefusedError:
        return refused
    except BadResponse:
        return WrongAnswer(f"{request} got an answer that is not valid HTTP")
    except (ResponseError, OSError):
        return f"{request} got no answer: the connection was closed"
    return None if status in accepted else WrongAnswer(f"{request} answered {status}", status)


async def _status_of(address: str, port: int, target: str, host: str) -> int:
    with contextlib.closing(await connect(address, port)) as connection:
        response = await _request(connection, target, host, keep=False)
        with contextlib.suppress(ResponseError, TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await connection.read()
        return response.status


async def _request(connection: Connection, target: str, host: str, *, keep: bool) -> Response:
    """Send a request, and return as soon as the status is known."""
    mode = "keep-alive" if keep else "close"
    headers = (("Host", host), ("User-Agent", AGENT), ("Accept", "*/*"), ("Connection", mode))
    response = Response(max_body_bytes=MAX_BODY_BYTES, stores_body=False)
    connection.send(encode_request("GET", target, headers), response)
    await connection.read(only_head=True)
    return response


class Measured(NamedTuple):
    """Results of the probes during a switch."""

    requests: int
    failed: int
    longest_gap_ms: int  # between two successful responses


class SwapProber:
    """Async context manager that sends requests through the gateway while open.

    New connections and a keep-alive connection take turns, each with at most one open request. Entering waits for the
    first response, up to RESPONSE_TIMEOUT_S; its status is the app's usual status for this path.

    On a loaded machine this process itself may get no CPU for seconds. Such a pause neither ends a request, whose
    response may have arrived meanwhile, nor counts as a gap.
    """

    def __init__(self, gateway_host: str, gateway_port: int, host: str, path: str, every_s: float = 0.02) -> None:
        self._address = (gateway_host, gateway_port)
        self._host = host
        self._target = target_of(path)
        self._every_s = every_s
        self._requests = self._failed = 0
        self._usual_status: int | None = None
        self._longest_s = 0.0
        self._last_at: float | None = None
        self._paused_s = self._paused_before_s = 0.0  # own pauses: all, and those before the last good response
        self._pause_due = float("inf")  # when the event loop is expected to run again
        self._is_down = False  # the last request failed
        self._keep_alive: Connection | None = None
        self._has_response = asyncio.Event()
        self._is_over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._run(self._request_new, after_s=0.0)),
            asyncio.create_task(self._run(self._request_keep_alive, after_s=self._every_s)),
        ]
        self._pause_task = asyncio.create_task(self._measure_pauses())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                await self._has_response.wait()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for open requests: one without a response must count as failed."""
        self._is_over.set()
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        try:
            await asyncio.wait(self._tasks)
        finally:
            for task in (*self._tasks, self._pause_task):
                task.cancel()
            self._drop_keep_alive()
        if self._is_down:  # The outage has not ended yet.
            self._add_gap(time.monotonic())

    def measured(self) -> Measured:
        return Measured(self._requests, self._failed, round(self._longest_s * 1000))

    async def _run(self, request: Callable[[], Coroutine[Any, Any, int]], after_s: float) -> None:
        due = time.monotonic() + after_s
        while not await self._is_over_by(due):
            self._record(await self._status_or_none(request))
            due = max(due + 2 * self._every_s, time.monotonic())

    async def _is_over_by(self, due: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due - time.monotonic(), 0.0)):
                await self._is_over.wait()
        return self._is_over.is_set()

    async def _measure_pauses(self) -> None:
        while True:
            self._pause_due = time.monotonic() + PAUSE_CHECK_INTERVAL_S
            await asyncio.sleep(PAUSE_CHECK_INTERVAL_S)
            self._paused_s = self._own_pauses_s(time.monotonic())

    def _own_pauses_s(self, now: float) -> float:
        """Return all pauses of this process, also one that has just ended."""
        late_s = now - self._pause_due
        return self._paused_s + (late_s if late_s > MIN_PAUSE_S else 0.0)

    async def _status_or_none(self, request: Callable[[], Coroutine[Any, Any, int]]) -> int | None:
        task = asyncio.create_task(request())
        try:
            for _ in range(RESPONSE_TIMEOUT_TICKS):  # A pause of this process takes one tick, however long it is.
                if (await asyncio.wait({task}, timeout=RESPONSE_TIMEOUT_S / RESPONSE_TIMEOUT_TICKS))[0]:
                    return task.result()
        except (OSError, ResponseError):  # includes TimeoutError
            return None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return None

    def _record(self, status: int | None) -> None:
        now = time.monotonic()
        self._requests += 1
        self._has_response.set()
        if self._usual_status is None and status not in GATEWAY_ERRORS:
            self._usual_status = status
        if self._is_failure(status):
            self._failed += 1
            self._is_down = True
            return
        self._add_gap(now)
        self._last_at, self._is_down, self._paused_before_s = now, False, self._own_pauses_s(now)

    def _add_gap(self, now: float) -> None:
        if self._last_at is not None:
            gap_s = now - self._last_at - (self._own_pauses_s(now) - self._paused_before_s)
            self._longest_s = max(self._longest_s, gap_s)

    def _is_failure(self, status: int | None) -> bool:
        """Return whether the switch failed; the app's usual error status is no failure."""
        if status is None or status in GATEWAY_ERRORS:
            return True
        return status >= 400 and status not in (self._usual_status, TOO_MANY_REQUESTS)

    async def _request_new(self) -> int:
        with contextlib.closing(await connect(*self._address)) as connection:
            response = await _request(connection, self._target, self._host, keep=False)
            await _read_end(connection)
            return response.status

    async def _request_keep_alive(self) -> int:
        connection, response = self._keep_alive, None
        try:
            if connection is not None and connection.is_idle():
                # A server may close an idle connection; like any client, open another one, also where the close
                # becomes visible only after the request was sent.
                with contextlib.suppress(CutOff):
                    response = await _request(connection, self._target, self._host, keep=True)
            if connection is None or response is None:
                self._drop_keep_alive()
                connection = self._keep_alive = await connect(*self._address)
                response = await _request(connection, self._target, self._host, keep=True)
            await _read_end(connection)
        finally:
            if response is None or not response.can_keep_alive:
                self._drop_keep_alive()
        return response.status

    def _drop_keep_alive(self) -> None:
        if self._keep_alive is not None:
            self._keep_alive.close()
            self._keep_alive = None


async def _read_end(connection: Connection) -> None:
    """Read a response to its end or the timeout; raises ResponseError if incomplete."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RESPONSE_TIMEOUT_S / 2):
            await connection.read()
