"""Checks of real targets on loopback: attempts, redirects, keywords and messages."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from tests.core.net.outbound_servers import SECOND_BLOCKED, Request, always, answer, resolve_from, serve, serve_twins
from tests.products.monitors.target import Pauses, checking, in_turn, target, without_end

from moorage.core.net.targets import TargetPolicy
from moorage.products.monitors.probing.checks import MAX_BODY_BYTES

pytestmark = pytest.mark.anyio


# Attempts.


async def test_a_good_answer_is_up_with_its_code_and_time() -> None:
    async with serve(always(answer())) as server, checking() as checker:
        outcome = await checker.check(target(server.url()))

        assert (outcome.is_up, outcome.message, outcome.code, outcome.phase) == (True, "200 OK", 200, None)
        assert outcome.response_ms is not None
        assert outcome.certificate is None
        assert server.connections == 1


@pytest.mark.parametrize(
    ("failures", "retries", "message"),
    [(1, 1, "200 OK after 1 retry"), (2, 3, "200 OK after 2 retries"), (3, 3, "200 OK after 3 retries")],
)
async def test_the_first_good_try_ends_a_check_and_says_how_many_it_took(
    failures: int, retries: int, message: str
) -> None:
    pauses = Pauses()
    async with serve(in_turn(*[answer(503)] * failures, answer())) as server, checking(pause=pauses) as checker:
        outcome = await checker.check(target(server.url(), retries=retries))

        assert (outcome.is_up, outcome.message, server.connections) == (True, message, failures + 1)
        assert pauses.taken == [2.0] * failures


async def test_a_target_is_down_when_all_tries_failed_and_the_last_one_is_told() -> None:
    replies = in_turn(answer(500), answer(502), answer(503))
    async with serve(replies) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), retries=2))

        assert (outcome.is_up, outcome.phase, outcome.code) == (False, "status", 503)
        assert outcome.message == "status: 503 Service Unavailable is not among 200-299"
        assert outcome.response_ms is not None
        assert server.connections == 3


async def test_a_try_that_got_no_answer_has_no_code_and_no_time_even_after_one_that_had() -> None:
    async with serve(in_turn(answer(500), b"")) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), retries=1))

        assert (outcome.phase, outcome.code, outcome.response_ms) == ("read", None, None)


@pytest.mark.parametrize(
    ("interval_s", "retries", "retry_delay_s"), [(60, 2, 2.0), (4, 3, 1.0), (30, 19, 1.5), (30, 0, 2.0)]
)
def test_the_gap_between_tries_is_two_seconds_or_fits_into_the_interval(
    interval_s: int, retries: int, retry_delay_s: float
) -> None:
    assert target("http://127.0.0.1/", interval_s=interval_s, retries=retries).retry_delay_s == retry_delay_s


async def test_the_method_the_headers_and_the_body_of_a_monitor_are_sent() -> None:
    headers = (("X-Token", "t"), ("X-List", "one"), ("X-List", "two"), ("Host", "inner.test"))
    async with serve(always(answer(201))) as server, checking() as checker:
        outcome = await checker.check(target(server.url("/in?a=b"), method="POST", headers=headers, body=b"payload"))

        [request] = server.requests
        assert (outcome.message, request.method, request.path, request.body) == (
            "201 Created", "POST", "/in?a=b", b"payload",
        )  # fmt: skip
        assert (request.headers["X-Token"], request.headers["Host"]) == ("t", "inner.test")
        assert request.headers.getall("X-List") == ["one", "two"]
        assert request.headers["User-Agent"] == "Moorage-Monitor"


async def test_a_head_request_is_judged_by_its_code() -> None:
    async with serve(always(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), method="HEAD"))

        assert (outcome.message, server.requests[0].method) == ("200 OK", "HEAD")


@pytest.mark.parametrize("headers", [(("X-A", "b\r\nHost: evil"),), (("X A", "b"),)])
async def test_a_header_that_cannot_be_sent_is_an_outcome_and_no_error(headers: tuple[tuple[str, str], ...]) -> None:
    async with serve(always(answer())) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), headers=headers))

        assert (outcome.is_up, outcome.phase, server.connections) == (False, "connect", 0)


# Codes and redirects.


@pytest.mark.parametrize(
    ("status", "codes", "message"),
    [
        (404, ("404",), "404 Not Found"),
        (299, (), "299"),
        (204, ("200", "201"), "status: 204 No Content is not among 200, 201"),
        (599, ("2xx",), "status: 599 is not among 200-299"),
    ],
)
async def test_the_code_is_judged_by_the_monitors_list(status: int, codes: tuple[str, ...], message: str) -> None:
    async with serve(always(answer(status, b""))) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), codes=codes))

        assert (outcome.message, outcome.code) == (message, status)


async def test_a_server_cannot_put_words_into_the_message() -> None:
    odd = b"HTTP/1.1 500 <script>steal()</script>\r\ncontent-length: 6\r\n\r\nsecret"
    async with serve(always(odd)) as server, checking() as checker:
        outcome = await checker.check(target(server.url()))

        assert outcome.message == "status: 500 Internal Server Error is not among 200-299"


async def test_a_message_is_cut_at_three_hundred_characters() -> None:
    codes = tuple(str(code) for code in range(400, 500))
    async with serve(always(answer())) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), codes=codes))

        assert len(outcome.message) == 300
        assert outcome.message.startswith("status: 200 OK is not among 400, 401")
        assert outcome.message.endswith("…")


async def test_a_redirect_is_followed_and_the_last_answer_judged() -> None:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(404) if request.path == "/to" else answer(302, location="/to"))

    async with serve(reply) as server, checking() as checker:
        outcome = await checker.check(target(server.url("/from"), headers=(("X-Token", "t"),)))

        assert (outcome.code, outcome.phase) == (404, "status")
        assert [request.headers.get("X-Token") for request in server.requests] == ["t", "t"]


async def test_a_redirect_is_the_answer_where_the_list_accepts_one() -> None:
    async with serve(always(answer(301, location="/elsewhere"))) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), codes=("200", "301")))

        assert (outcome.message, server.connections) == ("301 Moved Permanently", 1)


async def test_headers_and_credentials_of_a_monitor_stay_with_its_own_host() -> None:
    async with serve(always(answer())) as other, serve(always(answer(307, location=other.url()))) as first:
        async with checking() as checker:
            outcome = await checker.check(
                target(first.url(host="user:pw@127.0.0.1"), headers=(("X-Token", "t"), ("Cookie", "c=d")))
            )

        names = ("X-Token", "Cookie", "Authorization")
        assert outcome.is_up
        assert [name in first.requests[0].headers for name in names] == [True, True, True]
        assert [name in other.requests[0].headers for name in names] == [False, False, False]


async def test_ten_redirects_are_followed_and_a_loop_is_given_up() -> None:
    async def count_down(request: Request, writer: asyncio.StreamWriter) -> None:
        left = int(request.path.strip("/"))
        writer.write(answer(302, location=f"/{left - 1}") if left else answer())

    async with serve(count_down) as server, serve(always(answer(302, location="/"))) as loop, checking() as checker:
        ten = await checker.check(target(server.url("/10")))
        round_and_round = await checker.check(target(loop.url()))

        assert ten.message == "200 OK"
        assert (round_and_round.phase, round_and_round.message) == ("read", "read: gave up after 10 redirects")
        assert loop.connections == 11


# Keywords.


async def contains(body: bytes, keyword: str, **headers: str) -> bool:
    async with serve(always(answer(200, body, **headers))) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), keyword=keyword))

    assert outcome.message == ("200 OK" if outcome.is_up else "keyword: the answer does not contain it")
    assert outcome.phase == (None if outcome.is_up else "keyword")
    assert outcome.code == 200
    return outcome.is_up


async def test_a_keyword_is_looked_for_in_the_body_as_it_is_written() -> None:
    found = [await contains(b"<p>All is Well</p>", keyword) for keyword in ("is Well", "is well", "broken")]

    assert found == [True, False, False]


async def test_a_keyword_is_found_in_the_charset_that_the_server_names() -> None:
    body = "наличии".encode("cp1251")

    named = await contains(body, "наличии", content_type="text/html; charset=windows-1251")
    unnamed = await contains(body, "наличии", content_type="text/html")
    wrong = await contains("наличии".encode(), "наличии", content_type="text/html; charset=x-no-such")

    assert (named, unnamed, wrong) == (True, False, True)


async def test_a_keyword_is_found_in_a_compressed_body() -> None:
    assert await contains(gzip.compress("grüße".encode()), "grüße", content_encoding="gzip")


async def test_of_a_body_without_end_the_first_mebibyte_is_looked_at() -> None:
    async with serve(without_end) as server, checking() as checker:
        outcomes = [await checker.check(target(server.url(), keyword=keyword)) for keyword in ("welcome", "bye")]

        assert [outcome.is_up for outcome in outcomes] == [True, False]


async def test_a_keyword_beyond_the_first_mebibyte_is_not_found() -> None:
    body = b"x" * MAX_BODY_BYTES

    assert not await contains(body + b"welcome", "welcome")
    assert await contains(body[7:] + b"welcome", "welcome")


# Addresses.

SPELLINGS = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "localhost", "shop.localhost"),
    *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "0.0.0.0", "[::]"),
    *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::1]", "[64:ff9b:1::7f00:1]"),
    *("169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "10.0.0.1", "192.168.0.1", "100.64.0.1"),
]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_an_address_within_is_refused_however_it_is_spelled(host: str) -> None:
    async with serve(always(answer())) as server, checking(TargetPolicy()) as checker:
        outcome = await checker.check(target(server.url(host=host)))

        assert (outcome.is_up, outcome.phase, server.connections) == (False, "connect", 0)
        assert outcome.message.startswith("connect: cannot call ")
        assert outcome.message.endswith("addresses are not allowed")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://", "http://a b/", "nonsense"])
async def test_what_is_no_url_of_the_web_is_an_outcome_and_no_error(url: str) -> None:
    async with checking() as checker:
        outcome = await checker.check(target(url))

        assert (outcome.is_up, outcome.phase) == (False, "connect")


async def test_a_redirect_to_an_address_within_is_refused() -> None:
    async with serve(always(answer()), host="127.0.0.2") as within:
        async with serve(always(answer(302, location=within.url("/admin")))) as server:
            async with checking(SECOND_BLOCKED) as checker:
                outcome = await checker.check(target(server.url()))

        assert outcome.message == "connect: cannot call 127.0.0.2: the operator does not allow this address"
        assert within.connections == 0


async def test_a_name_that_changes_between_two_lookups_is_judged_at_the_second_too() -> None:
    answers = {"shop.test": [["127.0.0.1"], ["127.0.0.2"]]}
    async with (
        serve_twins(always(answer(500)), always(answer())) as (allowed, within),
        resolve_from(answers) as resolver,
    ):
        url = allowed.url(host="shop.test")
        outcomes = []
        for _ in range(2):  # Each has an empty DNS cache.
            async with checking(SECOND_BLOCKED, resolver=resolver) as checker:
                outcomes.append(await checker.check(target(url)))

        assert [outcome.phase for outcome in outcomes] == ["status", "connect"]
        assert (allowed.connections, within.connections) == (1, 0)


async def test_a_name_that_changes_between_two_hops_leads_nowhere_else() -> None:
    """The policy applies to every connection, with cached and new addresses."""
    answers = {"shop.test": [["127.0.0.1"], ["127.0.0.2"]]}
    async with (
        serve_twins(in_turn(answer(302, location="/again"), answer()), always(answer())) as (allowed, within),
        resolve_from(answers) as resolver,
        checking(SECOND_BLOCKED, resolver=resolver) as checker,
    ):
        outcome = await checker.check(target(allowed.url(host="shop.test")))

        assert (outcome.is_up, allowed.connections, within.connections) == (True, 2, 0)
