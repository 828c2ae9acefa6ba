"""Parsing of the gateway's access log lines into the fields that are counted.

Personal data stays in memory: the query of a URL is removed first, a referrer is reduced to its host, and the visitor's
IP address and user agent are only the input of a hash.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from moorage.core.kit.decoding import decoder_of

OWN_AGENT = "moorage-health/1"  # user agent of the platform's own health probes
PATH_CHARS = 200
HOST_CHARS = 253

# User agents that identify themselves as automated. (CUBOT is a brand of telephones.)
_BOTS = re.compile(
    r"(?<!cu)bot\b|bot[/;_-]|crawl|spider|slurp|scrap|archiver|externalhit|link ?preview|headless|lighthouse|pagespeed"
    r"|uptime|monitor|pingdom|statuscake|feed ?(fetch|read|pars)|\brss\b|validator|scanner|\bbytespider\b",
    re.IGNORECASE,
)


class _Request(msgspec.Struct):
    host: str
    uri: str
    client_ip: str = ""
    remote_ip: str = ""
    headers: dict[str, list[str]] = {}


class _Line(msgspec.Struct):
    ts: float
    status: int
    size: int
    request: _Request
    duration: float = 0.0
    # The platform's Caddy configuration logs only these two headers, as fields; Caddy's default logs all as `headers`.
    referer: str | None = None
    user_agent: str | None = None

    def header(self, name: str, logged_field: str | None) -> str:
        values = self.request.headers.get(name) or [""]
        return values[0] if logged_field is None else logged_field


_decode = decoder_of(_Line).decode


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One completed request. A Struct, because thousands are created per second."""

    host: str
    at: int  # time of the response
    path: str
    referrer: str | None  # the referring host; None without one, and for the site itself
    visitor: bytes | None  # hash input that identifies a visitor; None for a bot. Never stored.
    status: int
    bytes: int
    seconds: float  # duration of the request; for a WebSocket, of the connection


PLATFORM_HIT = Hit("", 0, "", None, None, 0, 0, 0.0)  # stands for any request of the platform itself


def parse(line: bytes) -> Hit | None:
    """Parse a line: PLATFORM_HIT for a health probe, None if the line is invalid."""
    try:
        entry = _decode(line)
        at = int(entry.ts * 1000)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError):
        return None
    agent = entry.header("User-Agent", entry.user_agent)
    if agent == OWN_AGENT:
        return PLATFORM_HIT
    request = entry.request
    host = _host(request.host)
    return Hit(
        host=host,
        at=at,
        path=_path(request.uri),
        referrer=_referrer(entry.header("Referer", entry.referer), host),
        visitor=_visitor(request.client_ip or request.remote_ip, agent),
        status=entry.status,
        bytes=max(entry.size, 0),
        seconds=entry.duration,
    )


@lru_cache(maxsize=1024)
def _host(text: str) -> str:
    """Return a host in lower case and without its port."""
    return re.sub(r":[0-9]*$", "", text).rstrip(".").lower()[:HOST_CHARS]


def _path(uri: str) -> str:
    return uri.partition("?")[0].partition("#")[0].replace("\0", "")[:PATH_CHARS] or "/"


@lru_cache(maxsize=1024)
def _referrer(text: str, own: str) -> str | None:
    try:
        host = urlsplit(text).hostname
    except ValueError:
        return None
    if not host or host == own:
        return None
    return host.replace("\0", "")[:HOST_CHARS] or None


def _visitor(address: str, agent: str) -> bytes | None:
    return None if _is_bot(agent) else f"{address}\n{agent}".encode()


@lru_cache(maxsize=1024)
def _is_bot(agent: str) -> bool:
    return _BOTS.search(agent) is not None
