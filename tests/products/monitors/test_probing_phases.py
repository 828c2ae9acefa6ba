"""Failures of checks: the message begins with the phase that timed out or failed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.net.outbound_servers import DnsResolver, always, answer, hang, resolve_from, serve
from tests.products.monitors.target import (
    AnsweringSome,
    Authority,
    SayingTryAgain,
    accepting_nothing,
    checking,
    half_a_body,
    hanging_up,
    shaking_no_hands,
    silent_name_server,
    target,
)

from moorage.core.net.dns import MAX_LOOKUPS_OF_TENANT
from moorage.products.monitors.probing.beats import Outcome

pytestmark = pytest.mark.anyio

SOON_MS = 500


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path)


def told(outcome: Outcome) -> tuple[bool, str | None, bool]:
    """Return the common part of failures: down, the phase, and the start of the message."""
    return outcome.is_up, outcome.phase, outcome.message.startswith(f"{outcome.phase}: ")


# Timeouts.


async def test_time_that_runs_out_in_dns_says_so() -> None:
    with silent_name_server() as port:
        async with checking(resolver=DnsResolver(port)) as checker:
            outcome = await checker.check(target("http://shop.test/", timeout_ms=SOON_MS))

    assert told(outcome) == (False, "dns", True)
    assert outcome.message == "dns: shop.test gave no full answer in 0.5 s: looking up its name"


async def test_names_without_an_answer_of_one_organization_do_not_delay_checks_of_others() -> None:
    resolver = AnsweringSome()
    async with serve(always(answer())) as server, checking(resolver=resolver) as checker:
        dead = [
            asyncio.create_task(checker.check(target(f"http://{number}.dead.test/", org_id=1)))
            for number in range(MAX_LOOKUPS_OF_TENANT + 5)
        ]
        while resolver.unanswered < MAX_LOOKUPS_OF_TENANT:
            await asyncio.sleep(0)

        outcome = await checker.check(target(server.url(host="shop.test"), org_id=2))

        assert (outcome.message, resolver.unanswered) == ("200 OK", MAX_LOOKUPS_OF_TENANT)
        for each in dead:
            each.cancel()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_time_that_runs_out_before_there_is_a_connection_says_so(scheme: str) -> None:
    with accepting_nothing() as port:
        async with checking() as checker:
            outcome = await checker.check(target(f"{scheme}://127.0.0.1:{port}/", timeout_ms=SOON_MS))

    assert told(outcome) == (False, "connect", True)


async def test_time_that_runs_out_in_tls_says_so() -> None:
    with shaking_no_hands() as port:
        async with checking() as checker:
            outcome = await checker.check(target(f"https://127.0.0.1:{port}/", timeout_ms=SOON_MS))

    assert told(outcome) == (False, "tls", True)
    assert outcome.message.endswith("agreeing on TLS")


async def test_time_that_runs_out_before_or_in_the_answer_says_so() -> None:
    async with serve(hang) as silent, serve(half_a_body) as slow, checking() as checker:
        outcomes = [
            await checker.check(target(server.url(), timeout_ms=SOON_MS, retries=1)) for server in (silent, slow)
        ]

        assert [told(outcome) for outcome in outcomes] == [(False, "read", True)] * 2
        assert [outcome.message.rpartition(": ")[2] for outcome in outcomes] == [
            "waiting for the answer", "reading the answer",
        ]  # fmt: skip
        assert [outcome.response_ms for outcome in outcomes] == [None, None]
        assert (silent.connections, slow.connections) == (2, 2)


async def test_one_deadline_spans_all_hops_of_a_try() -> None:
    async def slowly(request: object, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(answer(302, location="/next"))

    async with serve(slowly) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), timeout_ms=SOON_MS))

        assert told(outcome) == (False, "read", True)
        assert 1 < server.connections < 10


# Errors.


async def test_a_name_that_does_not_exist_is_down_in_dns() -> None:
    async with resolve_from({}) as resolver, checking(resolver=resolver) as checker:
        outcome = await checker.check(target("http://absent.test/"))

    assert outcome.message == "dns: cannot resolve absent.test: the DNS server answered NXDOMAIN"


async def test_a_resolver_that_cannot_tell_for_now_is_asked_again_without_spending_a_retry() -> None:
    resolver = SayingTryAgain(times=1)
    async with serve(always(answer())) as server, checking(resolver=resolver) as checker:
        outcome = await checker.check(target(server.url(host="shop.test")))

        assert (outcome.message, resolver.asked) == ("200 OK", 2)


async def test_a_resolver_that_cannot_tell_twice_is_down_in_dns() -> None:
    resolver = SayingTryAgain(times=100)
    async with checking(resolver=resolver) as checker:
        outcome = await checker.check(target("http://shop.test/", retries=1))

    assert outcome.message == "dns: cannot resolve shop.test: Temporary failure in name resolution"
    assert resolver.asked == 4


async def test_a_port_where_nobody_listens_is_down_in_connect() -> None:
    async with serve(always(answer())) as server:
        url = server.url()
    async with checking() as checker:
        outcome = await checker.check(target(url))

    assert outcome.message == "connect: cannot connect to 127.0.0.1: Connection refused"


async def test_a_server_that_hangs_up_is_down_in_tls_or_in_read() -> None:
    async with hanging_up() as port, checking() as checker:
        secure = await checker.check(target(f"https://127.0.0.1:{port}/"))
        plain = await checker.check(target(f"http://127.0.0.1:{port}/"))

    assert (told(secure), told(plain)) == ((False, "tls", True), (False, "read", True))


async def test_a_server_that_speaks_no_tls_is_down_in_tls() -> None:
    async with serve(always(answer())) as server, checking() as checker:
        outcome = await checker.check(target(server.url(scheme="https"), timeout_ms=SOON_MS))

        assert told(outcome) == (False, "tls", True)


@pytest.mark.parametrize(
    "reply",
    [
        *(b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9\r\n\r\n", b"\x00\xff\r\n\r\n"),
        *(b"HTTP/1.1 999999 Odd\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n"),
        *(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", answer(body=b"no", content_encoding="gzip")),
    ],
)
async def test_an_answer_that_is_broken_is_down_in_read(reply: bytes) -> None:
    async with serve(always(reply)) as server, checking() as checker:
        outcome = await checker.check(target(server.url()))

        assert told(outcome) == (False, "read", True)
        assert (outcome.code, outcome.response_ms) == (None, None)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_a_server_says_is_an_outcome(noise: bytes, is_head_good: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\n" if is_head_good else b""
    async with serve(always(head + noise)) as server, checking() as checker:
        outcome = await checker.check(target(server.url(), keyword="harbor"))

        assert told(outcome) in ((False, "read", True), (False, "keyword", True))


# Certificates.


async def test_a_certificate_that_is_not_verified_is_told_of_an_answer(authority: Authority) -> None:
    async with serve(always(answer()), tls=authority.context()) as server, checking() as checker:
        outcome = await checker.check(target(server.url(scheme="https"), ignore_tls_error=True))

        assert (outcome.message, server.connections) == ("200 OK", 1)
        assert outcome.certificate is not None
        assert (outcome.certificate.subject, outcome.certificate.issuer) == ("shop", "Harbor authority")


async def test_a_certificate_that_is_refused_is_told_and_nothing_but_a_handshake_was_sent(
    authority: Authority,
) -> None:
    async with serve(always(answer()), tls=authority.context()) as server, checking() as checker:
        outcome = await checker.check(target(server.url(scheme="https", host="localhost")))

        assert told(outcome) == (False, "tls", True)
        assert outcome.certificate is not None
        assert outcome.certificate.subject == "shop"
        assert server.requests == []


async def test_the_certificate_is_told_although_the_answer_was_bad_or_late(authority: Authority) -> None:
    context = authority.context()
    async with (
        serve(always(answer(500)), tls=context) as bad,
        serve(half_a_body, tls=context) as late,
        serve(always(b"nonsense\r\n\r\n"), tls=context) as odd,
        serve(always(answer(302, location="/")), tls=context) as loop,
        checking() as checker,
    ):
        outcomes = [
            await checker.check(target(server.url(scheme="https"), ignore_tls_error=True, timeout_ms=2_000))
            for server in (bad, late, odd, loop)
        ]

    assert [outcome.phase for outcome in outcomes] == ["status", "read", "read", "read"]
    assert [outcome.certificate and outcome.certificate.subject for outcome in outcomes] == ["shop"] * 4


async def test_the_certificate_is_the_last_one_that_was_seen_on_the_way(authority: Authority) -> None:
    async with serve(always(answer())) as plain:
        leading = always(answer(302, location=plain.url()))
        async with serve(leading, tls=authority.context()) as secure, checking() as checker:
            outcome = await checker.check(target(secure.url(scheme="https"), ignore_tls_error=True))

    assert outcome.is_up
    assert outcome.certificate is not None


async def test_a_certificate_that_an_earlier_try_saw_is_told(authority: Authority) -> None:
    async with AsyncExitStack() as running:
        server = await running.enter_async_context(serve(always(answer(500)), tls=authority.context()))

        async def stop_it(seconds: float) -> None:
            await running.aclose()

        async with checking(pause=stop_it) as checker:
            outcome = await checker.check(target(server.url(scheme="https"), ignore_tls_error=True, retries=1))

    assert (outcome.phase, outcome.code) == ("connect", None)
    assert outcome.certificate is not None


TRUSTING = """
import asyncio, dataclasses, json, sys
from moorage.core.net.targets import TargetPolicy
from moorage.products.monitors.probing.checks import Checker
from tests.products.monitors.target import target

