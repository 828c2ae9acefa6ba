"""Telling those who follow a deployment that its log or its status has changed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Iterator

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx


class Followers:
    """Who waits for news of which deployment. Used within one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        _all.add(self)

    @contextlib.contextmanager
    def following(self, deployment_id: int) -> Iterator[asyncio.Event]:
        news = asyncio.Event()
        self._waiting.setdefault(deployment_id, set()).add(news)
        try:
            yield news
        finally:
            self._waiting[deployment_id].discard(news)
            if not self._waiting[deployment_id]:
                del self._waiting[deployment_id]

    def tell(self, deployment_id: int) -> None:
        for news in self._waiting.get(deployment_id, ()):
            news.set()


_all: weakref.WeakSet[Followers] = weakref.WeakSet()


@across_organizations("a deployment's id names nothing but itself")
def tell_after(tx: Tx, deployment_id: int) -> None:
    """Tell everybody in this process once the transaction is durable."""
    tx.after_commit(lambda: _tell(deployment_id))


def _tell(deployment_id: int) -> None:
    for followers in list(_all):
        followers.tell(deployment_id)
