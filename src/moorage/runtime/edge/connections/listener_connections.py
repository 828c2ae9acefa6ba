"""All connections of one listener: their limits, deadlines and end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Request
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.heap import trim
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.protocol import Connection, EarlyHandler, Handler

_FORGET_S = 60
_TRIM_AFTER = 200  # connections that are gone


class Connections:
    """Makes the protocol of each new connection, and knows all that are open."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        *,
        early: EarlyHandler | None = None,
        guard: Guard | None = None,
        is_behind_gateway: bool = False,
    ) -> None:
        self.handler = handler
        self.early = early
        self.guard = guard
        self.is_behind_gateway = is_behind_gateway  # whose clients are named in a header
        self.limits = limits or Limits()
        self.open: set[Connection] = set()
        self.usual: dict[bytes, Request] = {}  # requests as they came, and as understood: clients repeat themselves
        self._look()
        self.is_draining = False
        self._most_open = 0
        self._forget_at = self.now + _FORGET_S
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __call__(self) -> Connection:
        return Connection(self)

    def _look(self) -> None:
        """Note what time it is: deadlines and dates are seconds, not moments."""
        self.date = answers.http_date()
        self.plain_end = b"\r\ndate: %b\r\n\r\n" % self.date
        self.now = asyncio.get_running_loop().time()
        self.answered_by = self.now + self.limits.answer_s
        self.idle_until = self.now + self.limits.idle_s

    def add(self, connection: Connection) -> None:
        self.open.add(connection)
        self._most_open = max(self._most_open, len(self.open))
        self._is_empty.clear()

    def remove(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._is_empty.set()

    async def keep_watch(self, every_s: float = 1) -> None:
        """End what is over its time, forever. One timer for all is cheaper than one per request."""
        while True:
            await asyncio.sleep(every_s)
            self._look()
            if self.now > self._forget_at:
                self.usual.clear()  # They hold what clients sent, and functions that may be gone.
                self._forget_at = self.now + _FORGET_S
            for connection in tuple(self.open):
                connection.check_deadline()
            if self.guard is not None:
                self.guard.budget.look()
            if self._most_open - len(self.open) > _TRIM_AFTER:
                self._most_open = len(self.open)
                trim()

    async def drain(self, within_s: float = 5) -> None:
        """Let each request that has begun finish, take no other, and cut off what is left after the time."""
        self.is_draining = True
        for connection in tuple(self.open):
            connection.close_if_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_empty.wait()
        for connection in tuple(self.open):
            connection.abort()
