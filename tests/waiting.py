"""Requests with `?wait=`, and the work that they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.client import Reply

PATIENCE_S = 60


async def answer_of(request: Coroutine[Any, Any, Reply], work: Callable[[], Awaitable[object]]) -> Reply:
    """Return the answer of a request; `work`, which is repeated until then, ends its wait."""
    waiting = asyncio.ensure_future(request)
    async with asyncio.timeout(PATIENCE_S):
        while not waiting.done():
            await work()
            await asyncio.sleep(0.01)
    return waiting.result()
