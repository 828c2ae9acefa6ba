"""Requests sandboxes from the invoker, with limits per organization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import AnyFunction, Route
from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.calls.turns import Turns

MAX_ORG_TAKES = 16  # concurrent takes of one organization; fewer if several organizations request sandboxes
MANY_SANDBOXES = 8
MAX_ADMITTED_ORGS = 8
SLOW_LOAD_US = 50_000  # load time from which a function gets a snapshot


class Link(Protocol):
    """Connection to the invoker."""

    is_memory_low: bool
    sandbox: bool | None

    def take(self, request: dict[str, Any]) -> int: ...

    def send(self, message: dict[str, Any]) -> None: ...


class Supply:
    def __init__(self, link: Link, caps: Caps, evict: Callable[[str | None], bool]) -> None:
        self._link = link
        self._caps = caps
        self._evict = evict  # ends an idle instance of an organization, or (None) of any; returns False without one
        self._takes: dict[int, AnyFunction] = {}
        self._shares = Shares(limit=2 * MAX_ORG_TAKES, guaranteed=1, extra=MAX_ORG_TAKES)
        self._admitted: set[str] = set()  # organizations that got a sandbox although memory is low
        self._turns = Turns()
        self._org_sandboxes: dict[str, int] = {}

    def grow(self, function: AnyFunction) -> None:
        """Queue requests for the instances that the waiting calls of a function need."""
        room = self._caps.function_instances - len(function.instances) - function.starting
        for _ in range(min(function.missing_instances(), room)):
            function.starting += 1
            self._turns.add(function)
        self.request_sandboxes()

    def request_sandboxes(self) -> None:
        """Send queued requests to the invoker, as far as limits and memory allow."""
        full = {org for org in self._shares if not self._shares.fits(org, 1)}
        while True:
            function = self._turns.next(frozenset(full))
            if function is None:
                return
            if function.is_retired or (not function.queue and function.depth == 1):
                function.starting -= 1
                continue
            if not self._shares.fits(function.org, 1) or not self._has_room(function):
                full.add(function.org)
                self._turns.add(function)
                continue
            self._shares.add(function.org, 1)
            self._org_sandboxes[function.org] = self._org_sandboxes.get(function.org, 0) + 1
            self._takes[self._link.take(take_request(function.route))] = function

    def _has_room(self, function: AnyFunction) -> bool:
        """Whether a function may get a sandbox; evicts an idle instance if necessary."""
        if self._org_sandboxes.get(function.org, 0) >= self._caps.org_instances:
            return self._evict(function.org)
        if not self._link.is_memory_low or self._evict(None):
            return True
        if not self._is_starved(function.org):
            return False
        self._admitted.add(function.org)
        return True

    def _is_starved(self, org: str) -> bool:
        """Whether an organization has no sandbox while another one has many.

        It then gets one from the reserved memory. Otherwise long calls of one organization could block all others until
        their timeout.
        """
        most = max(self._org_sandboxes.values(), default=0)
        return org not in self._org_sandboxes and most >= MANY_SANDBOXES and len(self._admitted) < MAX_ADMITTED_ORGS

    def pop_take(self, take: int) -> AnyFunction | None:
        """Remove an answered take and return its function."""
        function = self._takes.pop(take, None)
        if function is not None:
            function.starting -= 1
            self._shares.remove(function.org, 1)
        return function

    def release(self, org: str) -> None:
        """Count one sandbox less for an organization."""
        left = self._org_sandboxes.get(org, 0) - 1
        if left > 0:
            self._org_sandboxes[org] = left
        else:
            self._org_sandboxes.pop(org, None)
            self._admitted.discard(org)

    def sandboxes_of(self, org: str) -> int:
        return self._org_sandboxes.get(org, 0)

    def request_snapshot(self, function: AnyFunction, load_us: int) -> None:
        """Request a snapshot of a function whose code loads slowly (Python only)."""
        if load_us < SLOW_LOAD_US or function.has_snapshot or not function.route.runtime.startswith("python"):
            return
        function.has_snapshot = True
        self._link.send({"template": {**take_request(function.route), "load": function.load}})

    def retire(self, function: AnyFunction) -> None:
        if function.has_snapshot:
            self._link.send({"retire": [function.id, function.route.revision]})


def take_request(route: Route) -> dict[str, Any]:
    """Return the invoker's `take` request for a function."""
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
