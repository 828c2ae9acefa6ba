"""The guarded client on real sockets: loopback HTTP servers, a loopback DNS server and a test certificate.

Nothing leaves the loopback interface. Where a test needs an allowed and a forbidden host it uses 127.0.0.1 and
127.0.0.2, and the policy blocks the second.
"""

import pytest
from tests.core.net.outbound_servers import LOOPBACK, SECOND_BLOCKED, always, answer, resolve_from, serve, serve_twins

from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy, TargetRefused

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary(
        "tenant-to-network", "Users' URLs are called only after the address of each socket was judged."
    ),
]


# Address checks.

SPELLINGS = [
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
    *("127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "shop.localhost", "a.b.localhost."),
    *("１２７.0.0.1", "127。0。0。1", "ⓛocalhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_every_spelling_of_loopback_is_refused_without_a_connection(spelling: str) -> None:
    async with serve(always(answer())) as server, GuardedClient(TargetPolicy()) as client:
        with pytest.raises(TargetRefused, match="loopback addresses are not allowed"):
            await client.request("GET", server.url(host=spelling))

        assert server.connections == 0


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_every_spelling_of_loopback_answers_when_loopback_is_allowed(spelling: str) -> None:
    async with serve(always(answer(body=b"hello"))) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url(host=spelling))

        assert (got.status, got.body, got.truncated, server.connections) == (200, b"hello", False, 1)


async def test_ipv6_loopback_is_refused_by_default_and_answers_when_allowed() -> None:
    async with serve(always(answer()), host="::1") as server:
        async with GuardedClient(TargetPolicy()) as client:
            with pytest.raises(TargetRefused):
                await client.request("GET", server.url())
        refused_connections = server.connections
        async with GuardedClient(LOOPBACK) as client:
            direct = await client.request("GET", server.url())
            named = await client.request("GET", server.url(host="localhost"))

    assert (refused_connections, direct.status, named.status) == (0, 200, 200)


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "[::]", "[::127.0.0.1]", "[::1%25lo]", "[::1%lo]"])
async def test_a_way_around_loopback_stays_closed_although_loopback_is_allowed(host: str) -> None:
    async with serve(always(answer())) as server, GuardedClient(LOOPBACK) as client:
        with pytest.raises(TargetRefused):
            await client.request("GET", server.url(host=host))

        assert server.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "ftp://127.0.0.1/",
            "gopher://127.0.0.1/",
            "javascript:alert(1)",
            "127.0.0.1",
            "",
            "/x",
        ),
        *("http://", "http:///x", "http://./", "http://a b/", "http://127.0.0.1:99999/", "http://127.0.0.1:x/"),
        *("http://127.0.0.1\\@a.test/", "http://1.2.3.4.5/", "http://256.0.0.1/", "http://a.0xzz.08/", "http://[::1/"),
        *(
            "http://127.0.0.1/\r\nX: y",
            "http://127.0.0.1/\n",
            "http://127.0.0.1\t/",
            "http://%31.test/",
            "http://\ud800/",
        ),
    ],
)
async def test_a_url_that_is_not_plain_http_is_refused(url: str) -> None:
    async with GuardedClient(LOOPBACK) as client:
        with pytest.raises(TargetRefused):
            await client.request("GET", url)


async def test_a_name_that_resolves_to_loopback_is_refused_by_default() -> None:
    async with (
        serve(always(answer())) as server,
        resolve_from({"shop.test": [["127.0.0.1"]], "mapped.test": [["::ffff:127.0.0.1"]]}) as resolver,
        GuardedClient(TargetPolicy(), resolver=resolver) as client,
    ):
        for name in ("shop.test", "mapped.test"):
            with pytest.raises(TargetRefused, match=f"cannot call {name}: loopback addresses are not allowed"):
                await client.request("GET", server.url(host=name))

        assert server.connections == 0


async def test_a_name_that_is_rebound_after_a_good_answer_is_refused_at_the_next_connection() -> None:
    async with (
        serve_twins(always(answer())) as (allowed, forbidden),
        resolve_from({"shop.test": [["127.0.0.1"], ["127.0.0.2"]]}) as resolver,
        GuardedClient(SECOND_BLOCKED, resolver=resolver) as client,
    ):
        first = await client.request("GET", allowed.url(host="shop.test"))
        with pytest.raises(TargetRefused):
            await client.request("GET", allowed.url(host="shop.test"))

        assert (first.status, allowed.connections, forbidden.connections) == (200, 1, 0)


