"""Telling those who follow a function that something new was stored of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator


class Follower:
    """One who follows a function in this process."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.grown: set[int] = set()  # invocations whose logs became longer after they were stored

    async def wait(self, at_most_s: float) -> None:
        """Return when there is news, or after a time: another process may have stored something."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self.news.wait()
        self.news.clear()

    def take_grown(self) -> set[int]:
        taken, self.grown = self.grown, set()
        return taken


class Changes:
    """Who follows what. Used within one event loop."""

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

    def tell(self, function_id: int, grown: Iterable[int] = ()) -> None:
        for follower in self._followers.get(function_id, ()):
            follower.grown.update(grown)
            follower.news.set()
