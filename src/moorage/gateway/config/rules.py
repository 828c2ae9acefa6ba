"""Caddy routes for the header and redirect rules of hosts.

The routes are made from parsed rules (`rules.patterns`), because Caddy interprets texts that users write: braces are
placeholders for its environment and files, `$1` is a capture, and a map that contains one of its own outputs, or the
same line twice, makes Caddy reject the configuration of all hosts.

Redirects are two maps. The first compares the decoded path with literal paths, which costs almost nothing. The second
tries a regular expression for each rule with wildcards, on the escaped path of the request: the captures go into
`Location` and must not be decoded. A literal rule after a wildcard rule that matches the same path is left out, so that
the first rule still wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from moorage.gateway.config.names import host_is
from moorage.gateway.config.pages import Route, subroute
from moorage.gateway.config.static import REDIRECTED
from moorage.products.rules.destinations import STATUSES, Piece, Redirect, parse_redirect
from moorage.products.rules.loops import RuleTree
from moorage.products.rules.patterns import BadPattern, HeaderRule, HostRules, RedirectRule, Source, parse_source
from moorage.products.rules.regexps import UNRESERVED, decoded_regexp, escaped_regexp

LONGEST_PATH = 3_999  # decoded; a longer path is refused

# No rule and no address contains a tab. A name that may occur in a rule's text would let that rule stop the gateway.
_PLAIN_TO, _PLAIN_STATUS = "{plain\tto}", "{plain\tstatus}"
_WILD_TO, _WILD_STATUS = "{wild\tto}", "{wild\tstatus}"
_QUERY, _ESCAPES, _LENGTH, _TOO_LONG = "{the\tquery}", "{the\tescapes}", "{the\tlength}", "{too\tlong}"
_NOTHING = "{http.vars.nothing}"  # a variable that is never set
_URI, _DECODED_PATH = "{http.request.uri}", "{http.request.uri.path}"
_EVERYWHERE = parse_source("/*")

R = TypeVar("R", HeaderRule, RedirectRule)
T = TypeVar("T")


def all_rule_routes(rules: Mapping[str, HostRules]) -> list[Route]:
    """Return the rule routes of all hosts; other hosts pay for one host matcher."""
    hosts = [host for host, host_rules in rules.items() if _routes_of(host_rules)]
    if not hosts:
        return []
    groups = hosts_by_rules({host: rules[host] for host in hosts})
    routes = [*_PREPARATION, *(route for group in groups for route in rule_routes(group, rules[group[0]]))]
    return [{"match": [host_is(hosts)], "handle": [subroute(routes)]}]


def rule_routes(hosts: Sequence[str], rules: HostRules) -> list[Route]:
    """Return the rule routes of hosts with the same rules; without a redirect, later routes answer."""
    routes = _routes_of(rules)
    return [{"match": [host_is(hosts)], "handle": [subroute(routes)]}] if routes else []


def hosts_by_rules(rules: Mapping[str, HostRules]) -> list[list[str]]:
    """Return the hosts in groups that share one object of rules, such as the hosts of a project."""
    groups: dict[int, list[str]] = {}
    for host in sorted(rules):
        groups.setdefault(id(rules[host]), []).append(host)
    return list(groups.values())


@lru_cache(maxsize=1024)  # All routes are rebuilt whenever any host changes. Callers must not modify the result.
def _routes_of(rules: HostRules) -> list[Route]:
    return [*_header_routes(rules.headers), *_redirect_routes(rules.redirects)]


def _header_routes(rules: Sequence[HeaderRule]) -> list[Route]:
    """Return a route per source; of several rules for one header, the first applies."""
    # From the last to the first: a later route here replaces the header of an earlier one.
    groups: list[tuple[Source, dict[str, HeaderRule]]] = []
    latest_of_source: dict[Source, int] = {}  # place of the latest group
    latest_with_name: dict[str, int] = {}
    for rule, source in _parsed(rules[::-1], lambda rule: parse_source(rule.source)):
        name, at = rule.name.lower(), latest_of_source.get(source, -1)
        # Joins the latest group of its source, unless a later group has a rule for the same header.
        if at < 0 or at < latest_with_name.get(name, -1):
            at = latest_of_source[source] = len(groups)
            groups.append((source, {}))
        groups[at][1][name] = rule
        latest_with_name[name] = at
    # Deferred handlers run in reverse order.
    return [_header_route(source, by_name.values()) for source, by_name in reversed(groups)]


def _header_route(source: Source, rules: Iterable[HeaderRule]) -> Route:
    values = {rule.name: [_without_placeholders(rule.value)] for rule in rules}
    handle = [{"handler": "headers", "response": {"deferred": True, "set": values}}]
    if source == _EVERYWHERE:
        return {"handle": handle}
    # The matcher sees the path as the file server does, decoded and without double slashes or dots: `//%61dmin` is
    # `/admin`.
    return {"match": [{"path_regexp": {"pattern": decoded_regexp(source)}}], "handle": handle}


def _redirect_routes(rules: Sequence[RedirectRule]) -> list[Route]:
    redirects = [redirect for _, redirect in _parsed(rules, parse_redirect)]
    plain = [("input", each.source.path(), [_plain_target(each), str(each.status)]) for each in _reachable(redirects)]
    wild: dict[str, list[str]] = {}
    for each in redirects:
        if not each.source.is_literal:
            wild.setdefault(escaped_regexp(each), [_wild_target(each), str(each.status)])
    routes = []
    if plain:
        routes += [
            _map(_URI, [_QUERY], [("input_regexp", r"(?s)^[^?]*(\?.*)$", ["${1}"])]),
            _map(_DECODED_PATH, [_PLAIN_TO, _PLAIN_STATUS], plain),
            _answer(_PLAIN_TO, _PLAIN_STATUS),
        ]
    if wild:
        lines = [("input_regexp", regexp, outputs) for regexp, outputs in wild.items()]
        routes += [_map(_URI, [_WILD_TO, _WILD_STATUS], lines), _answer(_WILD_TO, _WILD_STATUS)]
    return routes


def _reachable(redirects: Sequence[Redirect]) -> Iterator[Redirect]:
    """Yield the literal rules that are the first match for their path."""
    tree = RuleTree(redirects, most_steps=sys.maxsize)
    for number, each in enumerate(redirects):
        if each.source.is_literal and tree.find(each.source.path()) == number:
            yield each


def _plain_target(redirect: Redirect) -> str:
    return _target(redirect, str, _QUERY)


def _wild_target(redirect: Redirect) -> str:
    """Return the destination as a replacement template of a Go regular expression."""

    def expand(piece: Piece) -> str:
        return f"${{{piece + 1}}}" if isinstance(piece, int) else piece.replace("$", "$$")

    return _target(redirect, expand, f"${{{len(redirect.source.wildcards) + 1}}}")


def _target(redirect: Redirect, write: Callable[[Piece], str], kept_query: str) -> str:
    def written(pieces: Iterable[Piece]) -> str:
        return "".join(write(piece) for piece in pieces)

    query = kept_query if redirect.query is None else "?" + written(redirect.query)
    fragment = "" if redirect.fragment is None else "#" + written(redirect.fragment)
    return redirect.origin + written(redirect.path) + query + fragment


def _answer(to: str, status: str) -> Route:
    answer = {"handler": "static_response", "status_code": status, "headers": {"Location": [to]}}
    return {"match": [_has(status, *map(str, STATUSES))], "handle": [REDIRECTED, answer], "terminal": True}


def _map(source: str, destinations: list[str], lines: Iterable[tuple[str, str, list[str]]]) -> Route:
    """Return a map; a line is `input` or `input_regexp`, its text and its outputs."""
    handler = {
        "handler": "map",
        "source": source,
        "destinations": destinations,
        "mappings": [{kind: text, "outputs": outputs} for kind, text, outputs in lines],
        "defaults": [""] * len(destinations),
    }
    return {"handle": [handler]}


def _has(placeholder: str, *values: str) -> dict[str, Any]:
    return {"vars": {placeholder: list(values)}}


def _refusal_of_long_paths() -> list[Route]:
    """Refuse long paths: matching them with a thousand rules would block the gateway."""
    thousands = ".{1000}" * ((LONGEST_PATH + 1) // 1000)
    too_long = {"handler": "error", "status_code": 414}  # The error routes of the server have the page.
    refuse = [
        _map(_DECODED_PATH, [_TOO_LONG], [("input_regexp", f"(?s)^{thousands}", ["yes"])]),
        {"match": [_has(_TOO_LONG, "yes")], "handle": [too_long], "terminal": True},
    ]
    # A count of hundreds is fast and almost always decides; a count of thousands is slow.
    return [
        _map(_DECODED_PATH, [_LENGTH], [("input_regexp", "(?s)^.{900}", ["long"])]),
        {"match": [_has(_LENGTH, "long")], "handle": [subroute(refuse)]},
    ]


def _resolution_of_plain_escapes() -> list[Route]:
    """Rewrite `/%61` to `/a`, the same address; other escapes are never decoded twice."""
    escapes = {f"%{ord(char):{kind}}": char for char in UNRESERVED for kind in ("02x", "02X")}
    pattern = "^[^?]*%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
    substrings = [{"find": escape, "replace": char} for escape, char in escapes.items()]
    return [
        _map(_URI, [_ESCAPES], [("input_regexp", pattern, ["plain"])]),
        {"match": [_has(_ESCAPES, "plain")], "handle": [{"handler": "rewrite", "uri_substring": substrings}]},
    ]


_PREPARATION = [*_refusal_of_long_paths(), *_resolution_of_plain_escapes()]


def _without_placeholders(text: str) -> str:
    """Return the text with braces escaped for Caddy."""
    if "{" not in text and "}" not in text:
        return text
    # Some versions look for backslashes only in a text with a placeholder, so the text gets an empty one.
    return _NOTHING + text.replace("{", r"\{").replace("}", r"\}")


def _parsed(rules: Iterable[R], parse: Callable[[R], T]) -> list[tuple[R, T]]:
    """Skip rules that only an older version accepts: one must not stop the gateway."""
    parsed = []
    for rule in rules:
        try:
            parsed.append((rule, parse(rule)))
        except BadPattern:
            continue
    return parsed
