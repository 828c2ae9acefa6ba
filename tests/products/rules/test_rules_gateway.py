"""Rules on a real Caddy, also with requests that no browser sends."""

from __future__ import annotations

import itertools
import json
import string
import time
from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.products.rules.caddy_server import SECRET, RuleServer

from moorage.gateway.config.rules import LONGEST_PATH, all_rule_routes, rule_routes
from moorage.products.rules.destinations import STATUSES
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule


def test_each_status_is_sent_with_its_location_and_no_body(gateway: RuleServer) -> None:
    host = gateway.serve(*(RedirectRule(f"/{status}", f"/new/{status}", status) for status in STATUSES))

    replies = [gateway.fetch(host, f"/{status}") for status in STATUSES]

    assert [reply.status for reply in replies] == list(STATUSES)
    assert [reply.location for reply in replies] == [f"/new/{status}" for status in STATUSES]
    assert [reply.body for reply in replies] == [b""] * len(STATUSES)


RULES = (
    RedirectRule("/old", "/new", 301),
    RedirectRule("/with-query", "/new?own=1", 301),
    RedirectRule("/with-fragment", "/new#there", 301),
    RedirectRule("/away", "https://other.example", 301),
    RedirectRule("/café (1)", "/tea & $1 {x}", 301),
    RedirectRule("/page.html", "/a-file-is-no-obstacle", 301),
    RedirectRule("/blog/first", "/before-the-pattern", 301),
    RedirectRule("/blog/:slug", "/posts/:slug", 301),
    RedirectRule("/blog/second", "/after-the-pattern", 301),
    RedirectRule("/old", "/a-second-rule-of-the-same-source", 301),
    RedirectRule("/blog/:other", "/a-second-pattern-of-the-same-meaning/:other", 301),
    RedirectRule("/:year/:month/:slug.html", "/:slug?from=:year-:month#:slug", 301),
    RedirectRule("/docs/*", "/guide/*", 301),
    RedirectRule("/api/*/v1/*", "https://api.example/:splat?version=*", 301),
    RedirectRule("/pre*", "/post*#$1", 301),
    RedirectRule("/x(y)$/:z", "/$1${z}/:z", 301),
)


@pytest.fixture(scope="module")
def site(gateway: RuleServer) -> str:
    return gateway.serve(*RULES)


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/old", "/new"),
        ("/%6Fl%64", "/new"),
        ("/old?a=1&b=%20", "/new?a=1&b=%20"),
        ("/old?", "/new?"),
        ("/old/", None),
        ("/OLD", None),
        ("/with-query?a=1", "/new?own=1"),
        ("/with-fragment?a=1", "/new?a=1#there"),
        ("/away?a=1", "https://other.example/?a=1"),
        ("/caf%C3%A9%20(1)", "/tea%20&%20$1%20%7Bx%7D"),
        ("/caf%c3%a9%20%281%29", "/tea%20&%20$1%20%7Bx%7D"),
        ("/page.html", "/a-file-is-no-obstacle"),
        ("/blog/first", "/before-the-pattern"),
        ("/blog/second", "/posts/second"),
        ("/%62log/th%69rd?a=1", "/posts/third?a=1"),
        ("/blog/a%2Fb%3F%23", "/posts/a%2Fb%3F%23"),
        ("/blog/a/b", None),
        ("/2026/01/hello.html?a=1", "/hello?from=2026-01#hello"),
        ("/2026&x=1/01/hello.html", None),
        ("/2026%26x/01/hello.html", "/hello?from=2026%26x-01#hello"),
        ("/docs/", "/guide/"),
        ("/docs/a/b/?c", "/guide/a/b/?c"),
        ("/docs", None),
        ("/api/x/v1/y/z", "https://api.example/y/z?version=x"),
        ("/prefix", "/postfix#$1"),
        ("/x(y)$/q", "/$1$%7Bz%7D/q"),
        ("/x%28y%29%24/q", "/$1$%7Bz%7D/q"),
        ("/nothing", None),
    ],
)
def test_the_first_rule_that_matches_answers(gateway: RuleServer, site: str, target: str, location: str | None) -> None:
    assert gateway.locate(site, target) == location


def test_other_hosts_are_left_alone(gateway: RuleServer, site: str) -> None:
    assert gateway.locate("other.localhost", "/old") is None
    assert gateway.locate(f"{site}:8081", "/old") == "/new"


