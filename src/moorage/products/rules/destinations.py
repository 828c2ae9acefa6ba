"""Where a redirect leads: a path of the same host, or an address elsewhere, with what the source's wildcards stood for.

A visitor chooses what the wildcards stand for, so a destination is taken apart here and put together at the gateway
from pieces whose place is certain. Scheme and host are always the owner's own text. What a wildcard stood for comes
as it was escaped in the request, where no `?`, `#`, `\\`, space or line break can be, and at the start of a path it is
never empty or a slash, because `//host` leads to another host.
"""

from __future__ import annotations

import ipaddress
import re
import string
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from moorage.products.rules.patterns import (
    SPLAT,
    STAR,
    BadPattern,
    RedirectRule,
    Source,
    Wild,
    check_text,
    parse_source,
)

MAX_DESTINATION = 2_000
MAX_PLACEHOLDERS = 16  # A visitor's path times this is the longest that an answer can become.
STATUSES = (301, 302, 303, 307, 308)

# `:name` begins a word: `/Special:Search` and `10:30` are plain text.
_PLACEHOLDER = re.compile(r"\*|(?<![A-Za-z0-9_]):([A-Za-z_][A-Za-z0-9_]*)")
_ADDRESS = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:@\[\]]+)(?::([0-9]{1,5}))?")
_KEPT = "%!$&'()+,;=:@/?" + string.ascii_letters + string.digits + "-._~"
# These part the fields of a query, so what stands for a wildcard in one has them only as escapes.
QUERY_MARKS = "&=+;"

# A text, already escaped, or the number of a wildcard of the source, from 0.
Piece = str | int


@dataclass(frozen=True, slots=True)
class Own:
    """Which addresses are the project's own, so that a redirect there meets its rules again."""

    hosts: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect rule, understood."""

    source: Source
    status: int
    scheme: str  # empty where the destination is a path
    host: str
    port: int | None
    path: tuple[Piece, ...]
    query: tuple[Piece, ...] | None  # None: the request's own is kept
    fragment: tuple[Piece, ...] | None

    @property
    def origin(self) -> str:
        """Return `https://host:port`, or nothing where the destination is a path."""
        if not self.scheme:
            return ""
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port is not None else "")

    @property
    def in_query(self) -> frozenset[int]:
        """Return the wildcards that stand in the destination's query."""
        return frozenset(piece for piece in self.query or () if isinstance(piece, int))

    def match(self, path: str) -> tuple[str, ...] | None:
        """Return what each wildcard stands for in a decoded path, or None where the rule does not apply."""
        values = self.source.match(path)
        if values is None or any(mark in values[number] for number in self.in_query for mark in QUERY_MARKS):
            return None
        return values

    def leads_to(self, values: tuple[str, ...], own: Own) -> str | None:
        """Return the decoded path of the same project that it leads to, or None where that is elsewhere."""
        if self.scheme and (self.host.rstrip(".") not in own.hosts or self._port() not in own.ports):
            return None
        return "".join(values[piece] if isinstance(piece, int) else unquote(piece) for piece in self.path)

    def _port(self) -> int:
        return self.port if self.port is not None else {"http": 80, "https": 443}[self.scheme]


@lru_cache(maxsize=4096)
def parse_redirect(rule: RedirectRule) -> Redirect:
    """Understand a rule; raises BadPattern, about the destination where the source is a good one."""
    source = parse_source(rule.source)
    scheme, host, port, rest = _split(rule.destination)
    rest, hashed, fragment = rest.partition("#")
    path, asked, query = rest.partition("?")
    redirect = Redirect(
        source=source,
        status=rule.status,
        scheme=scheme,
        host=host,
        port=port,
        path=_pieces(source, path or "/"),
        query=_pieces(source, query, path.count(STAR)) if asked else None,
        fragment=_pieces(source, fragment, rest.count(STAR)) if hashed else None,
    )
    if len(_PLACEHOLDER.findall(path + query + fragment)) > MAX_PLACEHOLDERS:
        raise BadPattern(f"should have at most {MAX_PLACEHOLDERS} of * and :name")
    if not scheme:
        _check_start(redirect)
    return redirect


