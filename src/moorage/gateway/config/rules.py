"""The header and redirect rules of hosts, as routes of Caddy.

Everything here is made from rules that were taken apart before (`rules.patterns`), because Caddy gives a meaning to
texts that users write: braces are placeholders for its environment and files, `$1` is a capture, and a map that names
one of its own outputs, or has a line twice, makes Caddy refuse the configuration of all hosts.

Redirects are two maps. The first compares the decoded path with plain texts, which costs next to nothing. The second
tries a regular expression for each rule with wildcards, against the path as it was escaped in the request: what they
capture goes into `Location` and must not be decoded on its way. Of the plain ones, those that an earlier rule with
wildcards would have caught are left out, so that still the first rule wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from moorage.gateway.config.static import REDIRECTED
from moorage.products.rules.destinations import STATUSES, Piece, Redirect, parse_redirect
from moorage.products.rules.loops import RuleTree
from moorage.products.rules.patterns import BadPattern, HeaderRule, HostRules, RedirectRule, Source, parse_source
from moorage.products.rules.regexps import UNRESERVED, decoded_regexp, escaped_regexp

LONGEST_PATH = 3_999  # decoded; rules are not compared with a longer one

_Route = dict[str, Any]
# A tab is in no rule and in no address. A name that a rule's text may contain would let that rule stop the gateway.
_PLAIN_TO, _PLAIN_STATUS = "{plain\tto}", "{plain\tstatus}"
_WILD_TO, _WILD_STATUS = "{wild\tto}", "{wild\tstatus}"
_QUERY, _ESCAPES, _LENGTH, _TOO_LONG = "{the\tquery}", "{the\tescapes}", "{the\tlength}", "{too\tlong}"
_NOTHING = "{http.vars.nothing}"  # a variable that nobody sets
_URI, _DECODED_PATH = "{http.request.uri}", "{http.request.uri.path}"
_EVERYWHERE = parse_source("/*")

R = TypeVar("R", HeaderRule, RedirectRule)
T = TypeVar("T")


def all_rule_routes(rules: Mapping[str, HostRules]) -> list[_Route]:
    """Return the routes for the rules of all hosts; a host without any pays for one lookup among the names."""
    hosts = sorted(host for host, its in rules.items() if _routes_of(its))
    if not hosts:
        return []
    routes = [*_PREPARATION, *(route for host in hosts for route in rule_routes(host, rules[host]))]
    return [{"match": [{"host": hosts}], "handle": [_subroute(routes)]}]


def rule_routes(host: str, rules: HostRules) -> list[_Route]:
    """Return the routes for the rules of one host; what no redirect answers goes on to the routes that follow."""
    routes = _routes_of(rules)
    return [{"match": [{"host": [host]}], "handle": [_subroute(routes)]}] if routes else []


@lru_cache(maxsize=1024)  # All is made again whenever any host changes. Nobody changes what is returned here.
def _routes_of(rules: HostRules) -> list[_Route]:
    return [*_header_routes(rules.headers), *_redirect_routes(rules.redirects)]


def _header_routes(rules: Sequence[HeaderRule]) -> list[_Route]:
    """Return a route for each source; of the rules of one name that apply to a path, the first one counts."""
    # From the last to the first: what comes later here replaces what came before it.
    groups: list[tuple[Source, dict[str, HeaderRule]]] = []
    for rule, source in _understood(rules[::-1], lambda rule: parse_source(rule.source)):
        name, at = rule.name.lower(), len(groups)
        # It joins an earlier group of its source, unless it would have to pass a rule of the same name on its way.
        while at > 0 and groups[at - 1][0] != source and name not in groups[at - 1][1]:
            at -= 1
        if at == 0 or groups[at - 1][0] != source:
            groups.append((source, {name: rule}))
        else:
            groups[at - 1][1][name] = rule
    # Each waits until the answer is written, and there the one that began to wait last comes first.
    return [_header_route(source, its.values()) for source, its in reversed(groups)]


def _header_route(source: Source, rules: Iterable[HeaderRule]) -> _Route:
    values = {rule.name: [_without_placeholders(rule.value)] for rule in rules}
    handle = [{"handler": "headers", "response": {"deferred": True, "set": values}}]
    if source == _EVERYWHERE:
        return {"handle": handle}
    # It sees the path as the files are looked up, decoded and without double slashes or dots: `//%61dmin` is `/admin`.
    return {"match": [{"path_regexp": {"pattern": decoded_regexp(source)}}], "handle": handle}


def _redirect_routes(rules: Sequence[RedirectRule]) -> list[_Route]:
    redirects = [redirect for _, redirect in _understood(rules, parse_redirect)]
    plain = [("input", each.source.path(), [_plain_target(each), str(each.status)]) for each in _reached(redirects)]
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


def _reached(redirects: Sequence[Redirect]) -> Iterator[Redirect]:
    """Yield the rules without wildcards that come first for their path."""
    tree = RuleTree(redirects, most_steps=sys.maxsize)
    for number, each in enumerate(redirects):
        if each.source.is_literal and tree.find(each.source.path()) == number:
            yield each


def _plain_target(redirect: Redirect) -> str:
    return _target(redirect, str, _QUERY)


def _wild_target(redirect: Redirect) -> str:
    """Return the destination as a template of Go's regular expressions."""

    def expand(piece: Piece) -> str:
        return f"${{{piece + 1}}}" if isinstance(piece, int) else piece.replace("$", "$$")

    return _target(redirect, expand, f"${{{len(redirect.source.wildcards) + 1}}}")


