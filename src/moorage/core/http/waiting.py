"""`?wait=<seconds>`: a write is answered when the work that it started has ended.

A route of such a write declares `follow`, which reads the work's current state and returns the route's answer for it.
The state is polled: any process may do the work, and no transaction or connection of the store is held meanwhile.
A waiting request occupies its own task only, and ends when its client disconnects or the process stops.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import Answer
from moorage.core.http.request import ClientGone, Request
from moorage.core.kit.decoding import convert
from moorage.errors import MoorageError

# The interval grows from the first to the last: most databases run after 0.3 s, builds take many seconds.
FIRST_POLL_S = 0.02
MAX_POLL_INTERVAL_S = 0.25
POLL_GROWTH = 1.3
RECHECK_S = 10.0  # of the credential, as for event streams


class Progress(NamedTuple):
    """A route's answer as of now, and whether the work has ended."""

    answer: Any
    has_ended: bool


# Marks a field that only answers of writes have: it is no field of the resource that a GET shows.
ONLY_IN_WRITES = msgspec.Meta(extra={"only_in_writes": True})
# The state of the work, in answers that have no state of their own; absent without `?wait=`.
WaitedStatus = Annotated[str | msgspec.UnsetType, ONLY_IN_WRITES]
# Takes the transaction, the caller, the answer so far and the parameters of the path.
Follow = Callable[[Tx, Any, Any, Mapping[str, Any]], Progress]


def data_of(answer: Answer, kind: Any) -> Any:
    """Return the data of an encoded answer as the type that its route declares."""
    data = msgspec.json.decode(answer.body).get("data")
    return None if data is None else convert(data, kind)


class Waiter:
    """Waits for the work of all requests of one dispatcher."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: set[asyncio.Event] = set()
        self._is_stopping = False

    def stop(self) -> None:
        """Let all waiting requests be answered now."""
        self._is_stopping = True
        for is_over in self._waiting:
            is_over.set()

    async def wait(
        self,
        request: Request,
        look: Callable[[Tx], Progress],
        seconds: int,
        recheck: Callable[[], Awaitable[None]],
    ) -> Any:
        """Return the answer at the end of the work, or after some seconds.

        None where nothing could be read. Raises ClientGone when the client disconnects.
        """
        with self._interruptible(request) as is_over:
            gone = asyncio.ensure_future(request.disconnected())
            over = asyncio.ensure_future(is_over.wait())
            try:
                return await self._poll(look, seconds, recheck, gone, over)
            finally:
                gone.cancel()
                over.cancel()
                await asyncio.gather(gone, over, return_exceptions=True)

    async def _poll(
        self,
        look: Callable[[Tx], Progress],
        seconds: int,
        recheck: Callable[[], Awaitable[None]],
        gone: asyncio.Future[None],
        over: asyncio.Future[Any],
    ) -> Any:
        now = asyncio.get_running_loop().time
        ends_at, check_at, interval = now() + seconds, now() + RECHECK_S, FIRST_POLL_S
        answer = None
        while True:
            try:
                if now() >= check_at:
                    await recheck()
                    check_at = now() + RECHECK_S
                answer, has_ended = await self._db.peek(look)
            except MoorageError:  # The resource was deleted, or the credential revoked.
                return answer
            left = ends_at - now()
            if has_ended or left <= 0 or over.done():
                return answer
            await asyncio.wait({gone, over}, timeout=min(interval, left), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGone
            interval = min(interval * POLL_GROWTH, MAX_POLL_INTERVAL_S)

    @contextlib.contextmanager
    def _interruptible(self, request: Request) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the request should be answered now.

        A client that closes its connection looks like one that only half-closes it: both get their answer now.
        """
        is_over = asyncio.Event()
        self._waiting.add(is_over)
        if request.set_on_half_close is not None:
            request.set_on_half_close(is_over.set)
        if self._is_stopping:
            is_over.set()
        try:
            yield is_over
        finally:
            self._waiting.discard(is_over)
            if request.set_on_half_close is not None:
                request.set_on_half_close(None)
