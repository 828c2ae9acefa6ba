"""Work in threads that a cancelled build waits for: its folders are removed after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_end(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a function in a thread; a cancelled caller still waits for its end."""
    task = asyncio.ensure_future(asyncio.to_thread(partial(work, *args, **options)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
