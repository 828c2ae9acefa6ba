"""Turns of the event loop: streams that have data at the same moment write in turn, with other requests in between."""

from __future__ import annotations

import asyncio


class Turns:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait for an iteration of the event loop in which no other caller has its turn."""
        async with self._lock:
            await asyncio.sleep(0)
