"""What deployments ask of whatever runs apps. A site is published by its files alone, and needs none of this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from moorage.core.db.tx import Tx
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.tables import Deployment

Write = Callable[[Callable[[Tx], Any]], Awaitable[Any]]


class CannotDeploy(Exception):
    """A deployment cannot be finished; the text is a sentence for whoever asked for it."""


class Swap(msgspec.Struct, frozen=True, rename="camel"):
    """What was measured through the public address while a release took over."""

    requests: int
    failed: int
    longest_gap_ms: int


class Apps(Protocol):
    async def bring_up(self, found: Deployment, write: Write, log: LogWriter) -> None:
        """Start a release beside the one that is live; return when it has proved healthy; raises CannotDeploy."""
        ...

    def watched(self, found: Deployment) -> AbstractAsyncContextManager[Callable[[], Swap]]:
        """Send requests to the public address as long as the context lasts; what it gives tells how they fared."""
        ...
