"""Sources of rules: matching, refusals and equivalent regular expressions."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.products.rules.destinations import Redirect, parse_redirect
from moorage.products.rules.patterns import BadPattern, RedirectRule, parse_source
from moorage.products.rules.regexps import decoded_regexp, escaped_regexp


@pytest.mark.parametrize(
    ("source", "path", "values"),
    [
        ("/", "/", ()),
        ("/about", "/about", ()),
        ("/about", "/about/", None),
        ("/about/", "/about", None),
        ("/about", "/About", None),
        ("/about", "/about/us", None),
        ("/caf%C3%A9", "/café", ()),
        ("/café", "/café", ()),
        ("/%2A/%3Aname", "/*/:name", ()),
        ("/wiki/Special:Search", "/wiki/Special:Search", ()),
        ("/blog/:slug", "/blog/hello", ("hello",)),
        ("/blog/:slug", "/blog/", None),
        ("/blog/:slug", "/blog/a/b", None),
        ("/blog/:slug.html", "/blog/hello.html", ("hello",)),
        ("/blog/:slug.html", "/blog/.html", None),
        ("/blog/:slug.html", "/blog/hello.htm", None),
        ("/:year/:month/:day", "/2026/01/31", ("2026", "01", "31")),
        ("/docs/*", "/docs/", ("",)),
        ("/docs/*", "/docs", None),
        ("/docs/*", "/docs/a", ("a",)),
        ("/docs/*", "/docs/a/b/", ("a/b/",)),
        ("/docs/*", "/docs//a//b", ("a//b",)),
        ("/*", "/", ("",)),
        ("/*", "//evil.example", ("evil.example",)),
        ("/doc*", "/docs/a", ("s/a",)),
        ("/doc*", "/doc", ("",)),
        ("/*.css", "/a/b.css", ("a/b",)),
        ("/*.css", "/a/b.js", None),
        ("/*.min.js", "/app.min.js", ("app",)),
        ("/docs/*/edit", "/docs/a/edit", ("a",)),
        ("/docs/*/edit", "/docs/a/b/edit", None),
        ("/docs/*/edit", "/docs//edit", None),
        ("/v*/api/*", "/v2/api/x/y", ("2", "x/y")),
    ],
)
def test_a_source_takes_its_paths_and_no_others(source: str, path: str, values: tuple[str, ...] | None) -> None:
    assert parse_source(source).match(path) == values


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "starts with /"),
        ("about", "starts with /"),
        ("https://a.example/", "starts with /"),
        ("*", "starts with /"),
        ("/a?b=1", "path alone"),
        ("/a#b", "path alone"),
        ("//a", "two slashes"),
        ("/a//b", "two slashes"),
        ("/a/../b", "parts . and .."),
        ("/%2e%2E/b", "parts . and .."),
        ("/./b", "parts . and .."),
        ("/a\\b", "browsers read it as /"),
        ("/a\nb", "control characters"),
        ("/a\x00", "control characters"),
        ("/a%0Ab", "control characters"),
        ("/a%2Fb", "%2F"),
        ("/100%", "two hexadecimal digits"),
        ("/%zz", "two hexadecimal digits"),
        ("/%ff", "UTF-8"),
        ("/:", ":name"),
        ("/:1", ":name"),
        ("/:a-b", ":name"),
        ("/:a:b", ":name"),
        ("/:a/:a", "twice"),
        ("/:splat", "splat"),
        ("/**", "after *"),
        ("/a*b", "after *"),
        ("/*.a*", "after *"),
        ("/*.a.b.c.d", "after *"),
        ("/" + "a" * 2000, "2,000 characters"),
        ("/a" * 101, "100 parts"),
        ("/*" * 17, "at most 16"),
    ],
)
def test_a_source_that_means_nothing_is_refused_with_a_reason(source: str, complaint: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(complaint)):
        parse_source(source)


# Few letters, so that paths often match; with special characters of regexps, templates, queries and Caddy.
TEXTS = st.text("ab.$+(&{é%1", min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
ENDINGS = st.sampled_from(["", "", ".a", ".b.a"])
NAMED = st.tuples(st.sampled_from([":x", ":y", "*"]), ENDINGS).map("".join)
MIDDLE = st.one_of(TEXTS.map(lambda text: quote(text, safe="$+(&")), NAMED)
LAST = st.one_of(MIDDLE, st.just(""), st.tuples(TEXTS.map(quote), st.just("*")).map("".join))
SOURCES = st.tuples(st.lists(MIDDLE, max_size=2), LAST).map(lambda parts: "/" + "/".join([*parts[0], parts[1]]))
PATHS = st.lists(TEXTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


def understood(source: str, destination: str = "https://a.example/") -> Redirect | None:
    try:
        return parse_redirect(RedirectRule(source, destination, 301))
    except BadPattern:
        return None


@given(SOURCES, PATHS, st.booleans())
def test_the_expressions_of_a_source_take_the_same_paths_as_the_source(
    source: str, path: str, ends_in_slash: bool
) -> None:
    redirect = understood(source)
    if redirect is None:
        return
    path += "/" if ends_in_slash else ""

    expected = redirect.source.match(path)
    escaped = re.fullmatch(escaped_regexp(redirect), quote(path, safe="/$+(&") + "?q")
    all_escaped = re.fullmatch(escaped_regexp(redirect), quote(path, safe="/").lower())

    assert (re.fullmatch(decoded_regexp(redirect.source), path) is not None) == (expected is not None)
    assert (all_escaped is not None) == (expected is not None)
    if expected is None:
        assert escaped is None
    else:
        assert escaped is not None
        assert escaped.groups() == (*(quote(value, safe="/$+(&") for value in expected), "?q")


@given(st.text("a/", max_size=4), st.sampled_from(["/*", "/a/*", "/*.a"]))
def test_what_a_whole_part_stands_for_never_begins_with_a_slash(text: str, source: str) -> None:
    redirect = understood(source)
    assert redirect is not None

    found = re.fullmatch(escaped_regexp(redirect), "/a" + text)

    assert found is None or not found[1].startswith("/")
    assert (found is not None) == (redirect.source.match("/a" + text) is not None)


@given(st.text("ab&=+;", max_size=4))
def test_what_stands_in_a_query_is_told_apart_by_the_expression_as_by_the_rule(text: str) -> None:
    redirect = understood("/a/:x/b*", "https://a.example/?x=:x&rest=*")
    assert redirect is not None

    plain = re.fullmatch(escaped_regexp(redirect), f"/a/{text}/b{text}")
    escaped = re.fullmatch(escaped_regexp(redirect), f"/a/{quote(text)}/b{quote(text)}")

    assert (plain is not None) == (redirect.match(f"/a/{text}/b{text}") is not None)
    assert (escaped is not None) == bool(text)
