"""Telling those who follow a deployment that its log or its status has changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook, Hooks

# Runs after the log or the status of a deployment has changed: takes its id.
CHANGED: Hook[[int], None] = Hook("deployment.changed")


class Followers:
    """Who waits for news of which deployment. Used within one event loop."""

    def __init__(self, hooks: Hooks) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        hooks.add(CHANGED, f"followers {id(self)}", self.tell)

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


@across_organizations("a deployment's id names nothing but itself")
def tell_after(tx: Tx, deployment_id: int) -> None:
    """Tell everybody in this process once the transaction is durable."""
    for changed in tx.env.hooks.of(CHANGED).values():
        tx.after_commit(partial(changed, deployment_id))
