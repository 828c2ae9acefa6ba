"""How often one may ask: per token, else per address, and what every counted answer says about it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.http.lab import Guest, lab, one_store

from moorage.app import App
from moorage.db.store import Database
from moorage.errors import Conflict
from moorage.http.ratelimit import SWEEP_AT, WINDOW_S, RateLimiter, key_of
from moorage.http.route import Router
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


class Ticks:
    """A monotonic clock that stands still until it is told to move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def told(reply: Reply) -> tuple[int, int, int]:
    return tuple(int(reply.headers[f"ratelimit-{name}"]) for name in ("limit", "remaining", "reset"))  # type: ignore[return-value]


def test_the_default_is_three_hundred_a_minute() -> None:
    limiter = RateLimiter(Settings.model_fields["rate_limit"].default, Ticks())

    allowed = [limiter.count("key")[0] for _ in range(301)]

    assert allowed == [True] * 300 + [False]


def test_a_window_starts_with_the_first_request_and_ends_a_minute_later() -> None:
    ticks = Ticks()
    limiter = RateLimiter(2, ticks)

    first = limiter.count("key")
    ticks.now += 20.5
    second, third = limiter.count("key"), limiter.count("key")
    ticks.now += 39.4
    fourth = limiter.count("key")
    ticks.now += 0.1
    fresh = limiter.count("key")

    assert first == (True, 1, 60)
    assert second == (True, 0, 40)
    assert third == (False, 0, 40)
    assert fourth == (False, 0, 1)
    assert fresh == (True, 1, 60)


def test_windows_that_ended_do_not_pile_up() -> None:
    ticks = Ticks()
    limiter = RateLimiter(5, ticks)
    for number in range(SWEEP_AT):
        limiter.count(f"old{number}")
    ticks.now += WINDOW_S
    for number in range(10):
        limiter.count(f"new{number}")

    assert len(limiter._windows) == 10


def test_live_windows_survive_a_sweep() -> None:
    limiter = RateLimiter(1, Ticks())
    limiter.count("first")
    for number in range(SWEEP_AT + 5):
        limiter.count(f"key{number}")

    assert limiter.count("first")[0] is False


def test_a_token_is_known_by_its_last_sixteen_characters() -> None:
    assert key_of("psk_live_aaaa0123456789abcdef", "1.2.3.4") == key_of("eyJ.other.0123456789abcdef", "5.6.7.8")
    assert key_of("x0123456789abcdeF", "1.2.3.4") != key_of("x0123456789abcdef", "1.2.3.4")
    assert key_of("short", "1.2.3.4") == key_of("short", "5.6.7.8")


def test_an_address_is_no_token_that_reads_the_same() -> None:
    assert key_of(None, "1.2.3.4") != key_of("1.2.3.4", "1.2.3.4")
    assert key_of("", "1.2.3.4") == key_of(None, "1.2.3.4")


@one_store
@pytest.mark.settings(rate_limit=3)
async def test_over_the_limit_is_429_with_the_time_to_wait(api: Client, db: Database) -> None:
    token = session_for(db, await make_user(db))

    replies = [await api.get("/v1/me", token=token) for _ in range(5)]

    assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
    assert [told(reply)[:2] for reply in replies] == [(3, 2), (3, 1), (3, 0), (3, 0), (3, 0)]
    assert replies[3].error["code"] == "rate_limited"
    assert replies[3].error["message"] == "Too many requests"
    assert replies[3].headers["retry-after"] == replies[3].headers["ratelimit-reset"]
    assert 1 <= int(replies[3].headers["retry-after"]) <= 60
    assert "retry-after" not in replies[2].headers


@one_store
@pytest.mark.settings(rate_limit=3)
async def test_the_limit_ends_with_its_window(app: App, api: Client) -> None:
    ticks = Ticks()
    app.asgi.limiter = RateLimiter(3, ticks)
    for _ in range(3):
        await api.get("/v1/me")

    limited = await api.get("/v1/me")
    ticks.now += int(limited.headers["retry-after"])
    fresh = await api.get("/v1/me")

    assert (limited.status, fresh.status) == (429, 401)
    assert told(fresh) == (3, 2, 60)


