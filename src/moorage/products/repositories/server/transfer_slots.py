"""Limit of an organization's concurrent git transfers, builds included.

A request over the limit is rejected before its body is read; a build waits without holding resources.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from moorage.errors import RateLimited

MAX_CONCURRENT_TRANSFERS = 16


class TransferSlots:
    def __init__(self, limit: int = MAX_CONCURRENT_TRANSFERS) -> None:
        self._limit = limit
        self._running: Counter[int] = Counter()
        self._freed = asyncio.Condition()

    @contextlib.contextmanager
    def take(self, org_id: int) -> Iterator[None]:
        """Begin a transfer; raises RateLimited where the organization has too many."""
        if self._running[org_id] >= self._limit:
            raise RateLimited(f"This organization has {self._limit} git transfers in progress; try again in a moment")
        with self.hold(org_id):
            yield

    @contextlib.contextmanager
    def hold(self, org_id: int) -> Iterator[None]:
        """Count a transfer that `take` admitted and that continues after its request."""
        self._running[org_id] += 1
        try:
            yield
        finally:
            self._running[org_id] -= 1
            self._running += Counter()  # removes the counts of zero

    @contextlib.asynccontextmanager
    async def wait(self, org_id: int) -> AsyncIterator[None]:
        """Begin a transfer as soon as the organization is below the limit."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._running[org_id] < self._limit)
            slot = self.hold(org_id)
            slot.__enter__()
        try:
            yield
        finally:
            slot.__exit__(None, None, None)
            async with self._freed:
                self._freed.notify_all()
