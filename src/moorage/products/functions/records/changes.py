"""In-process notifications of new records, for the live streams of functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator


class Follower:
    """A live stream of a function in this process."""

    def __init__(self) -> None:
        self.notified = asyncio.Event()
        self.grown: set[int] = set()  # invocations with log text added after they were stored

    async def wait(self, timeout_s: float) -> None:
        """Wait for a notification or the timeout: another process may have stored records."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.notified.wait()
        self.notified.clear()

    def take_grown(self) -> set[int]:
        grown, self.grown = self.grown, set()
        return grown


class Changes:
    """Followers by function. Used within one event loop."""

    def __init__(self) -> None:
        self._followers: dict[int, set[Follower]] = {}

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    @contextlib.contextmanager
    def following(self, function_id: int) -> Iterator[Follower]:
        follower = Follower()
        self._followers.setdefault(function_id, set()).add(follower)
        try:
            yield follower
        finally:
            self._followers[function_id].discard(follower)
            if not self._followers[function_id]:
                del self._followers[function_id]

    def notify(self, function_id: int, grown: Iterable[int] = ()) -> None:
        for follower in self._followers.get(function_id, ()):
            follower.grown.update(grown)
            follower.notified.set()
