"""Answers of the guarded client: redirects, limited bodies, and failures with their phase."""

import asyncio
import gzip
import socket
import tracemalloc

import pytest
from tests.core.net.outbound_servers import (
    LOOPBACK,
    SECOND_BLOCKED,
    DnsResolver,
    Request,
    always,
    answer,
    error_of,
    hang,
    phase_of,
    resolve_from,
    serve,
    serve_twins,
)

from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetRefused

pytestmark = pytest.mark.anyio


# Redirects.


async def test_a_redirect_from_an_allowed_host_to_a_refused_one_is_refused_without_a_connection() -> None:
    async with serve(always(answer()), host="127.0.0.2") as forbidden:
        async with (
            serve(always(answer(302, location=forbidden.url("/admin")))) as allowed,
            GuardedClient(SECOND_BLOCKED) as client,
        ):
            with pytest.raises(TargetRefused, match=r"cannot call 127\.0\.0\.2"):
                await client.request("GET", allowed.url())

            assert (allowed.connections, forbidden.connections) == (1, 0)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/", "data:,x", "https://", "//[::1/", "//[1:2]/", "//[]@"]
)
async def test_a_redirect_to_anything_but_an_http_url_is_refused(location: str) -> None:
    async with serve(always(answer(302, location=location))) as server, GuardedClient(LOOPBACK) as client:
        with pytest.raises(TargetRefused):
            await client.request("GET", server.url())


@pytest.mark.parametrize(
    ("status", "method", "expected_method", "expected_body"),
    [
        (301, "POST", "GET", b""),
        (302, "POST", "GET", b""),
        (303, "POST", "GET", b""),
        (303, "PUT", "GET", b""),
        (303, "HEAD", "HEAD", b"data"),
        (301, "PUT", "PUT", b"data"),
        (307, "POST", "POST", b"data"),
        (308, "POST", "POST", b"data"),
    ],
)
async def test_a_redirect_changes_the_method_as_browsers_do(
    status: int, method: str, expected_method: str, expected_body: bytes
) -> None:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        body = b"" if request.method == "HEAD" else b"ok"
        writer.write(answer(200, body) if request.path == "/to" else answer(status, b"", location="/to"))

    async with serve(reply) as server, GuardedClient(LOOPBACK) as client:
        headers = {"Content-Type": "text/x", "X-Token": "t"}
        got = await client.request(method, server.url("/from"), headers=headers, body=b"data")

        second = server.requests[1]
        assert (second.method, second.body, second.headers["X-Token"]) == (expected_method, expected_body, "t")
        assert (second.headers.get("Content-Type") == "text/x") == (expected_body == b"data")
        assert (got.status, got.url) == (200, server.url("/to"))


@pytest.mark.parametrize("keep", [False, True])
async def test_on_a_hop_to_another_port_headers_go_unless_kept_and_url_credentials_always_go(keep: bool) -> None:
    async with serve(always(answer())) as second:
        async with (
            serve(always(answer(307, location=second.url(host="evil:pw@127.0.0.1")))) as first,
            GuardedClient(LOOPBACK) as client,
        ):
            headers = {"X-Token": "t", "Cookie": "c=d", "Host": "inner.test", "Content-Type": "text/x"}
            await client.request(
                "POST",
                first.url(host="user:pw@127.0.0.1"),
                headers=headers,
                body=b"data",
                drop_headers_cross_host=not keep,
            )

        before, after = first.requests[0].headers, second.requests[0].headers
        assert [before.get(name) for name in ("X-Token", "Cookie", "Host")] == ["t", "c=d", "inner.test"]
        assert before["Authorization"].startswith("Basic ")
        assert "Authorization" not in after
        assert [name in after for name in ("X-Token", "Cookie")] == [keep, keep]
        assert (after["Host"] == "inner.test") == keep
        assert (after["Content-Type"], second.requests[0].body) == ("text/x", b"data")


