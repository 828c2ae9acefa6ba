"""Web origins of functions: what a reply may do to the browser at the address it is answered from.

All functions share the specified address, `/api/v1/web/…`, and with it one origin. Nothing that a function answers
there may reach beyond its own path: documents get an opaque origin from a sandbox, cookies get the function's path, and
headers that count for a whole origin are dropped. At its own host an organization is alone, so only cookies for other
hosts are held back there.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from moorage.runtime.workers import frames

# Policies add up, so a function can tighten this one with its own, and not loosen it. Without `allow-same-origin` the
# document has an origin of its own, which no other document shares: no storage, no cookies, no service workers.
SANDBOX = (
    b"content-security-policy: sandbox allow-downloads allow-forms allow-modals allow-orientation-lock"
    b" allow-pointer-lock allow-popups allow-popups-to-escape-sandbox allow-presentation allow-scripts"
    b" allow-top-navigation-by-user-activation\r\n"
)
# A type that is no document stays one only if the browser does not guess another.
NOSNIFF = b"x-content-type-options: nosniff\r\n"

ABSENT, INERT, DOCUMENT = 0, 1, 2  # what the headers of a function say about the type of its body

# Types in which a browser finds no script to run. A comma would start a second type, which may be any.
_INERT = re.compile(
    r"(?:image/(?![^;]*(?:svg|xml))[a-z0-9.+-]+|(?:audio|video|font)/(?![^;]*xml)[a-z0-9.+-]+"
    r"|text/(?:plain|css|csv|javascript|json|markdown|event-stream)"
    r"|application/(?:json|[a-z0-9.-]+\+json|javascript|octet-stream|pdf|zip|gzip|wasm|x-ndjson|yaml))"
    r"[ \t]*(?:;[^,]*)?"
)
_BEARER = re.compile(r'bearer(?:[ \t]+[a-z_]+=(?:"[^"]*"|[^",\s]+)(?:[ \t]*,[ \t]*[a-z_]+=(?:"[^"]*"|[^",\s]+))*)?')

# Headers that count for the whole origin, or for its connections, and not for one answer.
_ORIGIN_WIDE = frozenset(
    (
        *("accept-ch", "critical-ch", "alt-svc", "clear-site-data", "expect-ct", "nel", "report-to"),
        *("origin-agent-cluster", "proxy-authenticate", "public-key-pins", "public-key-pins-report-only"),
        *("sec-session-registration", "secure-session-registration", "service-worker-allowed", "set-cookie2"),
        *("set-login", "strict-transport-security", "use-as-dictionary"),
        # Browsers refuse to show a sandboxed document that asks for a browsing context group of its own.
        "cross-origin-opener-policy",
    )
)


class Origin(ABC):
    """The rules of one address. `starts` holds the first lines of replies that are alike, by status, kind and size."""

    __slots__ = ("starts",)
    starts: dict[tuple[int, int, int], bytes]
    is_shared = False
    checked: ClassVar[frozenset[str]]  # the headers that `allowed` has to see

    @abstractmethod
    def allowed(self, name: str, value: str) -> str | None:
        """Return the value of a header as it may be sent, or None where it may not."""

    @abstractmethod
    def protection(self, kind: int, declared: int) -> bytes:
        """Return the lines that a reply needs, by the kind of its frame and what its headers say about its type."""


class SharedOrigin(Origin):
    """The specified address, seen from one function."""

    __slots__ = ("_path", "_realm")
    is_shared = True
    checked = _ORIGIN_WIDE | {"set-cookie", "www-authenticate"}
    _starts: ClassVar[dict[tuple[int, int, int], bytes]] = {}

    def __init__(self, path: str) -> None:
        self.starts = SharedOrigin._starts
        self._path = path
        self._realm = path.removeprefix("/api/v1/web/")

    def allowed(self, name: str, value: str) -> str | None:
        if name == "set-cookie":
            return _narrowed(value, self._path)
        if name == "www-authenticate":
            return self._challenge(value)
        return None

    def protection(self, kind: int, declared: int) -> bytes:
        if declared == ABSENT and kind == frames.JSON:
            return b""  # No browser takes this type for a document with scripts.
        return NOSNIFF if declared == INERT and kind == frames.DECLARED else SANDBOX

    def _challenge(self, value: str) -> str | None:
        """Give the challenge a realm of the function's own: browsers send a password to whoever names its realm."""
        lowered = value.lower()
        if "basic" in lowered:
            return f'Basic realm="{self._realm}", charset="UTF-8"'
        return value if _BEARER.fullmatch(lowered) else None


class OwnOrigin(Origin):
    """The host of one organization."""

    __slots__ = ("_host",)
    checked = frozenset(("set-cookie",))
    _starts: ClassVar[dict[tuple[int, int, int], bytes]] = {}

    def __init__(self, host: str) -> None:
        self.starts = OwnOrigin._starts
        self._host = host

    def allowed(self, name: str, value: str) -> str | None:
        kept = [part for part in value.split(";") if not self._is_wide(part)]
        return ";".join(kept)

    def protection(self, kind: int, declared: int) -> bytes:
        return b""

    def _is_wide(self, part: str) -> bool:
        """Tell whether an attribute gives a cookie to other hosts than this one and those below it."""
        name, _, domain = part.partition("=")
        return name.strip().lower() == "domain" and domain.strip().lower().removeprefix(".") != self._host


# Of requests that lead to no function.
NOWHERE = SharedOrigin("/api/v1/web/-")


def declared_type(value: str) -> int:
    """Return what a Content-Type says: INERT only for types that no browser runs scripts in."""
    is_inert = value.isascii() and _INERT.fullmatch(value.strip(" \t").lower()) is not None
    return INERT if is_inert else DOCUMENT


def _narrowed(cookie: str, path: str) -> str | None:
    """Return a cookie that only this path gets, or a path below it; None for one that has to be the whole host's."""
    pair, *attributes = cookie.split(";")
    if pair.strip().lower().removeprefix("=").startswith("__host-"):
        return None
    wanted, kept = path, [pair.strip(" \t")]
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        match name.strip().lower():
            case "path":
                asked = value.strip()
                wanted = asked if asked.startswith(f"{path}/") else path
            case "domain":
                pass
            case _:
                kept.append(attribute.strip(" \t"))
    return "; ".join([*kept, f"Path={wanted}"])