def _target(redirect: Redirect, write: Callable[[Piece], str], kept_query: str) -> str:
    def written(pieces: Iterable[Piece]) -> str:
        return "".join(write(piece) for piece in pieces)

    query = kept_query if redirect.query is None else "?" + written(redirect.query)
    fragment = "" if redirect.fragment is None else "#" + written(redirect.fragment)
    return redirect.origin + written(redirect.path) + query + fragment


def _answer(to: str, status: str) -> _Route:
    answer = {"handler": "static_response", "status_code": status, "headers": {"Location": [to]}}
    return {"match": [_has(status, *map(str, STATUSES))], "handle": [REDIRECTED, answer], "terminal": True}


def _map(source: str, destinations: list[str], lines: Iterable[tuple[str, str, list[str]]]) -> _Route:
    """Return a map. A line is whether its text is an `input` or an `input_regexp`, the text, and the outputs."""
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


def _subroute(routes: list[_Route]) -> dict[str, Any]:
    return {"handler": "subroute", "routes": routes}


def _refusal_of_long_paths() -> list[_Route]:
    """Refuse a path so long that comparing it with a thousand rules would keep the gateway from its other work."""
    thousands = ".{1000}" * ((LONGEST_PATH + 1) // 1000)
    too_long = {"handler": "static_response", "status_code": 414, "body": "The path is too long"}
    refuse = [
        _map(_DECODED_PATH, [_TOO_LONG], [("input_regexp", f"(?s)^{thousands}", ["yes"])]),
        {"match": [_has(_TOO_LONG, "yes")], "handle": [REDIRECTED, too_long], "terminal": True},
    ]
    # Counting to hundreds is fast and almost always enough; counting to thousands is not.
    return [
        _map(_DECODED_PATH, [_LENGTH], [("input_regexp", "(?s)^.{900}", ["long"])]),
        {"match": [_has(_LENGTH, "long")], "handle": [_subroute(refuse)]},
    ]


def _resolution_of_plain_escapes() -> list[_Route]:
    """Write `/%61` as `/a`, the same address. Other escapes stay as they are, so nothing is ever decoded twice."""
    escapes = {f"%{ord(char):{kind}}": char for char in UNRESERVED for kind in ("02x", "02X")}
    found = "^[^?]*%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
    substrings = [{"find": escape, "replace": char} for escape, char in escapes.items()]
    return [
        _map(_URI, [_ESCAPES], [("input_regexp", found, ["plain"])]),
        {"match": [_has(_ESCAPES, "plain")], "handle": [{"handler": "rewrite", "uri_substring": substrings}]},
    ]


_PREPARATION = [*_refusal_of_long_paths(), *_resolution_of_plain_escapes()]


def _without_placeholders(text: str) -> str:
    """Return a text that Caddy takes for itself."""
    if "{" not in text and "}" not in text:
        return text
    # Not every version looks for backslashes in a text that has no opening brace, so it gets one: of nothing.
    return _NOTHING + text.replace("{", r"\{").replace("}", r"\}")


def _understood(rules: Iterable[R], parse: Callable[[R], T]) -> list[tuple[R, T]]:
    """Leave out what an older version took and this one does not, rather than stop the gateway of everybody."""
    found = []
    for rule in rules:
        try:
            found.append((rule, parse(rule)))
        except BadPattern:
            continue
    return found
