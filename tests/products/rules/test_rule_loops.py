"""Detection of redirect loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.products.rules.destinations import OwnAddresses, Redirect, parse_redirect
from moorage.products.rules.loops import RuleTree, TooManySteps, find_loops
from moorage.products.rules.patterns import RedirectRule

OWN = OwnAddresses(frozenset(["harbor.example"]), frozenset([80, 443]))


def redirects(*pairs: tuple[str, str]) -> list[Redirect]:
    return [parse_redirect(RedirectRule(source, destination, 301)) for source, destination in pairs]


def loops(*pairs: tuple[str, str]) -> dict[int, str]:
    return find_loops(redirects(*pairs), OWN)


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([("/a", "/a")], {0: "/a → /a"}),
        ([("/a", "/a?x=1")], {0: "/a → /a"}),
        ([("/a", "/a#there")], {0: "/a → /a"}),
        ([("/a", "https://harbor.example/a")], {0: "/a → /a"}),
        ([("/a", "/%61")], {0: "/a → /a"}),
        ([("/a", "/b"), ("/b", "/a")], {0: "/a → /b → /a", 1: "/b → /a → /b"}),
        ([("/a", "/b"), ("/b", "/c"), ("/c", "/b")], {0: "/a → /b → /c → /b", 1: "/b → /c → /b", 2: "/c → /b → /c"}),
        ([("/*", "/")], {0: "/part-1 → / → /"}),
        ([("/:lang/*", "/en/*")], {0: "/part-1/part-2 → /en/part-2 → /en/part-2"}),
        ([("/blog/:slug", "/blog/latest")], {0: "/blog/part-1 → /blog/latest → /blog/latest"}),
        ([("/:a/:b", "/:b/:a")], {0: "/part-1/part-2 → /part-2/part-1 → /part-1/part-2"}),
        ([("/x", "/y/1"), ("/y/*", "/x")], {0: "/x → /y/1 → /x", 1: "/y/part-1 → /x → /y/1 → /x"}),
    ],
)
def test_a_circle_is_found_and_shown(pairs: list[tuple[str, str]], found: dict[int, str]) -> None:
    assert loops(*pairs) == {number: f"leads in a circle: {way}" for number, way in found.items()}


@pytest.mark.parametrize("destination", ["/x/*", "/x/*/*", "/x" + "/*" * 16])
def test_a_path_that_only_grows_is_found(destination: str) -> None:
    found = loops(("/*", destination))

    assert found[0].startswith("leads on without an end: /part-1 → /x/part-1")
    assert len(found[0]) < 1000


@pytest.mark.parametrize(
    "pairs",
    [
        [("/a", "/b"), ("/b", "/c"), ("/c", "/d")],
        [("/a", "/a/")],
        [("/blog/*", "/news/*"), ("/news/old/*", "/archive/*")],
        [("/docs/*", "/*")],
        [("/:page/index.html", "/:page")],
        [("/b", "/elsewhere"), ("/*", "https://harbor.example:8000/*")],
        [("/*", "https://other.example/*")],
        # The first rule wins, so the second never matches its own destination.
        [("/b", "https://other.example/"), ("/*", "/b")],
        # Loops only for /b/b; the rule is correct for all other paths.
        [("/:x/b", "/b/:x")],
    ],
)
def test_rules_that_arrive_are_left_alone(pairs: list[tuple[str, str]]) -> None:
    assert loops(*pairs) == {}


def test_a_rule_that_is_never_reached_is_not_blamed() -> None:
    found = loops(("/a", "https://other.example/"), ("/a", "/a"))

    assert found == {}


def test_a_chain_of_a_thousand_rules_that_ends_is_no_circle_and_one_that_returns_is() -> None:
    chain = [(f"/step/{number}", f"/step/{number + 1}") for number in range(999)]

    ends = loops(*chain, ("/step/999", "/done"))
    returns = loops(*chain, ("/step/999", "/step/0"))

    assert ends == {}
    assert returns[0].endswith("/step/4 → … → /step/0")
    assert len(returns) == 20


def test_rules_that_take_too_many_steps_to_follow_are_given_up() -> None:
    rules = redirects(*((f"/:a/:b/s{number}", f"/:b/:a/s{number + 1}") for number in range(100)))

    with pytest.raises(TooManySteps):
        find_loops(rules, OWN, most_steps=1000)


SOURCES = st.lists(
    st.lists(st.sampled_from(["a", "b", ":x", ":y", "*", "a*", ":z.a", "b.a"]), min_size=1, max_size=3, unique=True)
    .map(lambda parts: "/" + "/".join(parts))
    .filter(lambda source: "//" not in source),
    min_size=1,
    max_size=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "b.a", "", "a&a"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


@given(SOURCES, PATHS, st.booleans())
def test_the_tree_finds_the_same_first_rule_as_trying_each_in_turn(
    sources: list[str], path: str, in_query: bool
) -> None:
    rules = redirects(*((source, "/n?" + ("*" if in_query and "*" in source else "")) for source in sources))

    first = next((number for number, rule in enumerate(rules) if rule.match(path) is not None), None)

    assert RuleTree(rules).find(path) == first