async def test_headers_and_url_credentials_stay_on_a_hop_within_the_same_origin() -> None:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer() if request.path == "/to" else answer(302, location="/to"))

    async with serve(reply) as server, GuardedClient(LOOPBACK) as client:
        await client.request("GET", server.url(host="user:pw@127.0.0.1"), headers={"X-Token": "t"})

        first, second = (request.headers for request in server.requests)
        assert second["X-Token"] == "t"
        assert second["Authorization"] == first["Authorization"]


async def test_redirects_are_followed_to_the_limit_and_no_further() -> None:
    async with serve(always(answer(302, location="/round"))) as server, GuardedClient(LOOPBACK) as client:
        with pytest.raises(OutboundError, match="gave up after 3 redirects") as caught:
            await client.request("GET", server.url(), follow=3)

        assert (caught.value.phase, server.connections) == ("protocol", 4)


async def test_a_redirect_is_the_answer_when_none_may_be_followed_or_it_leads_nowhere() -> None:
    async with (
        serve(always(answer(302, location="/x"))) as redirecting,
        serve(always(answer(302))) as nowhere,
        GuardedClient(LOOPBACK) as client,
    ):
        unfollowed = await client.request("GET", redirecting.url(), follow=0)
        bare = await client.request("GET", nowhere.url())

        assert (unfollowed.status, unfollowed.headers["Location"]) == (302, "/x")
        assert (bare.status, redirecting.connections, nowhere.connections) == (302, 1, 1)


# Bodies.


@pytest.mark.parametrize(("limit", "expected", "truncated"), [(3, b"abc", True), (4, b"abcd", False), (0, b"", True)])
async def test_the_body_is_read_up_to_the_limit(limit: int, expected: bytes, truncated: bool) -> None:
    async with serve(always(answer(body=b"abcd"))) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url(), max_body_bytes=limit)

        assert (got.body, got.truncated) == (expected, truncated)


async def test_the_json_of_a_body_is_its_value_only_where_it_is_whole() -> None:
    async with serve(always(answer(200, b'{"a": [1]}'))) as server, GuardedClient(LOOPBACK) as client:
        whole = await client.request("GET", server.url())
        cut = await client.request("GET", server.url(), max_body_bytes=2)

    assert whole.json() == {"a": [1]}
    with pytest.raises(ValueError, match="too large"):
        cut.json()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 100_000, b"\xff\xfe\xfd"])
async def test_a_body_that_is_not_json_is_a_value_error(body: bytes) -> None:
    async with serve(always(answer(200, body))) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url())

    with pytest.raises(ValueError):
        got.json()


async def test_a_compressed_body_is_decoded() -> None:
    packed = answer(body=gzip.compress(b"plain text"), content_encoding="gzip")
    async with serve(always(packed)) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url())

        assert (got.body, got.truncated, got.headers["content-ENCODING"]) == (b"plain text", False, "gzip")


async def test_a_gzip_bomb_is_cut_at_the_limit_and_never_unpacked_whole() -> None:
    unpacked_bytes = 64 << 20
    bomb = answer(body=gzip.compress(bytes(unpacked_bytes), 1), content_encoding="gzip")
    async with serve(always(bomb)) as server, GuardedClient(LOOPBACK) as client:
        tracemalloc.start()
        try:
            got = await client.request("GET", server.url(), max_body_bytes=1000)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert (got.body, got.truncated) == (bytes(1000), True)
        assert peak_bytes < unpacked_bytes / 8


# Failures.