async def main():
    checker = Checker(TargetPolicy(allow_loopback=True))
    for url in sys.argv[1:]:
        print(json.dumps(dataclasses.asdict(await checker.check(target(url)))))
    await checker.close()

asyncio.run(main())
"""


async def trusting(authority: Authority, *urls: str) -> list[dict[str, object]]:
    """Check from a process that trusts the authority: trust is read at process start."""
    environment = {**os.environ, "SSL_CERT_FILE": str(authority.ca_file), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TRUSTING, *urls), env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return [json.loads(line) for line in output.splitlines()]


async def test_each_fault_of_a_certificate_is_named_and_the_certificate_told(authority: Authority) -> None:
    async with (
        serve(always(answer()), tls=authority.context()) as good,
        serve(always(answer()), tls=authority.context(days_left=-2)) as expired,
        serve(always(answer()), tls=authority.context(valid_for="elsewhere.test")) as misnamed,
        serve(always(answer()), tls=authority.self_signed()) as by_itself,
    ):
        servers = (good, expired, misnamed, by_itself)
        outcomes = await trusting(authority, *(server.url(host="localhost", scheme="https") for server in servers))

        begin = "tls: cannot agree on TLS with localhost: "
        assert [str(outcome["message"]).removeprefix(begin) for outcome in outcomes] == [
            "200 OK",
            "certificate has expired",
            "Hostname mismatch, certificate is not valid for 'localhost'.",
            "self-signed certificate",
        ]
        assert [outcome["certificate"]["subject"] for outcome in outcomes] == [  # type: ignore[index]
            "shop", "shop", "shop", "shop by itself",
        ]  # fmt: skip
        assert [len(server.requests) for server in servers] == [1, 0, 0, 0]
