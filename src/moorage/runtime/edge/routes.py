"""Routes in memory, sent by the control process and kept in a file for restarts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import msgspec

from moorage.runtime.edge.calls.function import AnyFunction, Function, Route
from moorage.runtime.edge.route_file import RouteFile


class Table:
    def __init__(
        self, api_host: str, retire: Callable[[AnyFunction, AnyFunction | None], None], file: RouteFile
    ) -> None:
        self._api_host = api_host
        self._retire = retire
        self._file = file
        self._by_id: dict[int, AnyFunction] = {}
        self._by_name: dict[tuple[str, str], AnyFunction] = {}
        self._revisions: dict[int, int] = {}  # also of removed functions, so that a late old route is ignored
        self.is_changed = False
        self.generation = 0  # increases with every change of a route

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, org: str, name: str) -> AnyFunction | None:
        return self._by_name.get((org, name))

    def find_by_id(self, function_id: int) -> AnyFunction | None:
        return self._by_id.get(function_id)

    def runtimes(self) -> set[str]:
        return {function.route.runtime for function in self._by_id.values()}

    def replace(self, routes: Iterable[Route]) -> None:
        """Make these the only routes."""
        routes = list(routes)
        keep = {route.id for route in routes}
        for function_id in [known for known in self._by_id if known not in keep]:
            self._remove(function_id)
        for route in routes:
            self.put(route)

    def put(self, route: Route) -> None:
        """Set a route, unless its revision is not newer than the known one."""
        known = self._revisions.get(route.id, -1)
        if route.revision < known or (route.revision == known and route.id in self._by_id):
            return
        old = self._by_id.get(route.id)
        new: AnyFunction = Function(route, self._api_host)
        self._revisions[route.id] = route.revision
        self._by_id[route.id] = new
        self._by_name[route.org, route.name] = new
        self.is_changed = True
        self.generation += 1
        if old is not None:
            self._forget_name(old)
            self._retire(old, new)

    def drop(self, function_ids: Iterable[int]) -> None:
        for function_id in function_ids:
            self._remove(function_id)

    def _remove(self, function_id: int) -> None:
        old = self._by_id.pop(function_id, None)
        if old is None:
            return
        self.is_changed = True
        self.generation += 1
        self._forget_name(old)
        self._retire(old, None)

    def _forget_name(self, old: AnyFunction) -> None:
        if self._by_name.get((old.org, old.name)) is old:
            del self._by_name[old.org, old.name]

    def save(self) -> None:
        """Write the route file if routes have changed."""
        if not self.is_changed:
            return
        self.is_changed = False
        self._file.save(self._by_id.values())

    def load(self) -> None:
        """Load the routes of the last run, until the control process sends its own."""
        with contextlib.suppress(OSError, msgspec.DecodeError, ValueError):
            routes, is_outdated = self._file.load()
            self.replace(routes)
            self._revisions.clear()
            self.is_changed = is_outdated
