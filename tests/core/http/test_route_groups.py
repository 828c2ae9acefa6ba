"""Groups of routes are declared by the first request below their paths."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.client import Client

from moorage.app import App
from moorage.core.http.match import RouteGroup, RouteTree, group_path
from moorage.core.http.route import Route, Router

pytestmark = pytest.mark.anyio


def group(name: str, *paths: str, declared: list[str], routes: tuple[str, ...] = ()) -> RouteGroup:
    def declare() -> list[Route]:
        declared.append(name)
        router = Router("Boats", prefix="")
        for path in routes:

            @router.get(path)
            def read() -> None:
                """Read."""

        return router.routes

    return RouteGroup(declare, paths)


async def test_a_group_is_declared_by_the_first_request_below_its_paths_and_once() -> None:
    declared: list[str] = []
    boats = group("boats", "/v1/boats", "/v1/crews", declared=declared, routes=("/v1/boats/{name}", "/v1/crews"))
    other = group("other", "/v1/piers", declared=declared)
    tree = RouteTree([boats, other])

    await tree.declare("/v1/unknown")
    before = list(declared)
    await asyncio.gather(*(tree.declare(path) for path in ("/v1/boats/argo", "/v1/boats", "/v1/crews") * 3))

    assert (before, declared) == ([], ["boats"])
    assert tree.find("GET", "/v1/boats/argo") == (boats.routes[0], ["argo"])
    assert tree.find("GET", "/v1/crews") == (boats.routes[1], [])
    assert tree.find("POST", "/v1/crews") is None


async def test_all_groups_of_a_path_are_declared_together_so_that_fixed_segments_win() -> None:
    declared: list[str] = []
    first = group("first", "/v1/boats", declared=declared, routes=("/v1/boats/{name}",))
    second = group("second", "/v1/boats", declared=declared, routes=("/v1/boats/check",))
    tree = RouteTree([first, second])

    await tree.declare("/v1/boats/argo")

    assert tree.find("GET", "/v1/boats/check") == (second.routes[0], [])


def test_a_fixed_path_that_hides_no_names_matches_a_parameter_with_other_methods() -> None:
    router = Router("Boats", prefix="")

    @router.post("/boats/detect", hides_names=False)
    def detect() -> None:
        """Detect."""

    @router.get("/boats/{name}")
    def read(name: str) -> None:
        """Read."""

    tree = RouteTree(router.routes)

    assert tree.find("POST", "/boats/detect") == (router.routes[0], [])
    assert tree.find("GET", "/boats/detect") == (router.routes[1], ["detect"])
    assert tree.find("DELETE", "/boats/detect") is None
    assert tree.methods("/boats/detect") == {"GET", "POST"}


async def test_a_group_without_paths_is_declared_by_any_request() -> None:
    declared: list[str] = []
    tree = RouteTree([group("all", declared=declared, routes=("/health",))])

    await tree.declare("/")

    assert tree.find("GET", "/health") is not None


async def test_a_route_outside_of_the_paths_of_its_group_is_an_error() -> None:
    stray = group("stray", "/v1/boats", declared=[], routes=("/v1/piers",))

    with pytest.raises(ValueError, match="/v1/piers is not below the paths of its product: /v1/boats"):
        _ = stray.routes


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/projects/a/b", "/v1/projects"),
        ("/v1/projects", "/v1/projects"),
        ("/v1", "/v1"),
        ("/webhook", "/webhook"),
        ("/api/v1/webhook/github-events", "/api"),
        ("/", "/"),
        ("", ""),
        ("*", "*"),
    ],
)
def test_the_beginning_of_a_path_decides_on_its_group(path: str, expected: str) -> None:
    assert group_path(path) == expected


async def test_a_fixed_path_hides_only_names_that_no_resource_can_have(app: App) -> None:
    template = re.compile(r"\{[^}]*\}")
    resources = [re.compile(template.sub("[^/]+", route.path)) for route in app.routes if "{" in route.path]

    hiding = {route.path for route in app.routes if route.hides_names and "{" not in route.path}

    assert {path for path in hiding if any(resource.fullmatch(path) for resource in resources)} == {
        "/v1/functions/token",  # reserved
        "/v1/github/installations/begin",  # installations have numbers
        "/v1/projects/check-name",  # reserved
        "/v1/projects/static-upload",  # reserved
    }


async def test_every_route_of_the_application_is_found_after_its_group_was_declared(app: App) -> None:
    for route in app.routes:
        await app.asgi.tree.declare(route.path)
        found = app.asgi.tree.find(route.method, route.path)
        assert found is not None
        assert found[0] is route, route.path


async def test_the_first_request_of_a_group_gets_the_same_answers_as_later_ones(app: App) -> None:
    client = Client(app.asgi)
    calls: list[Any] = [("GET", "/v1/monitors"), ("DELETE", "/v1/monitors"), ("GET", "/v1/nothing")]

    first = [await client.request(*call) for call in calls]
    later = [await client.request(*call) for call in calls]

    assert [reply.status for reply in first] == [401, 404, 404] == [reply.status for reply in later]