OPEN = (
    RedirectRule("/part/:x", "/:x", 302),
    RedirectRule("/rest/*", "/*", 302),
    RedirectRule("/two/:x/*", "/:x/*", 302),
    RedirectRule("/away/*", "https://good.example/*", 302),
    RedirectRule("/asked/:x", "/go?to=:x", 302),
    RedirectRule("/joined*", "/new*", 302),
)
ATTACKS = [
    "/evil.example",
    "//evil.example",
    "///evil.example",
    "%2Fevil.example",
    "%2F%2Fevil.example",
    "/%2F/evil.example",
    "\\evil.example",
    "/\\evil.example",
    "%5Cevil.example",
    "%5c%5cevil.example",
    "/%5cevil.example",
    "%09//evil.example",
    "/%09/evil.example",
    "..//evil.example",
    "../..//evil.example",
    "%2e%2e//evil.example",
    ".//evil.example",
    "@evil.example",
    ".evil.example",
    ":80@evil.example/",
    "javascript:alert(1)",
    "https:evil.example",
    "https://evil.example/",
    "https:%2F%2Fevil.example",
    "%0d%0aSet-Cookie:%20a=b",
    "%0D%0A%0D%0A<script>",
    "%E2%80%A8x",
    "{env.SECRET}",
    "%7Benv.SECRET%7D",
    "${1}",
    "a&b=c",
    "%00",
    "%ff%fe",
]


@pytest.fixture(scope="module")
def open_site(gateway: RuleServer) -> str:
    return gateway.serve(*OPEN)


@pytest.mark.parametrize("start", ["/part/", "/rest/", "/two/", "/two/a/", "/away/", "/asked/", "/joined"])
def test_no_visitor_chooses_another_origin_or_adds_a_header(gateway: RuleServer, open_site: str, start: str) -> None:
    for attack in ATTACKS:
        reply = gateway.fetch(open_site, start + attack)

        location = reply.headers.get("location", "/")
        # Browsers drop tabs and line breaks, and read a backslash as a slash.
        seen = urlsplit(urljoin(f"https://{open_site}/x/y", location.translate({9: "", 10: "", 13: "", 92: "/"})))
        hostname = "good.example" if location.startswith("https") else open_site
        assert (seen.scheme, seen.hostname) == ("https", hostname), attack
        assert set(location) <= set(string.ascii_letters + string.digits + "-._~:/?#[]@!$&'()*+,;=%"), attack
        assert not location.startswith("//"), attack
        assert "set-cookie" not in reply.headers, attack
        assert SECRET not in location, attack


@given(st.text("/\\.%25Fe:@?#a{}", max_size=8))
def test_no_path_at_all_leads_to_another_origin(gateway: RuleServer, open_site: str, text: str) -> None:
    for start in ("/part/", "/rest/", "/two/"):
        location = gateway.fetch(open_site, start + text).headers.get("location", "/")

        assert urlsplit(urljoin(f"https://{open_site}/", location)).hostname == open_site


PLACEHOLDERS = [
    "{env.SECRET}",
    "{$SECRET}",
    "{file./etc/passwd}",
    "{http.request.header.Authorization}",
    "{http.request.host}",
    "\\{env.SECRET\\}",
    "\\\\{env.SECRET}",
    "{{env.SECRET}}",
    "{env.SECRET",
    "env.SECRET}",
    "\\}{env.SECRET}",
    "}{",
    "{}",
    "\\",
    "a\\",
]


def test_braces_in_header_values_mean_themselves(gateway: RuleServer) -> None:
    values = [*PLACEHOLDERS, f"{{file.{gateway.folder}/secret.txt}}"]
    host = gateway.serve(*(HeaderRule("/*", f"X-{number}", value) for number, value in enumerate(values)))

    reply = gateway.fetch(host, "/", headers="Authorization: Basic c2VjcmV0\r\n")

    assert [reply.headers[f"x-{number}"] for number in range(len(values))] == values


def test_no_way_to_write_braces_and_backslashes_means_anything_else(gateway: RuleServer) -> None:
    pieces = ["{", "}", "\\", "env.SECRET"]
    values = ["".join(value) for length in range(1, 5) for value in itertools.product(pieces, repeat=length)]
    host = gateway.serve(*(HeaderRule("/*", f"X-{number}", value) for number, value in enumerate(values)))

    reply = gateway.fetch(host, "/")

    assert [reply.headers[f"x-{number}"] for number in range(len(values))] == values