def check_destination(text: str) -> None:
    """Raise BadPattern for a destination that can be one of no source at all."""
    _split(text)


def _split(text: str) -> tuple[str, str, int | None, str]:
    if len(text) > MAX_DESTINATION:
        raise BadPattern(f"should have at most {MAX_DESTINATION:,} characters")
    check_text(text)
    if text.startswith("//"):
        raise BadPattern("must not start with //, which leads to another host: write https:// before it")
    if text.startswith("/"):
        _check_parts(text)
        return "", "", None, text
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise BadPattern("should be a path that starts with /, or an address that starts with http:// or https://")
    _check_parts(found[3])
    return found[1].lower(), *_authority(found[2].lower()), found[3]


def _authority(text: str) -> tuple[str, int | None]:
    if _PLACEHOLDER.search(text):
        raise BadPattern("must not have * or :name in its host: a visitor could choose where it leads")
    found = _AUTHORITY.fullmatch(text)
    if found is None or not _is_host(found[1]):
        raise BadPattern("should name a host in ASCII, and nothing before it")
    port = int(found[2]) if found[2] else None
    if port is not None and not 0 < port < 65536:
        raise BadPattern("should have a port from 1 to 65535, or none")
    return found[1], port


def _is_host(text: str) -> bool:
    if not text.startswith("["):
        return len(text) <= 253 and _HOST.fullmatch(text) is not None
    try:
        ipaddress.IPv6Address(text[1:-1])
    except ValueError:
        return False
    return True


def _check_parts(rest: str) -> None:
    path = re.split("[?#]", rest, maxsplit=1)[0]
    if any(unquote(part) in (".", "..") for part in path.split("/")):
        raise BadPattern("must not have the parts . and ..")


def _pieces(source: Source, text: str, seen: int = 0) -> tuple[Piece, ...]:
    """Split a text at its placeholders and escape what stands between them; `seen` is how many `*` came before it."""
    pieces: list[Piece] = []
    stars = [number for number, part in enumerate(source.wildcards) if part.name == STAR]
    names = {part.name: number for number, part in enumerate(source.wildcards) if part.name != STAR}
    at = 0
    for found in _PLACEHOLDER.finditer(text):
        pieces += _text(text[at : found.start()])
        at = found.end()
        if found[1] is None:
            pieces.append(_star(stars, seen))
            seen += 1
        elif found[1] == SPLAT:
            pieces.append(_star(stars, len(stars) - 1))
        elif found[1] in names:
            pieces.append(names[found[1]])
        else:
            raise BadPattern(f"names :{found[1]}, which the source does not have; as plain text, : is %3A")
    return (*pieces, *_text(text[at:]))


def _star(stars: list[int], number: int) -> int:
    """Return what the n-th `*` of a destination stands for; with only one in the source, it is always that."""
    if not stars:
        raise BadPattern("has a *, which the source does not have; as plain text it is %2A")
    if len(stars) == 1:
        return stars[0]
    if number >= len(stars):
        raise BadPattern(f"has more than the {len(stars)} of * that the source has")
    return stars[number]


def _text(text: str) -> list[Piece]:
    return [quote(text, safe=_KEPT)] if text else []


def _check_start(redirect: Redirect) -> None:
    """Raise BadPattern where a visitor could make the path start with two slashes, which leads to another host."""
    pieces = list(redirect.path)
    assert isinstance(pieces[0], str)
    pieces[0] = pieces[0].removeprefix("/")
    for piece in pieces:
        if isinstance(piece, str):
            if piece.startswith("/"):
                raise BadPattern("must not begin with a * that may be empty, and then /: // leads to another host")
            if piece:
                return
            continue
        part = redirect.source.wildcards[piece]
        if part.wild is Wild.ONE:
            return
        if part.before:
            raise BadPattern("must not begin with /*, unless * is a whole part of the source: // leads to another host")
