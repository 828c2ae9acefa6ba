"""Route matching by a tree, with a cost independent of the number of routes.

Routes come in groups. A group is declared, which executes the modules of its handlers and schemas, by the first request
below one of its paths.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import field

from moorage.core.http.route import Route
from moorage.core.kit.records import dataclass

EVERY_PATH = ""


class RouteGroup:
    """Routes that are declared together, on first use."""

    def __init__(self, declare: Callable[[], Iterable[Route]], paths: Iterable[str] = ()) -> None:
        """Without `paths`, which have the form `/v1/projects` or `/webhooks`, the first request declares the group."""
        self.paths = frozenset(paths)
        self._declare = declare
        self._routes: tuple[Route, ...] | None = None
        self._lock = threading.Lock()

    @property
    def routes(self) -> tuple[Route, ...]:
        """Return the routes; any thread may call this."""
        with self._lock:
            if self._routes is None:
                self._routes = tuple(self._declare())
                self._check(self._routes)
            return self._routes

    def _check(self, routes: Iterable[Route]) -> None:
        for route in routes if self.paths else ():
            if group_path(route.path) not in self.paths:
                raise ValueError(f"{route.path} is not below the paths of its product: {', '.join(sorted(self.paths))}")


def group_path(path: str) -> str:
    """Return the part of a path that decides on the group: `/v1/projects`, or the first segment outside of the API."""
    segments = path.split("/", 3)
    return "/".join(segments[:3] if segments[1:2] == ["v1"] else segments[:2])


@dataclass
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    any: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)


class RouteTree:
    """The routes of the groups that were used so far. Only the event loop changes it."""

    def __init__(self, routes: Iterable[Route | RouteGroup]) -> None:
        self.routes: list[Route] = []
        self._root = _Node()
        self._fixed: dict[tuple[str, str], Route] = {}  # paths without parameters, found by one look-up
        self._hiding: set[str] = set()  # fixed paths that match no parameter with another method
        self._pending: dict[str, list[RouteGroup]] = {}
        self._added: set[RouteGroup] = set()
        self._declaring = asyncio.Lock()
        for each in routes:
            if isinstance(each, Route):
                self._add(each)
                continue
            for path in each.paths or (EVERY_PATH,):
                self._pending.setdefault(path, []).append(each)

    async def declare(self, path: str) -> None:
        """Add the groups of a path, unless they were added before. `find` knows only routes that were added."""
        if not self._pending:
            return
        for key in (EVERY_PATH, group_path(path)):
            if key in self._pending:
                async with self._declaring:
                    for group in self._pending.get(key, ()):
                        # In a thread, because the modules of a group take some tenths of a second.
                        self._add_all(group, await asyncio.to_thread(getattr, group, "routes"))
                    self._pending.pop(key, None)

    def find(self, method: str, path: str) -> tuple[Route, list[str]] | None:
        """Return the route and its path parameters; fixed segments take precedence."""
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, []
        if path in self._hiding:
            return None
        return _walk(self._root, path.split("/"), 1, [], method)

    def methods(self, path: str) -> set[str]:
        """Return the methods of a path, for a CORS preflight."""
        return {method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if self.find(method, path)}

    def _add_all(self, group: RouteGroup, routes: Iterable[Route]) -> None:
        if group not in self._added:
            self._added.add(group)
            for route in routes:
                self._add(route)

    def _add(self, route: Route) -> None:
        self.routes.append(route)
        node = self._root
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                if segment not in node.fixed:
                    node.fixed[segment] = _Node()
                node = node.fixed[segment]
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.path} is declared twice")
        node.routes[route.method] = route
        if "{" not in route.path:
            self._fixed[route.method, route.path] = route
            if route.hides_names:
                self._hiding.add(route.path)


def _walk(node: _Node, parts: list[str], at: int, values: list[str], method: str) -> tuple[Route, list[str]] | None:
    if at == len(parts):
        route = node.routes.get(method)
        return (route, values) if route else None
    part = parts[at]
    fixed = node.fixed.get(part)
    if fixed is not None and (match := _walk(fixed, parts, at + 1, values, method)):
        return match
    if node.any is not None and part:
        return _walk(node.any, parts, at + 1, [*values, part], method)
    return None