@one_store
@pytest.mark.settings(rate_limit=20)
async def test_every_counted_answer_says_what_is_left(db: Database) -> None:
    router = Router("Lab")

    @router.get("/storm")
    def storm() -> None:
        raise Conflict("There is a storm")

    @router.post("/crash")
    async def crash() -> None:
        raise RuntimeError("down it goes")

    client = lab(db, router)
    asked: list[tuple[str, str, dict[str, Any], int]] = [
        ("GET", "/v1/storm", {}, 409),
        ("POST", "/v1/crash", {}, 500),
        ("GET", "/v1/nothing", {}, 404),
        ("HEAD", "/v1/nothing", {}, 404),
        ("GET", "/v1/storm", {"token": "nonsense"}, 401),
        ("GET", "/v1/%00", {}, 404),
    ]

    replies = [await client.request(method, path, **options) for method, path, options, _ in asked]

    assert [reply.status for reply in replies] == [status for *_, status in asked]
    assert [told(reply)[0] for reply in replies] == [20] * len(asked)


@one_store
@pytest.mark.settings(rate_limit=2)
async def test_a_bad_credential_is_counted_too(api: Client) -> None:
    statuses = [(await api.get("/v1/me", token="psk_live_nobody")).status for _ in range(3)]

    assert statuses == [401, 401, 429]


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_a_token_has_its_own_count_wherever_it_comes_from(app: App, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    first, second = await make_token(db, user, org.id), await make_token(db, user, org.id)
    here, there = Client(app.asgi, client="10.0.0.1"), Client(app.asgi, client="10.0.0.2")

    statuses = [
        (await here.get("/v1/me", token=first)).status,
        (await there.get("/v1/me", token=first)).status,
        (await there.get("/v1/me", token=second)).status,
        (await here.get("/v1/me")).status,
        (await here.get("/v1/me")).status,
        (await there.get("/v1/me")).status,
    ]

    assert statuses == [200, 429, 200, 401, 429, 401]


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_something_other_than_a_bearer_token_counts_by_address(api: Client) -> None:
    await api.get("/v1/me", headers={"Authorization": "Basic YTpi"})

    reply = await api.get("/v1/me", headers={"Authorization": "Basic YTpj"})

    assert reply.status == 429


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_liveness_and_the_signed_receivers_are_not_counted(api: Client) -> None:
    replies = [await api.get("/health") for _ in range(5)]
    replies += [await api.post("/webhook", content=b"{}") for _ in range(2)]

    assert [reply.status for reply in replies] == [200] * 5 + [401] * 2
    assert not any(name.startswith("ratelimit") for reply in replies for name in reply.headers)
    assert (await api.get("/v1/me")).status == 401


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_a_stream_is_counted_under_the_token_in_its_query(app: App, api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    first, second = await make_token(db, user, org.id), await make_token(db, user, org.id)
    for token in (first, second):
        guest = Guest(app.asgi, f"/v1/activity/stream?access_token={token}")
        await guest.come()
        await guest.sees(": open")
        await guest.leaves()

    assert (await api.get("/v1/me", token=first)).status == 429
    assert (await api.get("/v1/me")).status == 401


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_a_token_in_the_query_of_another_route_does_not_open_a_count_of_its_own(api: Client) -> None:
    await api.get("/v1/me?access_token=one")

    assert (await api.get("/v1/me?access_token=two")).status == 429


@one_store
@pytest.mark.settings(rate_limit=1)
async def test_nobody_is_believed_about_their_address_unless_they_are_a_trusted_proxy(api: Client) -> None:
    await api.get("/v1/me", headers={"X-Forwarded-For": "1.1.1.1"})

    assert (await api.get("/v1/me", headers={"X-Forwarded-For": "2.2.2.2"})).status == 429


@one_store
@pytest.mark.settings(rate_limit=1, trusted_proxies="127.0.0.0/8, ::1")
async def test_a_trusted_proxy_tells_who_asks_by_the_last_address_it_added(app: App) -> None:
    proxy, stranger = Client(app.asgi), Client(app.asgi, client="8.8.8.8")

    statuses = [
        (await proxy.get("/v1/me", headers={"X-Forwarded-For": "6.6.6.6, 1.1.1.1"})).status,
        (await proxy.get("/v1/me", headers={"X-Forwarded-For": "7.7.7.7, 1.1.1.1"})).status,
        (await proxy.get("/v1/me", headers={"X-Forwarded-For": "2.2.2.2"})).status,
        (await stranger.get("/v1/me", headers={"X-Forwarded-For": "3.3.3.3"})).status,
        (await stranger.get("/v1/me", headers={"X-Forwarded-For": "4.4.4.4"})).status,
    ]

    assert statuses == [401, 429, 401, 401, 429]