def test_braces_in_sources_and_destinations_mean_themselves(gateway: RuleServer) -> None:
    host = gateway.serve(
        RedirectRule("/plain/{env.SECRET}", "/{env.SECRET}?{http.request.host}#{file.x}", 301),
        RedirectRule("/wild/{env.SECRET}/*", "https://a.example/{env.SECRET}/*", 301),
        HeaderRule("/{env.SECRET}", "X-Found", "yes"),
    )

    plain = gateway.locate(host, "/plain/%7Benv.SECRET%7D")
    wild = gateway.locate(host, "/wild/{env.SECRET}/x?{env.SECRET}")
    header = gateway.fetch(host, "/{env.SECRET}").headers.get("x-found")

    assert plain == "/%7Benv.SECRET%7D?%7Bhttp.request.host%7D#%7Bfile.x%7D"
    assert wild == "https://a.example/%7Benv.SECRET%7D/x?{env.SECRET}"
    assert header == "yes"


def test_every_matching_header_rule_applies_and_the_first_of_a_name_wins(gateway: RuleServer) -> None:
    host = gateway.serve(
        HeaderRule("/*", "X-All", "first"),
        HeaderRule("/a/c", "X-Order", "4"),
        HeaderRule("/a/*", "X-Other", "joins the group after it"),
        HeaderRule("/a/b", "X-Order", "3"),
        HeaderRule("/a/:x", "X-One", "one"),
        HeaderRule("/a/*", "x-order", "2"),
        HeaderRule("/*", "X-Order", "1"),
        HeaderRule("/*", "X-All", "last"),
    )

    orders = {path: gateway.fetch(host, path).headers.get("x-order") for path in ("/", "/a", "/a/b", "/a/c", "/a/d")}
    deep = gateway.fetch(host, "/a/b").headers

    assert orders == {"/": "1", "/a": "1", "/a/b": "3", "/a/c": "4", "/a/d": "2"}
    assert (deep["x-all"], deep["x-one"], deep["x-other"]) == ("first", "one", "joins the group after it")


def test_a_header_rule_replaces_what_the_file_server_and_the_app_say(gateway: RuleServer) -> None:
    host = gateway.serve(
        HeaderRule("/*", "Content-Type", "text/x-own"),
        HeaderRule("/*", "ETag", '"own"'),
        HeaderRule("/app", "X-Said", "rule"),
        HeaderRule("/gone", "X-Gone", "yes"),
        RedirectRule("/old", "/new", 301),
    )

    page, app = gateway.fetch(host, "/page.html"), gateway.fetch(host, "/app")
    gone, old = gateway.fetch(host, "/gone"), gateway.fetch(host, "/old")

    assert (page.body, page.headers["content-type"], page.headers["etag"]) == (b"a page", "text/x-own", '"own"')
    assert (app.body, app.headers["x-said"]) == (b"the app", "rule")
    assert (gone.status, gone.headers["x-gone"]) == (404, "yes")
    assert (old.status, old.location, old.headers["etag"]) == (301, "/new", '"own"')


@pytest.mark.parametrize(
    "target", ["/admin/x", "/%61dmin/x", "//admin/x", "/a/../admin/x", "/a/%2e%2e/admin/x", "/./admin//x"]
)
def test_a_header_rule_is_not_evaded_by_writing_the_path_otherwise(gateway: RuleServer, target: str) -> None:
    gateway.hosts["admin.localhost"] = HostRules(headers=(HeaderRule("/admin/*", "X-Frame-Options", "DENY"),))
    gateway.load()

    assert gateway.fetch("admin.localhost", target).headers["x-frame-options"] == "DENY"


def test_a_header_rule_tells_upper_from_lower_case_and_takes_endings(gateway: RuleServer) -> None:
    host = gateway.serve(HeaderRule("/Assets/*.css", "X-Found", "yes"))

    found = [gateway.fetch(host, path).headers.get("x-found") for path in ("/Assets/a/b.css", "/assets/a.css")]

    assert found == ["yes", None]


def test_a_thousand_plain_rules_make_no_regular_expression_of_their_own() -> None:
    rules = tuple(RedirectRule(f"/old/{number}", f"/new/{number}", 301) for number in range(1000))

    (route,) = rule_routes(["many.localhost"], HostRules(rules))

    assert str(route).count("input_regexp") == 1  # for the kept query
    assert str(route).count("'input'") == 1000


