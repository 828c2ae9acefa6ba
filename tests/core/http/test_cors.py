"""CORS: browsers may call the API from the console's origin and from configured origins."""

from __future__ import annotations

import pytest
from tests.client import Client, Reply
from tests.core.http.lab import one_store

pytestmark = [pytest.mark.anyio, one_store]

CONSOLE = "http://localhost:8080"
OTHERS = [
    "https://evil.example",
    "http://localhost:8081",
    "https://localhost:8080",
    "http://localhost:8080.evil.example",
    "http://LOCALHOST:8080",
    "http://localhost:8080/",
    "null",
    "",
    "*",
    "\xff",
]


async def preflight(api: Client, path: str, origin: str, method: str = "POST") -> Reply:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization",
    }
    return await api.request("OPTIONS", path, headers=headers)


async def test_the_console_may_ask_before_it_writes(api: Client) -> None:
    reply = await preflight(api, "/v1/orgs", CONSOLE)

    assert reply.status == 200
    assert reply.body == b""
    assert reply.headers["access-control-allow-origin"] == CONSOLE
    assert reply.headers["access-control-allow-methods"] == "GET, POST"
    assert "Authorization" in reply.headers["access-control-allow-headers"]
    assert "Idempotency-Key" in reply.headers["access-control-allow-headers"]
    assert "X-Organization-Id" in reply.headers["access-control-allow-headers"]
    assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in reply.headers


async def test_a_preflight_knows_the_methods_of_a_path_with_parameters(api: Client) -> None:
    reply = await preflight(api, "/v1/orgs/7/members/9", CONSOLE, "DELETE")

    assert reply.headers["access-control-allow-methods"] == "DELETE, PATCH"


@pytest.mark.parametrize("origin", OTHERS)
async def test_no_other_origin_may(api: Client, origin: str) -> None:
    asked, called = await preflight(api, "/v1/orgs", origin), await api.get("/v1/me", headers={"Origin": origin})

    assert (asked.status, called.status) == (404, 401)
    assert "access-control-allow-origin" not in asked.headers
    assert "access-control-allow-origin" not in called.headers
    assert "access-control-allow-methods" not in asked.headers


async def test_a_preflight_of_an_unknown_path_is_404(api: Client) -> None:
    reply = await preflight(api, "/v1/nothing", CONSOLE)

    assert reply.status == 404
    assert reply.error["code"] == "not_found"


async def test_options_that_is_no_preflight_is_404(api: Client) -> None:
    reply = await api.request("OPTIONS", "/v1/orgs", headers={"Origin": CONSOLE})

    assert reply.status == 404


@pytest.mark.parametrize("path", ["/v1/me", "/v1/nothing", "/health"])
async def test_the_console_reads_answers_and_failures_with_their_headers(api: Client, path: str) -> None:
    reply = await api.get(path, headers={"Origin": CONSOLE})

    assert reply.headers["access-control-allow-origin"] == CONSOLE
    exposed = reply.headers["access-control-expose-headers"]
    assert {"X-Request-Id", "RateLimit-Remaining", "Retry-After", "Idempotency-Replayed"} <= set(exposed.split(", "))


async def test_without_an_origin_nothing_is_said_about_origins(api: Client) -> None:
    reply = await api.get("/health")

    assert not any(name.startswith("access-control") for name in reply.headers)


@pytest.mark.settings(console_origins="https://console.example/, http://localhost:5173")
async def test_the_operator_may_name_further_origins(api: Client) -> None:
    for origin in ("https://console.example", "http://localhost:5173", CONSOLE):
        assert (await preflight(api, "/v1/orgs", origin)).headers["access-control-allow-origin"] == origin


@pytest.mark.settings(
    mode="production",
    base_url="https://api.example",
    master_key=bytes(range(32)).hex(),
    session_secret=bytes(range(32, 64)).hex(),
)
async def test_in_production_loopback_is_an_origin_like_any_other(api: Client) -> None:
    own, loopback = await preflight(api, "/v1/orgs", "https://api.example"), await preflight(api, "/v1/orgs", CONSOLE)

    assert (own.status, loopback.status) == (200, 404)
