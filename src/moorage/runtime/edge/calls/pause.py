"""Pause of the pool's periodic checks, until a call arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from moorage.runtime.edge.calls.instance import Instance

TICK_INTERVAL_S = 0.05
IDLE_CHECK_INTERVAL_S = 1.0


class Pause:
    def __init__(self) -> None:
        self.is_long = False  # Every call checks this, so it is an attribute.
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End a long pause after one tick, because a call has arrived."""
        self._ended.set()

    async def wait(self, instances: Iterable[Instance], has_backlog: bool) -> None:
        """Pause between checks: long without calls, and until the next call without instances."""
        known = list(instances)
        if has_backlog or any(each.calls or each.reserved or not each.is_loaded for each in known):
            await asyncio.sleep(TICK_INTERVAL_S)
            return
        self._ended.clear()
        self.is_long = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_CHECK_INTERVAL_S if known else None):
                await self._ended.wait()
                await asyncio.sleep(TICK_INTERVAL_S)
        self.is_long = False
