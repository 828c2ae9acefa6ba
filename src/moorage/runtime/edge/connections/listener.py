"""One listener of the edge: open connections, limits, deadlines, draining."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Request
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.heap import trim
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.owner import EarlyHandler
from moorage.runtime.edge.connections.protocol import Connection, Handler

_CACHE_CLEAR_INTERVAL_S = 60
_TRIM_AFTER_CLOSED = 200  # connections


class Listener:
    """Protocol factory of `asyncio` servers; tracks the open connections."""

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
        self.is_behind_gateway = is_behind_gateway  # The gateway sends the client address in a header.
        self.limits = limits or Limits()
        self.open: set[Connection] = set()
        self.request_cache: dict[bytes, Request] = {}  # raw bytes -> parsed request
        self._update_clock()
        self.is_draining = False
        self._most_open = 0
        self._clear_cache_at = self.now + _CACHE_CLEAR_INTERVAL_S
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._has_connections = asyncio.Event()

    def __call__(self) -> Connection:
        if not self._has_connections.is_set():
            self._update_clock()
            self._has_connections.set()
        return Connection(self)

    def _update_clock(self) -> None:
        """Update the cached time, which is precise to a second."""
        self.date = answers.http_date()
        self.plain_end = b"\r\ndate: %b\r\n\r\n" % self.date
        self.now = asyncio.get_running_loop().time()
        self.answered_by = self.now + self.limits.answer_s
        self.idle_until = self.now + self.limits.idle_s

    def add(self, connection: Connection) -> None:
        self.open.add(connection)
        self._has_connections.set()
        self._most_open = max(self._most_open, len(self.open))
        self._is_empty.clear()

    def remove(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._is_empty.set()

    async def watch_deadlines(self, every_s: float = 1) -> None:
        """Check all deadlines periodically: cheaper than a timer per request."""
        while True:
            if not self.open and not self.request_cache:
                self._has_connections.clear()
                await self._has_connections.wait()
            await asyncio.sleep(every_s)
            self._update_clock()
            if self.now > self._clear_cache_at:
                self.request_cache.clear()  # It holds data of clients and removed functions.
                self._clear_cache_at = self.now + _CACHE_CLEAR_INTERVAL_S
            for connection in tuple(self.open):
                connection.check_deadline()
            if self.guard is not None:
                self.guard.budget.check()
            if self._most_open - len(self.open) > _TRIM_AFTER_CLOSED:
                self._most_open = len(self.open)
                trim()

    async def drain(self, within_s: float = 5) -> None:
        """Finish running requests, accept no others, abort the rest after the time."""
        self.is_draining = True
        for connection in tuple(self.open):
            connection.close_if_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_empty.wait()
        for connection in tuple(self.open):
            connection.abort()
