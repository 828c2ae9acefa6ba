"""Route matching by a tree, with a cost independent of the number of routes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moorage.core.http.route import Route


@dataclass
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    any: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)


class RouteTree:
    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        self._fixed: dict[tuple[str, str], Route] = {}  # paths without parameters, found by one look-up
        self._fixed_paths: set[str] = set()
        for route in self.routes:
            self._add(route)

    def find(self, method: str, path: str) -> tuple[Route, list[str]] | None:
        """Return the route and its path parameters; fixed segments take precedence."""
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, []
        if path in self._fixed_paths:
            return None  # A fixed path with another method must not match a parameter.
        return _walk(self._root, path.split("/"), 1, [], method)

    def methods(self, path: str) -> set[str]:
        """Return the methods of a path, for a CORS preflight."""
        return {method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if self.find(method, path)}

    def _add(self, route: Route) -> None:
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
            self._fixed_paths.add(route.path)


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