def test_a_thousand_rules_of_each_kind_are_served_in_order(gateway: RuleServer) -> None:
    plain = [RedirectRule(f"/old/{number}", f"/new/{number}", 301) for number in range(500)]
    wild = [RedirectRule(f"/old/{number}/*", f"/wild/{number}/*", 301) for number in range(500)]
    headers = [HeaderRule(f"/old/{number}/*", "X-Number", str(number)) for number in range(1000)]

    host = gateway.serve(*plain, *wild, *headers)

    assert gateway.locate(host, "/old/499") == "/new/499"
    assert gateway.locate(host, "/old/499/x") == "/wild/499/x"
    assert gateway.fetch(host, "/old/999/x").headers["x-number"] == "999"


def test_the_names_that_the_gateway_uses_itself_can_stand_in_rules(gateway: RuleServer) -> None:
    # Caddy refuses a map with an output that contains the name of one of its placeholders, and then serves nothing new.
    names = ["plain to", "plain%09to", "wild to", "the query", "http.request.uri", "http.request.uri.path"]
    sources = [name.replace("%09", "%20") for name in names]

    host = gateway.serve(
        *(RedirectRule(f"/{number}/{name}", f"/n/{names[number]}", 301) for number, name in enumerate(sources))
    )

    assert gateway.locate(host, "/1/plain%20to") == "/n/plain%09to"


def test_a_path_too_long_to_compare_is_refused_and_a_shorter_one_is_not(gateway: RuleServer) -> None:
    host = gateway.serve(RedirectRule("/old/*", "/new/*", 301))
    longest = "/old/" + "a" * (LONGEST_PATH - 5)

    taken, refused = gateway.fetch(host, longest), gateway.fetch(host, longest + "a")
    dotted = gateway.fetch(host, "/." * 10_000)
    elsewhere = gateway.fetch("other.localhost", longest + "a")

    assert (taken.status, taken.location) == (301, "/new/" + "a" * (LONGEST_PATH - 5))
    assert (refused.status, dotted.status, elsewhere.status) == (414, 414, 404)


def test_a_rule_that_cannot_be_understood_is_left_out_and_the_others_are_served(gateway: RuleServer) -> None:
    host = gateway.serve(
        RedirectRule("no path", "/a", 301), RedirectRule("/b", "javascript:x", 301), RedirectRule("/c", "/d", 301)
    )

    assert (gateway.locate(host, "/b"), gateway.locate(host, "/c")) == (None, "/d")


def test_hosts_with_the_same_rules_share_one_copy_of_them(gateway: RuleServer) -> None:
    shared = HostRules((RedirectRule("/once", "/new", 301),), (HeaderRule("/*", "X-Rule", "shared"),))
    names = [f"shop-{number}.localhost" for number in range(30)]
    gateway.hosts |= dict.fromkeys(names, shared) | {"other.localhost": HostRules(headers=shared.headers)}
    gateway.load()

    routes = json.dumps(all_rule_routes(gateway.hosts))

    assert routes.count('"/once"') == 1
    assert [gateway.locate(name, "/once") for name in (names[0], names[-1])] == ["/new", "/new"]
    assert gateway.locate("other.localhost", "/once") is None
    assert gateway.fetch("other.localhost", "/page.html").headers["x-rule"] == "shared"
    for name in (*names, "other.localhost"):
        del gateway.hosts[name]


def test_header_rules_join_the_latest_group_of_their_source_only() -> None:
    rules = (
        HeaderRule("/a", "X-One", "first"),
        HeaderRule("/*", "X-One", "second"),
        HeaderRule("/a", "X-Two", "third"),
        HeaderRule("/*", "X-Two", "fourth"),
        HeaderRule("/a", "x-one", "fifth"),
    )

    (route,) = rule_routes(["a.localhost"], HostRules(headers=rules))

    sets = [each["handle"][0]["response"]["set"] for each in route["handle"][0]["routes"]]
    assert sets == [
        {"X-One": ["first"], "X-Two": ["third"]},
        {"X-One": ["second"], "X-Two": ["fourth"]},
        {"x-one": ["fifth"]},
    ]


def test_many_header_rules_take_time_in_proportion_to_their_number() -> None:
    rules = tuple(HeaderRule(f"/{number}", f"X-{number}", "x") for number in range(10_000))

    started = time.process_time()
    rule_routes(["many.localhost"], HostRules(headers=rules))

    assert time.process_time() - started < 2  # Comparing each pair of rules takes longer than ten seconds.


def test_without_rules_there_are_no_routes() -> None:
    assert rule_routes(["a.localhost"], HostRules()) == []
    assert all_rule_routes({"a.localhost": HostRules()}) == []
    assert all_rule_routes({}) == []
