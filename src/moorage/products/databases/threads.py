"""Waiting for something that may never answer, without anybody else waiting too.

A server that hangs keeps a thread that has asked it something for as long as it likes. The threads that everybody
shares would soon be used up, so such a question gets one of its own, and there is no second before the first is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """Runs one call at a time in a thread that holds up nobody, not even the end of the process."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._last is not None and not self._last.done()

    async def run(self, call: Callable[[], T], within_s: float) -> T:
        """Return what a call returns. Raises TimeoutError when it takes longer, or the one before still does."""
        if self.is_busy:
            raise TimeoutError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(asyncio.Future.exception)  # What comes too late is of no interest to anybody.
        self._last = future
        threading.Thread(target=_run, args=(call, loop, future), name="aside", daemon=True).start()
        done, _ = await asyncio.wait({future}, timeout=within_s)
        if not done:
            raise TimeoutError
        return future.result()

    def after(self, call: Callable[[], None]) -> None:
        """Make a call that nobody waits for, when the one that is under way is over."""
        thread = threading.Thread(target=call, name="aside", daemon=True)
        if self._last is not None and not self._last.done():
            self._last.add_done_callback(lambda _: thread.start())
        else:
            thread.start()


def _run(call: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        settle = partial(future.set_result, call())
    except Exception as error:  # noqa: BLE001 - whoever has asked is told
        settle = partial(future.set_exception, error)
    with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
        loop.call_soon_threadsafe(settle)
