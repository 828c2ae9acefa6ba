"""Requests of a redirect chain, from a user's URL and Location headers.

This module sends nothing. It raises TargetRefused for a URL that may not be called, and ValueError for a method or a
header that is invalid in HTTP.
"""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv6Address

import yarl
from multidict import CIMultiDict

from moorage.core.kit.records import dataclass
from moorage.core.net.targets import TargetRefused

# Only the client sets framing headers: a length or coding that contradicts the body would let a user smuggle a second
# request.
FRAMING_HEADERS = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_BODY_HEADERS = frozenset({"content-type", "content-encoding", "content-language", "content-location"})

TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_HOST_NAME = re.compile(r"[a-z0-9._-]+")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of a redirect chain; `credentials` never leave its origin."""

    method: str
    url: yarl.URL
    headers: CIMultiDict[str]
    body: bytes | None
    credentials: str | None = None


def _parse_url(text: str, base: yarl.URL | None = None) -> yarl.URL:
    """Parse an absolute http(s) URL with a canonical host, or refuse it."""
    if UNSENDABLE.search(text) or "\t" in text:
        raise TargetRefused("cannot call this URL: it contains control characters")
    try:
        url = base.join(yarl.URL(text)) if base else yarl.URL(text)
        port = url.port
    except (ValueError, IndexError) as error:  # IndexError: yarl fails so for http://[]@
        raise TargetRefused("cannot call this URL: it is malformed") from error
    if url.scheme not in ("http", "https"):
        raise TargetRefused("cannot call this URL: only http and https are allowed")
    if not url.raw_host or port is None:
        raise TargetRefused("cannot call this URL: it names no host")
    return url.with_host(_canonical_host(url.raw_host)).with_fragment(None)


def _canonical_host(host: str) -> str:
    """Normalise an IP literal: 2130706433, 0x7f.1 and 127.0.0.1. are 127.0.0.1."""
    try:
        if ":" in host:
            return str(IPv6Address(host))
        if not _HOST_NAME.fullmatch(host) or not host.strip("."):
            raise ValueError(host)
        if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
            return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except (ValueError, OSError) as error:
        raise TargetRefused("cannot call this URL: its host is malformed") from error
    return host


def first_hop(method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None) -> Hop:
    if not TOKEN.fullmatch(method) or method.upper() == "CONNECT":
        raise ValueError(f"cannot send a request with the method {method!r}")
    kept = CIMultiDict[str]()
    for name, value in (headers or {}).items():
        if not TOKEN.fullmatch(name) or UNSENDABLE.search(value):
            raise ValueError(f"cannot send the header {name!r}: it contains characters that HTTP does not allow")
        if name.lower() not in FRAMING_HEADERS:
            kept.add(name, value)
    target, credentials = _parse_target(url)
    return Hop(method.upper(), target, kept, body, credentials)


@lru_cache(maxsize=4096)  # Monitors call the same URL repeatedly.
def _parse_target(text: str) -> tuple[yarl.URL, str | None]:
    url = _parse_url(text)
    return url.with_user(None), _basic_credentials(url)


def _basic_credentials(url: yarl.URL) -> str | None:
    if url.user is None and url.password is None:
        return None
    pair = f"{url.user or ''}:{url.password or ''}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _origin(url: yarl.URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.raw_host, url.port


def next_hop(hop: Hop, status: int, location: str, *, drop_headers: bool) -> Hop:
    """Build the next request as a browser does; ignores credentials in a Location."""
    following = replace(hop, url=_parse_url(location, base=hop.url).with_user(None))
    if (status == 303 and hop.method != "HEAD") or (status in (301, 302) and hop.method == "POST"):
        kept = CIMultiDict((name, value) for name, value in hop.headers.items() if name.lower() not in _BODY_HEADERS)
        following = replace(following, method="GET", body=None, headers=kept)
    if _origin(following.url) == _origin(hop.url):
        return following
    if drop_headers:
        # Only the type of a body that is sent again is kept.
        content_type = [item for item in following.headers.items() if item[0].lower() == "content-type"]
        following = replace(following, headers=CIMultiDict(content_type if following.body is not None else []))
    return replace(following, credentials=None)


def is_literal(host: str) -> bool:
    """Check whether the canonical host of a hop is an IP address."""
    return ":" in host or bool(_NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]))
