"""Order of new instances: deficit round robin over organizations, by memory.

In a plain queue, a burst of one organization would delay the first calls of all others.
"""

from __future__ import annotations

from collections import deque

from moorage.runtime.edge.calls.function import AnyFunction

QUANTUM_MB = 256


class Turns:
    """Queue of functions that need one more instance."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[AnyFunction]] = {}
        self._order: deque[str] = deque()
        self._deficit: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(len(functions) for functions in self._waiting.values())

    def add(self, function: AnyFunction) -> None:
        waiting = self._waiting.get(function.org)
        if waiting is None:
            waiting = self._waiting[function.org] = deque()
            self._order.append(function.org)
            self._deficit[function.org] = 0
        waiting.append(function)

    def next(self, skip: frozenset[str] = frozenset()) -> AnyFunction | None:
        """Remove and return the next function; `skip` are organizations at their limit."""
        for _ in range(len(self._order)):
            org = self._order[0]
            if org in skip:
                self._order.rotate(-1)
                continue
            waiting = self._waiting[org]
            cost = waiting[0].memory_mb
            while self._deficit[org] < cost:
                self._deficit[org] += QUANTUM_MB
                if len(self._order) > 1 and self._deficit[org] < cost:
                    break
            if self._deficit[org] < cost:
                self._order.rotate(-1)
                continue
            self._deficit[org] -= cost
            function = waiting.popleft()
            if not waiting:
                self._drop(org)
            elif self._deficit[org] < waiting[0].memory_mb:
                self._order.rotate(-1)
            return function
        return self.next(skip) if any(org not in skip for org in self._order) else None

    def _drop(self, org: str) -> None:
        del self._waiting[org], self._deficit[org]
        self._order.remove(org)
