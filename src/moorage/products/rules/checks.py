"""Whether rules can be taken, all that is wrong with them at once. It takes a while, and needs no transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from moorage.errors import BadRequest
from moorage.products.rules.destinations import STATUSES, Own, Redirect, check_destination, parse_redirect
from moorage.products.rules.loops import TooManySteps, find_loops
from moorage.products.rules.patterns import BadPattern, HeaderRule, RedirectRule, Source, parse_source

# The gateway makes an expression of every source of a header rule and of every one with wildcards. A character of them
# takes some 150 bytes of its memory, and an expression with an ending after a wildcard takes ten times as long.
MAX_SOURCE_CHARS = 100_000
MAX_ENDINGS = 100

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

# What belongs to the connection or to the body as it is sent, what the gateway says of itself, and what a redirect is
# for. A wrong one of these breaks the answer, or lets a proxy on the way read two answers for one.
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
    """Raise BadRequest where a rule cannot be taken."""
    fields: dict[str, str] = {}
    sources: set[Source] = set()
    for number, rule in enumerate(rules):
        at = f"headers[{number}]"
        try:
            sources.add(parse_source(rule.source))
        except BadPattern as error:
            fields[f"{at}.source"] = str(error)
        if problem := _problem_of_name(rule.name):
            fields[f"{at}.name"] = problem
        if _UNSAFE.search(rule.value):
            fields[f"{at}.value"] = "must not contain line breaks or other control characters"
    _refuse(fields or _cost("headers", sources))


def check_redirects(rules: Sequence[RedirectRule], own: Own) -> None:
    """Raise BadRequest where a rule cannot be taken, or leads in a circle."""
    fields: dict[str, str] = {}
    for number, rule in enumerate(rules):
        fields |= _problems(f"redirects[{number}]", rule)
    _refuse(fields)
    redirects = [parse_redirect(rule) for rule in rules]
    _refuse(_cost("redirects", {each.source for each in redirects if not each.source.is_literal}))
    _refuse(_loops(redirects, own))


def _problem_of_name(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "should be a header's name: letters, digits and -, at most 200"
    return f"must not be {name}, which is not for a rule to set" if name.lower() in RESERVED_NAMES else None


def _problems(at: str, rule: RedirectRule) -> dict[str, str]:
    problems: dict[str, str] = {}
    if rule.status not in STATUSES:
        problems[f"{at}.status"] = "should be 301, 302, 303, 307 or 308"
    check: Callable[[], object] = partial(parse_redirect, rule)
    try:
        parse_source(rule.source)
    except BadPattern as error:
        problems[f"{at}.source"] = str(error)
        check = partial(check_destination, rule.destination)  # Which wildcards it may have is not known then.
    try:
        check()
    except BadPattern as error:
        problems[f"{at}.destination"] = str(error)
    return problems


def _loops(redirects: Sequence[Redirect], own: Own) -> dict[str, str]:
    try:
        loops = find_loops(redirects, own)
    except TooManySteps:
        return {"redirects": "should have fewer rules with * and :name: these cannot all be followed to their end"}
    return {f"redirects[{number}].destination": why for number, why in loops.items()}


def _cost(field: str, sources: set[Source]) -> dict[str, str]:
    """Say where rules would cost the gateway too much of what it has for all projects."""
    if sum(len(source.text) for source in sources) > MAX_SOURCE_CHARS:
        return {field: f"should have sources with at most {MAX_SOURCE_CHARS:,} characters in all"}
    if sum(any(part.after for part in source.parts) for source in sources) > MAX_ENDINGS:
        return {field: f"should have at most {MAX_ENDINGS} sources with an ending after * or :name"}
    return {}


def _refuse(fields: dict[str, str]) -> None:
    if fields:
        raise BadRequest("The request is not valid", fields=fields)
