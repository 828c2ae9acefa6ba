"""Commits of the store, so that a loop with nothing to do waits for the next one instead of polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator


class Commits:
    """Number of transactions with changes, and functions to call after the next one.

    Only a store with a single writing process has this; where several processes write, loops have to poll.
    """

    def __init__(self) -> None:
        self.count = 0
        self._listeners: dict[Callable[[], object], asyncio.AbstractEventLoop] = {}

    def add(self) -> None:
        """Count a commit; called by the writer thread after it."""
        self.count += 1
        for listener, loop in list(self._listeners.items()):
            with contextlib.suppress(RuntimeError):  # The event loop is closed.
                loop.call_soon_threadsafe(listener)

    @contextlib.contextmanager
    def calling(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call a function in this event loop after each commit."""
        self._listeners[listener] = asyncio.get_running_loop()
        try:
            yield
        finally:
            del self._listeners[listener]

    async def wait(self, since: int, wake: asyncio.Event, within_s: float) -> None:
        """Return when the count differs from `since`, when `wake` is set, or after `within_s`."""
        with self.calling(wake.set), contextlib.suppress(TimeoutError):
            # Checked after the registration, because the writer thread counts at any time.
            if self.count == since:
                async with asyncio.timeout(within_s):
                    await wake.wait()
