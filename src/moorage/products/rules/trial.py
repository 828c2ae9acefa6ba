"""The effect of a project's rules on a path, for the editor of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from urllib.parse import quote, unquote

from moorage.core.kit.records import dataclass
from moorage.errors import bad_field
from moorage.products.rules.destinations import OwnAddresses, Piece, Redirect, parse_redirect
from moorage.products.rules.patterns import HeaderRule, RedirectRule, parse_source

MAX_HOPS = 20  # Browsers give up after about as many.
_IN_PATH = "/-._~!$&'()*+,;=:@"


@dataclass(frozen=True, slots=True)
class Hop:
    """One redirect of the chain."""

    number: int  # of the rule, from 0
    rule: RedirectRule
    location: str


@dataclass(slots=True)
class Trial:
    hops: list[Hop] = field(default_factory=list)
    final: str = ""  # path, or URL of another site
    leaves_site: bool = False
    headers: list[tuple[int, HeaderRule]] = field(default_factory=list)  # of the final answer


def try_path(redirects: Sequence[RedirectRule], headers: Sequence[HeaderRule], own: OwnAddresses, target: str) -> Trial:
    """Follow the redirects of a path with its query, and find the headers of the last answer. The rules are valid."""
    parsed = [parse_redirect(rule) for rule in redirects]
    encoded, has_query, query = target.partition("#")[0].partition("?")
    path, trial = _decoded(encoded), Trial(final=target)
    while len(trial.hops) < MAX_HOPS:
        match = _first(parsed, path)
        if match is None:
            break
        number, values = match
        redirect = parsed[number]
        location = _location(redirect, values, f"?{query}" if has_query else "")
        trial.hops.append(Hop(number, redirects[number], location))
        trial.final = location
        following = redirect.leads_to(values, own)
        if following is None:
            trial.leaves_site = True
            return trial
        path, query = following, location.partition("?")[2].partition("#")[0]
        has_query = query
    trial.headers = _headers(headers, path)
    return trial


def _decoded(path: str) -> str:
    if not path.startswith("/"):
        raise bad_field("path", "should be a path that starts with /")
    return unquote(path)


def _first(redirects: Sequence[Redirect], path: str) -> tuple[int, tuple[str, ...]] | None:
    for number, redirect in enumerate(redirects):
        values = redirect.match(path)
        if values is not None:
            return number, values
    return None


def _location(redirect: Redirect, values: tuple[str, ...], query: str) -> str:
    def joined(pieces: tuple[Piece, ...]) -> str:
        return "".join(quote(values[each], safe=_IN_PATH) if isinstance(each, int) else each for each in pieces)

    own_query = query if redirect.query is None else f"?{joined(redirect.query)}"
    fragment = f"#{joined(redirect.fragment)}" if redirect.fragment is not None else ""
    return f"{redirect.origin}{joined(redirect.path)}{own_query}{fragment}"


def _headers(rules: Sequence[HeaderRule], path: str) -> list[tuple[int, HeaderRule]]:
    """Return the rules that apply; among rules for the same header the first one wins."""
    winners: dict[str, tuple[int, HeaderRule]] = {}
    for number, rule in enumerate(rules):
        if parse_source(rule.source).match(path) is not None:
            winners.setdefault(rule.name.lower(), (number, rule))
    return list(winners.values())
