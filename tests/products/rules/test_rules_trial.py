"""What rules do with a path, and that the stored ones and those of the editor are told apart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.rules.test_rules_api import REDIRECTS, Team, team  # noqa: F401 - a fixture

from moorage.products.rules.destinations import OwnAddresses
from moorage.products.rules.patterns import HeaderRule, RedirectRule
from moorage.products.rules.trial import Trial, try_path

OWN = OwnAddresses(frozenset({"harbor.localhost"}), frozenset({80, 443}))


def follow(path: str, *rules: tuple[str, str, int], headers: tuple[HeaderRule, ...] = ()) -> Trial:
    return try_path([RedirectRule(*rule) for rule in rules], headers, OWN, path)


@pytest.mark.parametrize(
    ("path", "rule", "location"),
    [
        ("/old", ("/old", "/new", 301), "/new"),
        ("/old?a=1", ("/old", "/new", 301), "/new?a=1"),
        ("/old?a=1", ("/old", "/new?b=2", 301), "/new?b=2"),
        ("/blog/caf%C3%A9", ("/blog/:slug", "/posts/:slug#top", 302), "/posts/caf%C3%A9#top"),
        ("/docs/a/b", ("/docs/*", "https://docs.example.com/*", 308), "https://docs.example.com/a/b"),
        ("/s/one", ("/s/:word", "/find?q=:word", 302), "/find?q=one"),
    ],
)
def test_a_matching_rule_gives_the_location(path: str, rule: tuple[str, str, int], location: str) -> None:
    assert [hop.location for hop in follow(path, rule).hops] == [location]


def test_redirects_are_followed_within_the_site() -> None:
    trial = follow(
        "/a",
        ("/a", "/b", 301),
        ("/b", "http://harbor.localhost/c", 302),
        ("/c", "https://elsewhere.example.com/", 302),
        ("/c", "/never", 302),
    )

    assert [hop.number for hop in trial.hops] == [0, 1, 2]
    assert (trial.final, trial.leaves_site) == ("https://elsewhere.example.com/", True)


def test_headers_are_those_of_the_last_path_and_the_first_rule_wins() -> None:
    headers = (HeaderRule("/old", "X-A", "no"), HeaderRule("/*", "X-B", "first"), HeaderRule("/new", "x-b", "second"))

    trial = follow("/old", ("/old", "/new", 301), headers=headers)

    assert [(number, rule.value) for number, rule in trial.headers] == [(1, "first")]
    assert (trial.final, trial.leaves_site) == ("/new", False)


@pytest.mark.anyio
async def test_viewers_test_stored_rules_and_rules_of_the_editor(team: Team) -> None:  # noqa: F811
    await team.put_headers(("/*", "X-Frame-Options", "DENY"))
    await team.member.put(REDIRECTS, json={"redirects": [{"source": "/old", "destination": "/new", "status": 301}]})
    edited = [{"source": "/old", "destination": "https://example.com/", "status": 302}]

    stored = await team.viewer.post(f"{REDIRECTS}/test", json={"path": "/old?x=1"})
    tried = await team.viewer.post(f"{REDIRECTS}/test", json={"path": "/old", "redirects": edited, "headers": []})
    nothing = await team.viewer.post(f"{REDIRECTS}/test", json={"path": "/other"})

    assert stored.data == {
        "path": "/old?x=1",
        "redirects": [
            {"index": 0, "source": "/old", "destination": "/new", "status": 301, "location": "/new?x=1"},
        ],
        "final": "/new?x=1",
        "leavesSite": False,
        "headers": [{"index": 0, "name": "X-Frame-Options", "value": "DENY"}],
    }
    assert (tried.data["final"], tried.data["leavesSite"], tried.data["headers"]) == ("https://example.com/", True, [])
    assert (nothing.data["redirects"], nothing.data["final"]) == ([], "/other")
    assert (await team.member.get(REDIRECTS)).data[0]["destination"] == "/new"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"path": "old"}, "path"),
        ({"path": ""}, "path"),
        ({"path": "/a", "redirects": [{"source": "a", "destination": "/b", "status": 301}]}, "redirects[0].source"),
        (
            {"path": "/a", "redirects": [{"source": "/a", "destination": "/a", "status": 1}]},
            "redirects[0].status",
        ),
        ({"path": "/a", "headers": [{"source": "/", "name": "Host", "value": "x"}]}, "headers[0].name"),
    ],
)
async def test_invalid_rules_are_named(team: Team, body: dict[str, Any], field: str) -> None:  # noqa: F811
    reply = await team.viewer.post(f"{REDIRECTS}/test", json=body)

    assert (reply.status, list(reply.error["fields"])) == (400, [field])
