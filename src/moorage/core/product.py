"""The wiring of a product: routes, jobs, background loops and shutdown.

`moorage/wiring.py` lists the products in order. The control process registers, adopts, starts and closes them in that
order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar

from moorage.core.db.store import Database
from moorage.core.http.dispatch import Mount
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.worker.run import Handlers

Loop = Coroutine[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Duties:
    """The work of one control process; several processes may share a store."""

    works: bool = True  # runs jobs, ticks and reconcilers
    has_gateway: bool = True  # a public gateway runs on this machine, and this process configures it
    has_edge: bool = True  # the edge of this machine belongs to this process
    runs_apps: bool = False  # keeps the apps and database servers of this machine running


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A periodic function that compares stored with observed state."""

    name: str
    # (db, now); returns True if nothing is left to do until rows change
    ensure: Callable[[Database, int], Awaitable[bool | None]]
    every_s: float


class Product:
    """Base of the wiring of a product, which overrides the methods that it needs."""

    # Beginnings of the paths of all routes, such as `/v1/projects`. The first request below one of them, or without
    # any the first request at all, calls `routers`.
    paths: ClassVar[tuple[str, ...]] = ()

    def routers(self) -> Sequence[Router]:
        """Declare the routes. Runs in a thread, and executes modules that only requests need."""
        return ()

    def mounts(self) -> Sequence[Mount]:
        """Return handlers of paths outside of `/v1`."""
        return ()

    def register(self, handlers: Handlers) -> None:
        """Add job handlers, tick handlers, maintenance tasks, event listeners and hooks."""

    def reconciled(self) -> Sequence[Reconciled]:
        return ()

    async def adopt(self, duties: Duties) -> None:
        """Find processes of an earlier control process. Runs before any job, together with other products."""

    async def start(self, duties: Duties) -> None:
        """Prepare for the loops. Runs after the job worker was started."""

    def loops(self, duties: Duties) -> Sequence[Loop]:
        """Return the background loops; one that ends by itself ends the process."""
        return ()

    async def ready(self, duties: Duties) -> None:
        """Wait until requests can be served, before the process reports readiness."""

    async def stop(self) -> None:
        """Stop taking new work, while loops still run."""

    async def close(self) -> None:
        """Release connections and processes after the loops; apps keep running."""