@pytest.mark.parametrize(
    ("reply", "phase"),
    [
        (b"", "read"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "read"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", "protocol"),
        (answer(body=b"this is not gzip", content_encoding="gzip"), "protocol"),
    ],
    ids=["silent", "cut", "not-http", "huge-header", "bad-gzip"],
)
async def test_a_broken_answer_names_its_phase(reply: bytes, phase: str) -> None:
    async with serve(always(reply)) as server, GuardedClient(LOOPBACK) as client:
        assert (await phase_of(client, server.url()))[0] == phase


async def test_a_port_where_nobody_listens_fails_to_connect_without_naming_the_address() -> None:
    async with serve(always(answer())) as server:
        url = server.url(host="localhost")
    async with GuardedClient(LOOPBACK) as client:
        phase, message = await phase_of(client, url)

    assert phase == "connect"
    assert "127.0.0.1" not in message


async def test_a_name_without_an_address_fails_in_dns() -> None:
    async with (
        resolve_from({"empty.test": [[]]}) as resolver,
        GuardedClient(LOOPBACK, resolver=resolver) as asking,
        GuardedClient(LOOPBACK) as system,
    ):
        absent = await phase_of(asking, "http://absent.test/")
        empty = await phase_of(asking, "http://empty.test/")
        too_long = await phase_of(system, f"http://{'a' * 64}.test/")

    assert absent == ("dns", "cannot resolve absent.test: the DNS server answered NXDOMAIN")
    assert empty == ("dns", "cannot resolve empty.test: the name has no address")
    assert too_long[0] == "dns"


async def test_a_slow_body_hits_the_deadline() -> None:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        await hang(request, writer)

    async with serve(reply) as server, GuardedClient(LOOPBACK) as client:
        phase, message = await phase_of(client, server.url(), timeout_s=0.3)

    assert phase == "timeout"
    assert message.endswith("reading the answer")


async def test_a_server_that_never_answers_hits_the_deadline() -> None:
    async with serve(hang) as server, GuardedClient(LOOPBACK) as client:
        phase, message = await phase_of(client, server.url(), timeout_s=0.3)

    assert phase == "timeout"
    assert message.endswith("waiting for the answer")


async def test_a_name_server_that_never_answers_hits_the_deadline() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        async with GuardedClient(LOOPBACK, resolver=DnsResolver(silent.getsockname()[1])) as client:
            phase, message = await phase_of(client, "http://shop.test/", timeout_s=0.3)

    assert phase == "timeout"
    assert message.endswith("looking up its name")


async def test_a_resolver_that_gives_up_by_itself_fails_in_dns() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        impatient = DnsResolver(silent.getsockname()[1], patience_s=0.1)
        async with GuardedClient(LOOPBACK, resolver=impatient) as client:
            failure = await phase_of(client, "http://shop.test/")

    assert failure == ("dns", "cannot resolve shop.test: no DNS server answered")


async def test_a_handshake_that_never_ends_hits_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with GuardedClient(LOOPBACK) as client:
            url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
            phase, message = await phase_of(client, url, timeout_s=0.3)

    assert phase == "timeout"
    assert message.endswith("agreeing on TLS")


async def test_one_deadline_spans_all_hops() -> None:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(answer(302, location="/next"))

    async with serve(reply) as server, GuardedClient(LOOPBACK) as client:
        phase, _ = await phase_of(client, server.url(), timeout_s=0.5, follow=1000)

        assert phase == "timeout"
        assert server.connections > 1


async def test_a_timeout_tells_at_which_stage_it_was() -> None:
    async with serve(hang) as mute, GuardedClient(LOOPBACK) as client:
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as full, socket.socket() as first:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            first.connect(full.getsockname())
            errors = [
                await error_of(client, f"https://127.0.0.1:{full.getsockname()[1]}/", timeout_s=0.5),
                await error_of(client, f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.5),
                await error_of(client, mute.url(), timeout_s=0.5),
            ]

    assert [(error.phase, error.stage) for error in errors] == [
        ("timeout", "connect"),
        ("timeout", "tls"),
        ("timeout", "read"),
    ]


async def test_kept_names_spare_lookups_and_no_judgement() -> None:
    async with (
        serve_twins(always(answer())) as (allowed, forbidden),
        resolve_from({"shop.test": [["127.0.0.1"], ["127.0.0.2"]], "bad.test": [["127.0.0.2"]]}) as resolver,
        GuardedClient(SECOND_BLOCKED, resolver=resolver, keep_names_s=60) as client,
    ):
        for _ in range(2):
            await client.request("GET", allowed.url(host="shop.test"))
            with pytest.raises(TargetRefused):
                await client.request("GET", allowed.url(host="bad.test"))

        assert (allowed.connections, forbidden.connections) == (2, 0)
