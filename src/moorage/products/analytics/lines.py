"""A line of the gateway's access log, reduced to what is counted.

What could tell who somebody is stays in memory: the query of an address is cut off before anything else looks at it,
a referrer is only its host, and the visitor's address and program leave here as what a hash is made of.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

OWN_AGENT = "moorage-health/1"  # as which the platform itself asks, whether an app is well
PATH_CHARS = 200
HOST_CHARS = 253

# Programs that say of themselves that nobody looks at what they fetch. (CUBOT is a make of telephones.)
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
    # The gateway writes these two apart and no other header; Caddy left to itself has them among the headers.
    referer: str | None = None
    user_agent: str | None = None

    def header(self, name: str, apart: str | None) -> str:
        values = self.request.headers.get(name) or [""]
        return values[0] if apart is None else apart


_decode = msgspec.json.Decoder(_Line).decode


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One request that was answered. A struct, because thousands of them are made each second."""

    host: str
    at: int  # when it had been answered
    path: str
    referrer: str | None  # the host that led here; None without one, and for the site itself
    visitor: bytes | None  # what tells visitors apart; None for a bot. Never stored.
    status: int
    bytes: int
    seconds: float  # that it took; of a WebSocket, how long it was open


OURS = Hit("", 0, "", None, None, 0, 0, 0.0)  # Nobody asked for anything.


def parse(line: bytes) -> Hit | None:
    """Return what a line says, OURS for a request of the platform's own, None where it is no line of an access log."""
    try:
        found = _decode(line)
        at = int(found.ts * 1000)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError):
        return None
    agent = found.header("User-Agent", found.user_agent)
    if agent == OWN_AGENT:
        return OURS
    request = found.request
    host = _host(request.host)
    return Hit(
        host=host,
        at=at,
        path=_path(request.uri),
        referrer=_referrer(found.header("Referer", found.referer), host),
        visitor=_visitor(request.client_ip or request.remote_ip, agent),
        status=found.status,
        bytes=max(found.size, 0),
        seconds=found.duration,
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
