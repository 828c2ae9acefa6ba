"""Notify this process's log streams of changes to deployments."""

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
    """Events of the open log streams by deployment. Used within one event loop."""

    def __init__(self, hooks: Hooks) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        hooks.add(CHANGED, f"followers {id(self)}", self.notify)

    @contextlib.contextmanager
    def following(self, deployment_id: int) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        self._waiting.setdefault(deployment_id, set()).add(changed)
        try:
            yield changed
        finally:
            self._waiting[deployment_id].discard(changed)
            if not self._waiting[deployment_id]:
                del self._waiting[deployment_id]

    def notify(self, deployment_id: int) -> None:
        for changed in self._waiting.get(deployment_id, ()):
            changed.set()


@across_organizations("reads no rows; the id identifies one deployment")
def notify_after_commit(tx: Tx, deployment_id: int) -> None:
    """Notify the streams of this process after the transaction was committed."""
    for changed in tx.env.hooks.of(CHANGED).values():
        tx.after_commit(partial(changed, deployment_id))
