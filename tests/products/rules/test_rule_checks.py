"""Validation of rules: an error for each bad field, all at once."""

from __future__ import annotations

import itertools

import pytest

from moorage.errors import BadRequest
from moorage.products.rules.checks import RESERVED_NAMES, check_headers, check_redirects
from moorage.products.rules.destinations import OwnAddresses
from moorage.products.rules.patterns import HeaderRule, RedirectRule

OWN = OwnAddresses(frozenset(["harbor.localhost", "www.example"]), frozenset([80, 443, 8081]))


def bad_headers(*rules: HeaderRule) -> list[str]:
    with pytest.raises(BadRequest) as refused:
        check_headers(rules)
    return list(refused.value.fields or {})


def bad_redirects(*rules: RedirectRule) -> list[str]:
    with pytest.raises(BadRequest) as refused:
        check_redirects(rules, OWN)
    return list(refused.value.fields or {})


@pytest.mark.parametrize(
    ("source", "name", "value", "field"),
    [
        ("about", "X-A", "1", "source"),
        ("/a?b", "X-A", "1", "source"),
        ("/a", "", "1", "name"),
        ("/a", "X A", "1", "name"),
        ("/a", "X-A:", "1", "name"),
        ("/a", "X-Ä", "1", "name"),
        ("/a", "X-A\r\nX-B", "1", "name"),
        ("/a", "X-A\n", "1", "name"),
        ("/a", "{env.SECRET}", "1", "name"),
        ("/a", "a" * 201, "1", "name"),
        ("/a", "X-A", "1\r\nSet-Cookie: a=b", "value"),
        ("/a", "X-A", "1\n", "value"),
        ("/a", "X-A", "1\r", "value"),
        ("/a", "X-A", "1\x00", "value"),
        ("/a", "X-A", "1\x7f", "value"),
        ("/a", "X-A", "1\x85", "value"),
        *(("/a", name.title(), "1", "name") for name in sorted(RESERVED_NAMES)),
    ],
)
def test_a_bad_header_rule_is_named_by_its_field(source: str, name: str, value: str, field: str) -> None:
    fine = HeaderRule("/fine", "X-Fine", "1")

    assert bad_headers(fine, HeaderRule(source, name, value)) == [f"headers[1].{field}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Security-Policy", "default-src 'self'; img-src *"),
        ("Strict-Transport-Security", "max-age=63072000; includeSubDomains"),
        ("Set-Cookie", "a=b; Path=/"),
        ("x!#$%&'*+-.^_`|~1", "\ttab and {braces} and $1 and café"),
        ("Cache-Control", ""),
    ],
)
def test_an_ordinary_header_is_taken(name: str, value: str) -> None:
    assert check_headers([HeaderRule("/*", name, value)]) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("source", "destination", "status", "field"),
    [
        ("a", "/b", 301, "source"),
        ("/:a/:a", "/b", 301, "source"),
        ("/a", "b", 301, "destination"),
        ("/a", "//evil.example", 301, "destination"),
        ("/a", "javascript:alert(1)", 301, "destination"),
        ("/a/:x", "https://:x/", 301, "destination"),
        ("/a/:x", "/:y", 301, "destination"),
        ("/a*", "/*", 301, "destination"),
        ("/a", "/b\r\nX: y", 301, "destination"),
        ("/a", "/a", 301, "destination"),
        ("/a", "http://harbor.localhost/a", 301, "destination"),
        ("/a", "http://harbor.localhost:8081/a", 301, "destination"),
        ("/b/*", "https://WWW.Example/b/*", 301, "destination"),
        ("/a", "/b", 200, "status"),
        ("/a", "/b", 304, "status"),
        ("/a", "/b", 999, "status"),
        ("/a", "/b", -301, "status"),
    ],
)
def test_a_bad_redirect_is_named_by_its_field(source: str, destination: str, status: int, field: str) -> None:
    fine = RedirectRule("/fine", "/well", 301)

    assert bad_redirects(fine, RedirectRule(source, destination, status)) == [f"redirects[1].{field}"]


def test_all_that_is_wrong_is_named_at_once() -> None:
    redirects = [RedirectRule("a", "b", 1), RedirectRule("/:x", "/:y", 301), RedirectRule("/c", "javascript:d", 301)]
    headers = [HeaderRule("a", "b c", "d\n"), HeaderRule("/a", "Host", "x")]

    assert sorted(bad_redirects(*redirects)) == [
        "redirects[0].destination",
        "redirects[0].source",
        "redirects[0].status",
        "redirects[1].destination",
        "redirects[2].destination",
    ]
    assert sorted(bad_headers(*headers)) == [
        "headers[0].name",
        "headers[0].source",
        "headers[0].value",
        "headers[1].name",
    ]


def test_rules_that_cost_the_gateway_too_much_are_refused_as_a_whole() -> None:
    long = [f"/{number}{'a' * 1900}/*" for number in range(60)]
    endings = [f"/{number}/*.html" for number in range(101)]

    assert bad_redirects(*(RedirectRule(source, "/b", 301) for source in long)) == ["redirects"]
    assert bad_redirects(*(RedirectRule(source, "/b", 301) for source in endings)) == ["redirects"]
    assert bad_headers(*(HeaderRule(source, "X-A", "1") for source in long)) == ["headers"]
    assert bad_headers(*(HeaderRule(source, "X-A", "1") for source in endings)) == ["headers"]


def test_rules_that_fit_a_path_in_a_thousand_ways_are_refused_as_a_whole() -> None:
    ways = list(itertools.product(("a", ":x"), repeat=9))
    sources = ["/".join(f"{part}{at}" if ":" in part else part for at, part in enumerate(way)) for way in ways]
    numbered = list(enumerate(sources * 2))[:1000]
    rules = [RedirectRule(f"/{source}/{at}", f"{'/a' * 9}/end-{at}", 301) for at, source in numbered]

    assert bad_redirects(*rules) == ["redirects"]


def test_plain_redirects_and_many_headers_of_one_source_cost_little() -> None:
    plain = [RedirectRule(f"/{number}{'a' * 1900}", "/b", 301) for number in range(1000)]
    headers = [HeaderRule(f"/{'a' * 1900}/*", f"X-{number}", "1") for number in range(1000)]

    check_redirects(plain, OWN)
    check_headers(headers)

    assert sum(len(rule.source) for rule in plain) > 1_000_000
