"""The Host header: one host with an optional port, or a reason to refuse the request."""

from __future__ import annotations

import pytest

from moorage.core.net import host_header


@pytest.mark.parametrize(
    "value",
    [
        *(b"localhost", b"LOCALHOST:8080", b"a.example.", b"a_b", b"127.0.0.1:80", b"xn--bcher-kva.example", b"a:"),
        *(b"[::1]", b"[::1]:8080", b"[fe80::1%25eth0]", b"[v1.a]", b"%41.example"),
    ],
)
def test_a_name_or_an_address_with_an_optional_port_is_a_host(value: bytes) -> None:
    assert host_header.is_host(value)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b" ", b":80", b"a b", b"a,b", b"a, b", b"a:x", b"a:80:80", b"a:999999", b"user@a", b"a/b", b"a\\b"),
        *(b"http://a", b"a?b", b"a#b", b'"a"', b"<a>", b"[::1", b"::1", b"[]", b"[::1]a", b"\xc3\xbc.example", b"a\n"),
    ],
)
def test_anything_else_is_none(value: bytes) -> None:
    assert not host_header.is_host(value)


def test_an_address_localhost_and_a_configured_name_are_own_hosts() -> None:
    own = [
        "127.0.0.1",
        "127.0.0.1:8080",
        "192.0.2.7:8080",
        "[::1]:8080",
        "[2001:db8::7]",
        "localhost",
        "LOCALHOST:8080",
    ]
    own += ["shop.localhost", "localhost.", "moorage.example", "Moorage.Example:8080", "moorage.example."]

    assert [value for value in own if not host_header.is_own(value, {"moorage.example"})] == []


def test_a_host_of_someone_else_is_not_an_own_host() -> None:
    others = ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost"]
    others += ["moorage.example.evil.example", "a.moorage.example", "", ":8080", "[v1.a]", "1.2.3"]

    assert [value for value in others if host_header.is_own(value, {"moorage.example"})] == []


@pytest.mark.parametrize(
    ("version", "hosts", "problem"),
    [
        ("1.1", [b"a"], None),
        ("1.1", [], host_header.ABSENT),
        ("1.0", [], None),
        ("0.9", [], None),
        ("1.1", [b"a", b"b"], host_header.SEVERAL),
        ("1.0", [b"a", b"a"], host_header.SEVERAL),
        ("1.1", [b""], host_header.MALFORMED),
        ("1.0", [b"a b"], host_header.MALFORMED),
    ],
)
def test_only_requests_of_http_1_0_may_have_no_host_and_none_may_have_two(
    version: str, hosts: list[bytes], problem: str | None
) -> None:
    headers = [(b"accept", b"*/*"), *((b"host", host) for host in hosts)]

    assert host_header.find_problem(headers, version) == problem
