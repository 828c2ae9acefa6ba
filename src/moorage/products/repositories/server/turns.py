"""How many git transfers of an organization run at once: pushes, fetches and clones of the built-in server, and builds.

A request over the bound is refused before its body is read; a build waits and holds nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from moorage.errors import RateLimited

AT_ONCE = 16


class Turns:
    def __init__(self, most: int = AT_ONCE) -> None:
        self._most = most
        self._taken: Counter[int] = Counter()
        self._freed = asyncio.Condition()

    @contextlib.contextmanager
    def take(self, org_id: int) -> Iterator[None]:
        """Begin a transfer; raises RateLimited where the organization has too many."""
        if self._taken[org_id] >= self._most:
            raise RateLimited(f"This organization has {self._most} git transfers under way; try again in a moment")
        with self.go_on(org_id):
            yield

    @contextlib.contextmanager
    def go_on(self, org_id: int) -> Iterator[None]:
        """Count a transfer that was let in by `take` and goes on beside its request."""
        self._taken[org_id] += 1
        try:
            yield
        finally:
            self._taken[org_id] -= 1
            self._taken += Counter()  # Forgets organizations without a transfer.

    @contextlib.asynccontextmanager
    async def wait(self, org_id: int) -> AsyncIterator[None]:
        """Begin a transfer as soon as the organization has less than the bound."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._taken[org_id] < self._most)
            turn = self.go_on(org_id)
            turn.__enter__()
        try:
            yield
        finally:
            turn.__exit__(None, None, None)
            async with self._freed:
                self._freed.notify_all()
