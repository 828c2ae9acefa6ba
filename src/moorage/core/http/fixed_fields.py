"""Fields of a resource that a PATCH route does not change are refused, not ignored.

A client that sends `{"enabled": false}` to a route that does not change `enabled` would take the success for a change.
The fields are those of the resource (the answer of `GET` at the same path, else of the PATCH itself) without those of
the request, and those of `changed_by`, which can also be fields of the request that creates the resource. Other fields
stay ignored, so that clients of a later version work; these include fields that only answers of writes have, such as
the `status` of `?wait=`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.core.http import models
from moorage.core.http.route import Route
from moorage.core.http.waiting import ONLY_IN_WRITES

HERE = "cannot be changed here; use"
NOT_AT_ALL = "cannot be changed"


class FixedFields:
    """The fields that each PATCH route refuses; computed with its first request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """Take the list of routes, to which further ones are added before their first request."""
        self._routes = routes
        self._by_path: dict[str, dict[str, str]] = {}

    def of(self, route: Route) -> Mapping[str, str]:
        """Return the refused fields, each with the route that changes it, or ""."""
        if route.path not in self._by_path:
            self._by_path[route.path] = self._find(route)
        return self._by_path[route.path]

    def validate(self, route: Route, value: Any, path: Mapping[str, Any]) -> Any:
        """Validate the body of a PATCH request; raises BadRequest with all bad fields."""
        assert route.body is not None
        fixed = self.of(route)
        refused = (
            {name: _message(fixed[name], path) for name in value if name in fixed} if isinstance(value, dict) else {}
        )
        return models.validate(route.body, value, problems=refused)

    def _find(self, route: Route) -> dict[str, str]:
        assert route.body is not None
        resource = self._resource_of(route)
        accepted = models.accepted_fields(route.body)
        changed_by = dict(route.changed_by)
        return {
            name: changed_by.get(name) or self._other_patch(route, resource, name)
            for name in (*_fields_of(resource), *changed_by)
            if name not in accepted
        }

    def _resource_of(self, route: Route) -> type[msgspec.Struct]:
        """Return the type that represents the resource of a PATCH route."""
        reads = (each.answer for each in self._routes if (each.method, each.path) == ("GET", route.path))
        resource: type[msgspec.Struct] = next(reads, route.answer)
        return resource

    def _other_patch(self, route: Route, resource: type[msgspec.Struct], name: str) -> str:
        """Return another PATCH route of the same resource that changes a field, or ""."""
        for other in self._routes:
            if other.method != "PATCH" or other.path == route.path or other.body is None:
                continue
            if self._resource_of(other) is resource and name in models.accepted_fields(other.body):
                return f"PATCH {other.path}"
        return ""


def _message(changed_by: str, path: Mapping[str, Any]) -> str:
    if not changed_by:
        return NOT_AT_ALL
    for name, value in path.items():
        changed_by = changed_by.replace(f"{{{name}}}", str(value))
    return f"{HERE} {changed_by}"


def _fields_of(model: Any) -> list[str]:
    """Return the wire names of the fields that a resource has; [] for a type that is not an object."""
    if not (isinstance(model, type) and issubclass(model, msgspec.Struct)):
        return []
    return [
        each.encode_name
        for each in msgspec.structs.fields(model)
        if ONLY_IN_WRITES not in getattr(each.type, "__metadata__", ())
    ]
