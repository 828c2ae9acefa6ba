"""Rate limits per token or address, and the headers of every counted answer."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.core.http.lab import Guest, lab, one_store

from moorage.accounts.identity import users
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http.limits import rate as ratelimit
from moorage.core.http.limits.rate import WINDOW_S, RateLimiter, address_key, token_key
from moorage.core.http.route import Router
from moorage.errors import Conflict
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


class Ticks:
    """A monotonic clock that moves only by `advance`."""

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
    for number in range(1000):
        limiter.count(f"old{number}")
    ticks.now += WINDOW_S
    for number in range(10):
        limiter.count(f"new{number}")

    assert len(limiter._windows) == 10


def test_a_window_that_began_anew_outlives_those_that_began_before_it() -> None:
    ticks = Ticks()
    limiter = RateLimiter(1, ticks)
    limiter.count("early")
    ticks.now += 30
    limiter.count("late")
    ticks.now += 30
    limiter.count("early")
    ticks.now += 31
    limiter.count("newest")

    assert limiter.count("early")[0] is False
    assert set(limiter._windows) == {"early", "newest"}


@pytest.mark.boundary("stranger-to-platform", "The memory of the rate limit is bounded, however many addresses call.")
def test_a_flood_of_addresses_takes_no_more_windows_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "MAX_KEYS", 100)
    limiter = RateLimiter(1, Ticks())

    for number in range(1000):
        limiter.count(f"address{number}")

    assert len(limiter._windows) == 100
    assert limiter.count("address999")[0] is False


def test_a_token_is_known_by_its_last_sixteen_characters() -> None:
    assert token_key("psk_live_aaaa0123456789abcdef") == token_key("eyJ.other.0123456789abcdef")
    assert token_key("x0123456789abcdeF") != token_key("x0123456789abcdef")


def test_an_address_is_no_token_that_reads_the_same() -> None:
    assert address_key("1.2.3.4") != token_key("1.2.3.4")


def test_an_ipv6_address_counts_as_its_subscribers_network() -> None:
    here = address_key("2001:db8:1:2::1")

    assert here == address_key("2001:db8:1:2:ffff:ffff:ffff:ffff")
    assert here != address_key("2001:db8:1:3::1")
    assert address_key("::ffff:1.2.3.4") == address_key("1.2.3.4")
    assert address_key("not:an:address") == "anot:an:address"


def test_only_the_whole_token_is_known_to_have_used_its_limit_up() -> None:
    ticks = Ticks()
    limiter = RateLimiter(2, ticks)
    token = "psk_test_aaaa0123456789abcdef"
    limiter.count(token_key(token), token)
    under = limiter.find_spent(token)
    limiter.count(token_key(token), token)
    ticks.now += 10

    assert under is None
    assert limiter.find_spent(token) == 50
    assert limiter.find_spent("psk_test_bbbb0123456789abcdef") is None
    ticks.now += 50
    assert limiter.find_spent(token) is None


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
@pytest.mark.boundary("stranger-to-platform", "Inventing tokens does not get a client past the rate limit.")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/auth/setup"), ("GET", "/v1/me"), ("POST", "/v1/functions"), ("GET", "/v1/no")]
)
@pytest.mark.settings(rate_limit=300)
async def test_seven_hundred_guesses_with_as_many_tokens_meet_the_limit_of_their_address(
    app: App, db: Database, method: str, path: str
) -> None:
    here, there = Client(app.asgi, client="10.0.0.1"), Client(app.asgi, client="10.0.0.2")

    replies = [await here.request(method, path, token=f"psk_test_{number:040}", json={}) for number in range(700)]

    assert [reply.status == 429 for reply in replies] == [False] * 300 + [True] * 400
    assert replies[-1].headers["retry-after"] == replies[-1].headers["ratelimit-reset"]
    assert (await there.request(method, path, token="psk_test_guess", json={})).status != 429


@one_store
@pytest.mark.boundary("stranger-to-platform", "Failed guesses from an address do not lock valid tokens out there.")
@pytest.mark.settings(rate_limit=3)
async def test_a_valid_token_keeps_working_where_guesses_used_the_addresss_limit_up(app: App, db: Database) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    client = Client(app.asgi, client="10.0.0.1")
    guesses = [await client.get("/v1/me", token=f"psk_test_guess{number}") for number in range(4)]

    replies = [await client.get("/v1/me", token=token) for _ in range(4)]

    assert [reply.status for reply in guesses] == [401, 401, 401, 429]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [told(reply)[1] for reply in replies] == [2, 1, 0, 0]


@one_store
@pytest.mark.boundary(
    "stranger-to-platform", "A guess that ends like a valid token does not use up that token's limit."
)
@pytest.mark.settings(rate_limit=2)
async def test_a_guess_that_ends_like_a_token_counts_against_its_own_address(app: App, db: Database) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    owner, stranger = Client(app.asgi, client="10.0.0.1"), Client(app.asgi, client="10.0.0.2")
    guess = "psk_test_" + "x" * 24 + token[-16:]

    guesses = [(await stranger.get("/v1/me", token=guess)).status for _ in range(4)]
    own = [(await owner.get("/v1/me", token=token)).status for _ in range(3)]
    late = await Client(app.asgi, client="10.0.0.3").get("/v1/me", token=guess)

    assert guesses == [401, 401, 429, 429]
    assert own == [200, 200, 429]
    assert late.status == 401


@one_store
@pytest.mark.boundary("stranger-to-platform", "Guesses against git and event streams count against their address.")
@pytest.mark.settings(rate_limit=2)
async def test_guesses_at_git_and_streams_count_against_the_address(app: App, db: Database) -> None:
    def basic(password: str) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"git:{password}".encode()).decode()}

    refs = "/git/harbor/site.git/info/refs?service=git-upload-pack"
    git, odd, streams = (Client(app.asgi, client=f"10.0.0.{number}") for number in (1, 2, 3))

    pushed = [await git.get(refs, headers=basic(f"psk_test_guess{number}")) for number in range(3)]
    paths = [await odd.get("/git/harbor", headers=basic(f"psk_test_guess{number}")) for number in range(3)]
    followed = [await streams.get(f"/v1/activity/stream?access_token=guess{number}") for number in range(3)]

    assert [reply.status for reply in pushed] == [401, 401, 429]
    assert [reply.status for reply in paths] == [404, 404, 429]
    assert [reply.status for reply in followed] == [401, 401, 429]
    assert [told(reply)[:2] for reply in pushed] == [(2, 1), (2, 0), (2, 0)]


@one_store
@pytest.mark.settings(rate_limit=2)
async def test_over_its_limit_a_token_is_told_so_before_anything_else_about_it(api: Client, db: Database) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    await db.write(lambda tx: users.suspend(tx, user, suspended=True))

    statuses = [(await api.get("/v1/me", token=token)).status for _ in range(3)]

    assert statuses == [403, 403, 429]


@one_store
@pytest.mark.settings(rate_limit=2)
async def test_a_write_is_counted_once(api: Client, db: Database) -> None:
    user = await make_user(db)
    token = session_for(db, user)

    replies = [await api.post("/v1/orgs", token=token, json={"name": "Harbor"}) for _ in range(3)]

    assert [reply.status for reply in replies] == [200, 200, 429]
    assert [told(reply)[1] for reply in replies] == [1, 0, 0]


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
@pytest.mark.boundary("stranger-to-platform", "Every public page and login counts against the client's address.")
async def test_all_routes_but_liveness_and_the_signed_receivers_are_counted(app: App) -> None:
    uncounted = {route.path for route in app.routes if not route.is_counted}

    assert uncounted == {"/health", "/webhook", "/api/v1/webhook/github-events"}


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
