"""Interface between deployments and the app runtime. Static sites do not use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from moorage.core.db.tx import Tx
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.tables import Deployment
from moorage.runtime.builds.ports import BuildDatabases, Plan

Write = Callable[[Callable[[Tx], Any]], Awaitable[Any]]


class CannotDeploy(Exception):
    """A deployment cannot be finished; the text is the reason shown to the user."""


class Swap(msgspec.Struct, frozen=True, rename="camel"):
    """Requests to the public address while a release replaced its predecessor."""

    requests: int
    failed: int
    longest_gap_ms: int


class Apps(Protocol):
    async def bring_up(self, deployment: Deployment, write: Write, log: LogWriter) -> None:
        """Start a release beside the live one and wait for health; raises CannotDeploy."""
        ...

    async def open_databases(self, deployment: Deployment, plan: Plan, write: Write, log: LogWriter) -> BuildDatabases:
        """Return the databases of the project for its build; creates the first one where the build itself needs it."""
        ...

    def watched(self, deployment: Deployment) -> AbstractAsyncContextManager[Callable[[], Swap]]:
        """Probe the public address while the context is open; yields a reader of results."""
        ...
