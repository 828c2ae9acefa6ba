"""Links of the OpenAPI document: from an answer to the operations on its resource.

A resource has an item path, such as `/v1/functions/{name}`. Operations on its collection (`/v1/functions`) answer with
its id or name, so each links to every operation on the item. If a collection has no operations (`/v1/domains`), the
operations on a collection of the same name below another resource are used. An operation whose answer identifies
another resource declares it in `Route.identifies`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moorage.core.http.route import Route

Schema = dict[str, Any]
_PARAMETER = re.compile(r"{(\w+)}")
# Singulars that are not the name of the collection without its last letter.
_SINGULAR = {"orgs": "organization"}


def item_path(path: str) -> str | None:
    """Return a path up to its last parameter; None without a parameter."""
    end = path.rfind("}")
    return path[: end + 1] if end >= 0 else None


def links_of(
    route: Route, routes: Sequence[Route], answer: Schema | None, components: Mapping[str, Schema]
) -> dict[str, Any]:
    """Return the links of an operation's success response, by target operation."""
    links: dict[str, Any] = {}
    if answer is None:
        return links
    pointer, properties = _item_of(answer, components)
    for item, id_property in _identified(route, routes, properties):
        parameters = _parameters(item, id_property, route, pointer, properties)
        if parameters is None:
            continue
        for target in routes:
            if item_path(target.path) == item and target is not route:
                links[target.operation] = {"operationId": target.operation, "parameters": parameters}
    return links


def _identified(route: Route, routes: Iterable[Route], properties: Mapping[str, Schema]) -> Iterator[tuple[str, str]]:
    """Yield the item paths that an answer identifies, with the id's property."""
    yield from route.identifies
    if route.method not in ("GET", "POST"):
        return
    paths = {each.path for each in routes}
    for item in sorted({item for path in paths if (item := item_path(path))}):
        collection, _, last = item.rpartition("/")
        name = collection.rpartition("/")[2]
        is_collection = route.path == collection
        if not is_collection and (collection in paths or not route.path.endswith(f"/{name}")):
            continue
        id_property = _id_property(last.strip("{}"), name, properties)
        if id_property is not None:
            yield item, id_property


def _id_property(parameter: str, collection: str, properties: Mapping[str, Schema]) -> str | None:
    """Return the property of a resource that fills its path parameter."""
    singular = _SINGULAR.get(collection, collection.removesuffix("s"))
    kind = parameter.rpartition("_")[2].capitalize()
    names = [_camel(parameter), f"{singular}{kind}", *(["id"] if parameter.endswith("_id") else [])]
    return next((name for name in names if name in properties), None)


def _parameters(
    item: str, id_property: str, route: Route, pointer: str, properties: Mapping[str, Schema]
) -> dict[str, str] | None:
    """Return the expression of each path parameter; None if one is unknown."""
    *parents, last = _PARAMETER.findall(item)
    own = set(_PARAMETER.findall(route.path))
    expressions = {last: f"$response.body#{pointer}/{id_property}"}
    for parent in parents:
        if parent in own:
            expressions[parent] = f"$request.path.{parent}"
        elif _camel(parent) in properties:
            expressions[parent] = f"$response.body#{pointer}/{_camel(parent)}"
        else:
            return None
    return expressions


def _item_of(answer: Schema, components: Mapping[str, Schema]) -> tuple[str, Mapping[str, Schema]]:
    """Return the JSON pointer to the resource of an answer, and its properties."""
    schema, pointer = _resolve(answer, components), "/data"
    page = _resolve(schema.get("properties", {}).get("items", {}), components)
    if page.get("type") == "array":
        schema, pointer = page, f"{pointer}/items"
    if schema.get("type") == "array":
        schema, pointer = _resolve(schema["items"], components), f"{pointer}/0"
    return pointer, schema.get("properties", {})


def _resolve(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    while "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    return schema


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
