"""The supply of cells: who gets the next one, how many anybody may have, and what is asked of the invoker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import Function, Route
from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.calls.turns import Turns

TAKES_AT_ONCE = 16  # of one organization; where several ask, each has fewer
MANY_CELLS = 8
MOST_LET_IN = 8
HEAVY_US = 50_000  # to load a function's code; more is worth a template


class Link(Protocol):
    """What the pool asks of the invoker."""

    is_memory_low: bool
    sandbox: bool | None

    def take(self, request: dict[str, Any]) -> int: ...

    def tell(self, message: dict[str, Any]) -> None: ...


class Supply:
    def __init__(self, link: Link, caps: Caps, evict: Callable[[str | None], bool]) -> None:
        self._link = link
        self._caps = caps
        self._evict = evict  # ends the oldest idle instance of an organization, or of any; tells whether there was one
        self._takes: dict[int, Function] = {}
        self._shares = Shares(most=2 * TAKES_AT_ONCE, least=1, spare=TAKES_AT_ONCE)
        self._let_in: set[str] = set()  # organizations that got a cell although memory is low
        self._turns = Turns()
        self._org_cells: dict[str, int] = {}

    def grow(self, function: Function) -> None:
        """Ask for more instances where it helps the calls that wait."""
        room = self._caps.function_instances - len(function.instances) - function.starting
        for _ in range(min(function.missing(), room)):
            function.starting += 1
            self._turns.add(function)
        self.pump()

    def pump(self) -> None:
        """Ask the invoker for cells, organization by organization."""
        full = {org for org in self._shares if not self._shares.fits(org, 1)}
        while True:
            function = self._turns.next(frozenset(full))
            if function is None:
                return
            if function.is_gone or (not function.queue and function.depth == 1):
                function.starting -= 1
                continue
            if not self._shares.fits(function.org, 1) or not self._has_room(function):
                full.add(function.org)
                self._turns.add(function)
                continue
            self._shares.add(function.org, 1)
            self._org_cells[function.org] = self._org_cells.get(function.org, 0) + 1
            self._takes[self._link.take(request_of(function.route))] = function

    def _has_room(self, function: Function) -> bool:
        """Tell whether an organization may have another cell, making room among its own, or anybody's, idle ones."""
        if self._org_cells.get(function.org, 0) >= self._caps.org_instances:
            return self._evict(function.org)
        if not self._link.is_memory_low or self._evict(None):
            return True
        if not self._is_locked_out(function.org):
            return False
        self._let_in.add(function.org)
        return True

    def _is_locked_out(self, org: str) -> bool:
        """Tell whether an organization without any cell waits because others keep many of them busy.

        It gets one from the memory that is kept free. Otherwise calls of one organization, as long as their timeout
        allows, would keep all others from running.
        """
        most = max(self._org_cells.values(), default=0)
        return org not in self._org_cells and most >= MANY_CELLS and len(self._let_in) < MOST_LET_IN

    def came(self, take: int) -> Function | None:
        """Return who asked for a cell that has come, or that was refused."""
        function = self._takes.pop(take, None)
        if function is not None:
            function.starting -= 1
            self._shares.remove(function.org, 1)
        return function

    def leave(self, org: str) -> None:
        """One cell of an organization is gone."""
        left = self._org_cells.get(org, 0) - 1
        if left > 0:
            self._org_cells[org] = left
        else:
            self._org_cells.pop(org, None)
            self._let_in.discard(org)

    def cells_of(self, org: str) -> int:
        return self._org_cells.get(org, 0)

    def want_template(self, function: Function, load_us: int) -> None:
        """Have the code of a function that takes long to load kept loaded, for its next instances."""
        if load_us < HEAVY_US or function.has_template or not function.route.runtime.startswith("python"):
            return
        function.has_template = True
        self._link.tell({"template": {**request_of(function.route), "load": function.load}})

    def retire(self, function: Function) -> None:
        if function.has_template:
            self._link.tell({"retire": [function.id, function.route.revision]})


def request_of(route: Route) -> dict[str, Any]:
    """Return what the invoker has to know of a function to make a cell for it."""
    return {
        "runtime": route.runtime,
        "digest": route.digest,
        "memory_mb": route.memory_mb,
        "timeout_ms": route.timeout_ms,
        "network": route.network,
        "org": route.org,
        "function": route.id,
        "revision": route.revision,
    }
