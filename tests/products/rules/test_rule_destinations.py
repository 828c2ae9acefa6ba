"""Destinations of redirects: parsing, and no open redirects."""

from __future__ import annotations

import re

import pytest

from moorage.products.rules.destinations import OwnAddresses, parse_redirect
from moorage.products.rules.patterns import BadPattern, RedirectRule

pytestmark = pytest.mark.boundary("stranger-to-platform", "No visitor chooses the host of a redirect.")


def refusal(source: str, destination: str) -> str:
    with pytest.raises(BadPattern) as refused:
        parse_redirect(RedirectRule(source, destination, 301))
    return str(refused.value)


@pytest.mark.parametrize(
    ("destination", "complaint"),
    [
        ("", "path that starts with /"),
        ("new", "path that starts with /"),
        ("//evil.example", "another host"),
        ("/\\evil.example", "browsers read it as /"),
        ("https:\\\\evil.example", "browsers read it as /"),
        ("javascript:alert(1)", "http:// or https://"),
        ("JavaScript://x/%0aalert(1)", "http:// or https://"),
        ("data:text/html,x", "http:// or https://"),
        ("ftp://a.example/", "http:// or https://"),
        (" /new", "path that starts with /"),
        ("https:/a.example", "http:// or https://"),
        ("https:a.example", "http:// or https://"),
        ("https://", "host"),
        ("https:///a", "host"),
        ("https://user@a.example/", "host"),
        ("https://a.example:b@c.example/", "host"),
        ("https://a.example:0/", "port"),
        ("https://a.example:99999/", "port"),
        ("https://a.example:x/", "host"),
        ("https://a_b!.example/", "host"),
        ("https://exämple.example/", "ASCII"),
        ("https://a..example/", "host"),
        ("https://[::1/", "host"),
        ("https://[zz::1]/", "host"),
        ("https://:x.example/", "visitor could choose"),
        ("https://*.example/", "visitor could choose"),
        ("https://a.example*", "visitor could choose"),
        ("/new\r\nSet-Cookie: a=b", "control characters"),
        ("/new\x00", "control characters"),
        ("/a/../b", "parts . and .."),
        ("https://a.example/%2e%2e/b", "parts . and .."),
        ("/100%", "two hexadecimal digits"),
        ("/:y", ":y, which the source does not have"),
        ("/new?id=:z", ":z, which the source does not have"),
        ("/a*", "has a *"),
        ("/:splat", "has a *"),
        ("/" + "a" * 2000, "2,000 characters"),
        ("/" + ":x/" * 17, "at most 16"),
    ],
)
def test_a_destination_that_leads_astray_is_refused_with_a_reason(destination: str, complaint: str) -> None:
    assert complaint in refusal("/old/:x", destination)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("/old*", "/*"),
        ("/old*", "/:splat"),
        ("/old/*", "/*/:y".replace(":y", "evil.example")),
        ("/a/:x/*", "/*/:x"),
        ("/a/:x/*", "/:splat/:x"),
        ("/*.html", "/*/more"),
    ],
)
def test_a_path_whose_start_a_visitor_could_turn_into_another_host_is_refused(source: str, destination: str) -> None:
    assert "another host" in refusal(source, destination)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("/old/*", "/*"),
        ("/old/:x", "/:x"),
        ("/old/:x/*", "/:x/*"),
        ("/old*", "/new*"),
        ("/old*", "https://a.example/*"),
        ("/a/*/b", "/*/b"),
        ("/a/:x/*", "/:x*"),
        ("/a", "https://[::1]:8080/x"),
        ("/a", "HTTPS://A.Example"),
        ("/a", "http://127.0.0.1:3000?x=1"),
        ("/a/:x", "/Special:Search?at=10:30#x:y"),
    ],
)
def test_a_destination_whose_host_is_certain_is_taken(source: str, destination: str) -> None:
    redirect = parse_redirect(RedirectRule(source, destination, 301))

    assert redirect.origin == "".join(re.findall(r"^https?://[^/?]+", destination.lower()))


@pytest.mark.parametrize(
    ("source", "destination", "path", "leads_to"),
    [
        ("/old/:x", "/new/:x/:x", "/old/a", "/new/a/a"),
        ("/old/*", "/new/*?q=*#*", "/old/a/b", "/new/a/b"),
        ("/*/x/*", "/b/*/*", "/1/x/2/3", "/b/1/2/3"),
        ("/*/x/*", "/b/:splat", "/1/x/2/3", "/b/2/3"),
        ("/a", "/b c/é/{d}", "/a", "/b c/é/{d}"),
        ("/a", "https://own.example/b", "/a", "/b"),
        ("/a", "https://own.example:8081/b", "/a", "/b"),
        ("/a", "https://own.example.:443", "/a", "/"),
        ("/a", "https://own.example:9/b", "/a", None),
        ("/a", "https://other.example/b", "/a", None),
    ],
)
def test_placeholders_become_what_they_matched(source: str, destination: str, path: str, leads_to: str | None) -> None:
    redirect = parse_redirect(RedirectRule(source, destination, 301))
    own = OwnAddresses(frozenset(["own.example"]), frozenset([80, 443, 8081]))

    values = redirect.match(path)

    assert values is not None
    assert redirect.leads_to(values, own) == leads_to


def test_stars_are_counted_through_path_query_and_fragment() -> None:
    redirect = parse_redirect(RedirectRule("/*/x/*", "/b/*?rest=*", 301))

    assert (redirect.path, redirect.query) == (("/b/", 0), ("rest=", 1))
    assert "more than the 2" in refusal("/*/x/*", "/b/*?rest=*#*")


def test_what_would_part_the_fields_of_a_query_does_not_match_where_it_would_stand_in_one() -> None:
    redirect = parse_redirect(RedirectRule("/find/:x", "/search?q=:x", 301))

    assert redirect.match("/find/a") == ("a",)
    assert [redirect.match(f"/find/a{mark}b") for mark in "&=+;"] == [None] * 4
