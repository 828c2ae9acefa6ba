"""Redirect destinations: a path of the same host or a URL, with wildcards.

The visitor controls the wildcard values, so a destination is parsed into pieces here, and the gateway joins the pieces.
Scheme and host are always literal text of the rule. A wildcard value keeps the escapes of the request, so that it
contains no `?`, `#`, `\\`, space or line break. At the start of a path it is never empty and never starts with a slash,
because `//host` is an open redirect to another host.
"""

from __future__ import annotations

import ipaddress
import re
import string
from functools import lru_cache
from urllib.parse import quote, unquote

from moorage.core.kit.records import dataclass
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
MAX_PLACEHOLDERS = 16  # limits the response header to this many times the request's path
STATUSES = (301, 302, 303, 307, 308)

# `:name` begins a word: `/Special:Search` and `10:30` are plain text.
_PLACEHOLDER = re.compile(r"\*|(?<![A-Za-z0-9_]):([A-Za-z_][A-Za-z0-9_]*)")
_ADDRESS = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:@\[\]]+)(?::([0-9]{1,5}))?")
_KEPT = "%!$&'()+,;=:@/?" + string.ascii_letters + string.digits + "-._~"
# Delimiters of query fields: a wildcard value that goes into the query must have them escaped.
QUERY_MARKS = "&=+;"

# Escaped text, or the index of a wildcard of the source.
Piece = str | int


@dataclass(frozen=True, slots=True)
class OwnAddresses:
    """Hosts and ports at which the project's own rules apply again."""

    hosts: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Redirect:
    """A parsed redirect rule."""

    source: Source
    status: int
    scheme: str  # empty if the destination is a path
    host: str
    port: int | None
    path: tuple[Piece, ...]
    query: tuple[Piece, ...] | None  # None keeps the query of the request
    fragment: tuple[Piece, ...] | None

    @property
    def origin(self) -> str:
        """Return `https://host:port`, or an empty string if the destination is a path."""
        if not self.scheme:
            return ""
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port is not None else "")

    @property
    def in_query(self) -> frozenset[int]:
        """Return the indexes of the wildcards in the destination's query."""
        return frozenset(piece for piece in self.query or () if isinstance(piece, int))

    def match(self, path: str) -> tuple[str, ...] | None:
        """Return the wildcard values of a decoded path, or None if it does not match."""
        values = self.source.match(path)
        if values is None or any(mark in values[number] for number in self.in_query for mark in QUERY_MARKS):
            return None
        return values

    def leads_to(self, values: tuple[str, ...], own: OwnAddresses) -> str | None:
        """Return the decoded destination path in this project, or None for another site."""
        if self.scheme and (self.host.rstrip(".") not in own.hosts or self._port() not in own.ports):
            return None
        return "".join(values[piece] if isinstance(piece, int) else unquote(piece) for piece in self.path)

    def _port(self) -> int:
        return self.port if self.port is not None else {"http": 80, "https": 443}[self.scheme]


@lru_cache(maxsize=4096)
def parse_redirect(rule: RedirectRule) -> Redirect:
    """Parse a rule; raises BadPattern, about the destination if the source is valid."""
    source = parse_source(rule.source)
    scheme, host, port, rest = _split(rule.destination)
    rest, has_fragment, fragment = rest.partition("#")
    path, has_query, query = rest.partition("?")
    redirect = Redirect(
        source=source,
        status=rule.status,
        scheme=scheme,
        host=host,
        port=port,
        path=_pieces(source, path or "/"),
        query=_pieces(source, query, path.count(STAR)) if has_query else None,
        fragment=_pieces(source, fragment, rest.count(STAR)) if has_fragment else None,
    )
    if len(_PLACEHOLDER.findall(path + query + fragment)) > MAX_PLACEHOLDERS:
        raise BadPattern(f"should have at most {MAX_PLACEHOLDERS} of * and :name")
    if not scheme:
        _check_start(redirect)
    return redirect


def check_destination(text: str) -> None:
    """Raise BadPattern for a destination that is invalid with any source."""
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
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise BadPattern("should be a path that starts with /, or an address that starts with http:// or https://")
    _check_parts(match[3])
    return match[1].lower(), *_authority(match[2].lower()), match[3]


def _authority(text: str) -> tuple[str, int | None]:
    if _PLACEHOLDER.search(text):
        raise BadPattern("must not have * or :name in its host: a visitor could choose where it leads")
    match = _AUTHORITY.fullmatch(text)
    if match is None or not _is_host(match[1]):
        raise BadPattern("should name a host in ASCII, and nothing before it")
    port = int(match[2]) if match[2] else None
    if port is not None and not 0 < port < 65536:
        raise BadPattern("should have a port from 1 to 65535, or none")
    return match[1], port


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
    """Split a text at its placeholders and escape the text between them.

    `seen` is the number of `*` in the text before this one.
    """
    pieces: list[Piece] = []
    stars = [number for number, part in enumerate(source.wildcards) if part.name == STAR]
    names = {part.name: number for number, part in enumerate(source.wildcards) if part.name != STAR}
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        pieces += _text(text[at : match.start()])
        at = match.end()
        if match[1] is None:
            pieces.append(_star(stars, seen))
            seen += 1
        elif match[1] == SPLAT:
            pieces.append(_star(stars, len(stars) - 1))
        elif match[1] in names:
            pieces.append(names[match[1]])
        else:
            raise BadPattern(f"names :{match[1]}, which the source does not have; as plain text, : is %3A")
    return (*pieces, *_text(text[at:]))


def _star(stars: list[int], number: int) -> int:
    """Return the wildcard of the n-th `*`; a single `*` of the source serves for all."""
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
    """Raise BadPattern if a wildcard could make the path start with `//`."""
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