async def test_a_name_that_is_rebound_between_two_hops_is_refused() -> None:
    async with (
        serve_twins(always(answer(302, location="/again")), always(answer())) as (allowed, forbidden),
        resolve_from({"shop.test": [["127.0.0.1"], ["127.0.0.2"]]}) as resolver,
        GuardedClient(SECOND_BLOCKED, resolver=resolver) as client,
    ):
        with pytest.raises(TargetRefused):
            await client.request("GET", allowed.url(host="shop.test"))

        assert (allowed.connections, forbidden.connections) == (1, 0)


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["fe80::1", "127.0.0.1"]]
)
async def test_of_a_mixed_dns_answer_only_the_allowed_address_is_connected(addresses: list[str]) -> None:
    async with (
        serve_twins(always(answer())) as (allowed, forbidden),
        resolve_from({"shop.test": [addresses]}) as resolver,
        GuardedClient(SECOND_BLOCKED, resolver=resolver) as client,
    ):
        got = await client.request("GET", allowed.url(host="shop.test"))

        assert (got.status, allowed.connections, forbidden.connections) == (200, 1, 0)


async def test_a_mixed_dns_answer_is_refused_when_the_allowed_address_does_not_answer() -> None:
    async with (
        serve(always(answer()), host="127.0.0.2") as forbidden,
        resolve_from({"shop.test": [["127.0.0.1", "127.0.0.2"]]}) as resolver,
        GuardedClient(SECOND_BLOCKED, resolver=resolver) as client,
    ):
        with pytest.raises(TargetRefused, match="the operator does not allow this address"):
            await client.request("GET", forbidden.url(host="shop.test"))

        assert forbidden.connections == 0


async def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(always(answer())) as proxy, serve(always(answer())) as server, GuardedClient(LOOPBACK) as client:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())

        await client.request("GET", server.url())

        assert (proxy.connections, server.connections) == (0, 1)


async def test_every_request_makes_its_own_connection_and_keeps_no_cookie() -> None:
    async with serve(always(answer(set_cookie="a=b; Path=/"))) as server, GuardedClient(LOOPBACK) as client:
        await client.request("GET", server.url())
        await client.request("GET", server.url())

        assert server.connections == 2
        assert "Cookie" not in server.requests[1].headers


async def test_a_closed_client_sends_nothing() -> None:
    async with serve(always(answer())) as server:
        client = GuardedClient(LOOPBACK)
        await client.request("GET", server.url())
        await client.close()
        await client.close()

        with pytest.raises(RuntimeError, match="closed"):
            await client.request("GET", server.url())

        assert server.connections == 1


# Requests.


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"X-A": "b\r\nHost: evil"}),
        ("GET", {"X-A": "b\nc"}),
        ("GET", {"X-A": "b\x00"}),
        ("GET", {"X-A\r\nX-B": "c"}),
        ("GET", {"X A": "b"}),
        ("GET", {"": "b"}),
        ("GET", {"X-A": "\ud800"}),
        ("GET / HTTP/1.1\r\nX: y", {}),
        ("CONNECT", {}),
        ("", {}),
    ],
)
async def test_a_header_or_method_that_would_break_the_request_apart_is_a_value_error(
    method: str, headers: dict[str, str]
) -> None:
    async with serve(always(answer())) as server, GuardedClient(LOOPBACK) as client:
        with pytest.raises(ValueError, match="cannot send"):
            await client.request(method, server.url(), headers=headers)

        assert server.connections == 0


async def test_the_callers_headers_and_body_arrive_but_never_their_framing() -> None:
    async with serve(always(answer())) as server, GuardedClient(LOOPBACK, user_agent="probe/1") as client:
        headers = {"X-Token": "t", "Content-Length": "99", "Transfer-Encoding": "chunked", "Connection": "keep-alive"}
        await client.request("post", server.url("/in?a=b"), headers=headers, body=b"payload")

        [request] = server.requests
        assert (request.method, request.path, request.body) == ("POST", "/in?a=b", b"payload")
        assert (request.headers["X-Token"], request.headers["User-Agent"]) == ("t", "probe/1")
        assert (request.headers["Content-Length"], request.headers["Connection"]) == ("7", "close")
        assert "Transfer-Encoding" not in request.headers


async def test_credentials_in_the_url_become_basic_authentication_and_leave_the_url() -> None:
    async with serve(always(answer())) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url("/a", host="us%40er:pa%3Ass@127.0.0.1"))

        assert server.requests[0].headers["Authorization"] == "Basic dXNAZXI6cGE6c3M="
        assert got.url == server.url("/a")
