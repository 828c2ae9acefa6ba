"""Validation of rules: reports all problems at once. Slow; needs no transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from moorage.errors import BadRequest
from moorage.products.rules.destinations import STATUSES, OwnAddresses, Redirect, check_destination, parse_redirect
from moorage.products.rules.loops import TooManySteps, find_loops
from moorage.products.rules.patterns import BadPattern, HeaderRule, RedirectRule, Source, parse_source

# The gateway compiles a regular expression for every source of a header rule and every redirect source with wildcards.
# Each character takes about 150 bytes of its memory; an expression with a suffix after a wildcard takes ten times as
# long to match.
MAX_SOURCE_CHARS = 100_000
MAX_ENDINGS = 100

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

# Headers of the connection or of the body's encoding, headers that the gateway sets itself, and `location`, which needs
# a redirect. A wrong value breaks the response, or allows response splitting at a proxy.
RESERVED_NAMES = frozenset(
    (
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "date",
        "host",
        "http2-settings",
        "keep-alive",
        "location",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "server",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-request-id",
    )
)


def check_headers(rules: Sequence[HeaderRule]) -> None:
    """Raise BadRequest with the problems of all invalid rules."""
    fields: dict[str, str] = {}
    sources: set[Source] = set()
    for number, rule in enumerate(rules):
        at = f"headers[{number}]"
        try:
            sources.add(parse_source(rule.source))
        except BadPattern as error:
            fields[f"{at}.source"] = str(error)
        if problem := _header_name_problem(rule.name):
            fields[f"{at}.name"] = problem
        if _UNSAFE.search(rule.value):
            fields[f"{at}.value"] = "must not contain line breaks or other control characters"
    _raise_if_any(fields or _cost_problems("headers", sources))


def check_redirects(rules: Sequence[RedirectRule], own: OwnAddresses) -> None:
    """Raise BadRequest with the problems of all invalid rules and redirect loops."""
    fields: dict[str, str] = {}
    for number, rule in enumerate(rules):
        fields |= _redirect_problems(f"redirects[{number}]", rule)
    _raise_if_any(fields)
    redirects = [parse_redirect(rule) for rule in rules]
    _raise_if_any(_cost_problems("redirects", {each.source for each in redirects if not each.source.is_literal}))
    _raise_if_any(_loop_problems(redirects, own))


def _header_name_problem(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "should be a header's name: letters, digits and -, at most 200"
    return f"must not be {name}, which is not for a rule to set" if name.lower() in RESERVED_NAMES else None


def _redirect_problems(at: str, rule: RedirectRule) -> dict[str, str]:
    problems: dict[str, str] = {}
    if rule.status not in STATUSES:
        problems[f"{at}.status"] = "should be 301, 302, 303, 307 or 308"
    check: Callable[[], object] = partial(parse_redirect, rule)
    try:
        parse_source(rule.source)
    except BadPattern as error:
        problems[f"{at}.source"] = str(error)
        check = partial(check_destination, rule.destination)  # without the source its wildcards are unknown
    try:
        check()
    except BadPattern as error:
        problems[f"{at}.destination"] = str(error)
    return problems


def _loop_problems(redirects: Sequence[Redirect], own: OwnAddresses) -> dict[str, str]:
    try:
        loops = find_loops(redirects, own)
    except TooManySteps:
        return {"redirects": "should have fewer rules with * and :name: these cannot all be followed to their end"}
    return {f"redirects[{number}].destination": why for number, why in loops.items()}


def _cost_problems(field: str, sources: set[Source]) -> dict[str, str]:
    """Return the problem of rules that would use too much of the shared gateway."""
    if sum(len(source.text) for source in sources) > MAX_SOURCE_CHARS:
        return {field: f"should have sources with at most {MAX_SOURCE_CHARS:,} characters in all"}
    if sum(any(part.after for part in source.parts) for source in sources) > MAX_ENDINGS:
        return {field: f"should have at most {MAX_ENDINGS} sources with an ending after * or :name"}
    return {}


def _raise_if_any(fields: dict[str, str]) -> None:
    if fields:
        raise BadRequest("The request is not valid", fields=fields)
