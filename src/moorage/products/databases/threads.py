"""Calls to database servers that may hang, each in its own daemon thread.

A server that hangs blocks the calling thread for an unlimited time and would exhaust the shared thread pool. So each
server gets one thread of its own, and no second call before the first has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class SingleCallThread:
    """Runs one call at a time in a daemon thread, which does not delay the exit."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._last is not None and not self._last.done()

    async def run(self, call: Callable[[], T], within_s: float) -> T:
        """Return the result; raises TimeoutError if it or the previous call is slow."""
        if self.is_busy:
            raise TimeoutError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(asyncio.Future.exception)  # silences the warning about an unread late error
        self._last = future
        threading.Thread(target=_run, args=(call, loop, future), name="single-call", daemon=True).start()
        done, _ = await asyncio.wait({future}, timeout=within_s)
        if not done:
            raise TimeoutError
        return future.result()

    def after(self, call: Callable[[], None]) -> None:
        """Make a call after the current one has returned, without waiting for it."""
        thread = threading.Thread(target=call, name="single-call", daemon=True)
        if self._last is not None and not self._last.done():
            self._last.add_done_callback(lambda _: thread.start())
        else:
            thread.start()


def _run(call: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        finish = partial(future.set_result, call())
    except Exception as error:  # noqa: BLE001 - passed to the caller
        finish = partial(future.set_exception, error)
    with contextlib.suppress(RuntimeError):  # The event loop is closed.
        loop.call_soon_threadsafe(finish)
