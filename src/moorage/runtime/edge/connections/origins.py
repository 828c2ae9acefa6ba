"""Web origins: restrictions that separate functions in a browser.

All functions share the address `/api/v1/web/…`, and so one origin. Replies there must not affect other paths: documents
get an opaque origin (CSP sandbox), cookies the function's path, and origin-wide headers are dropped. At the host of an
organization, which it does not share, only cookies for other hosts are restricted.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from moorage.runtime.workers import frames

# Browsers enforce all policies of a reply, so a function can tighten this one but not loosen it. Without
# `allow-same-origin` the document has an opaque origin: no storage, no cookies, no service workers.
SANDBOX = (
    b"content-security-policy: sandbox allow-downloads allow-forms allow-modals allow-orientation-lock"
    b" allow-pointer-lock allow-popups allow-popups-to-escape-sandbox allow-presentation allow-scripts"
    b" allow-top-navigation-by-user-activation\r\n"
)
# Keeps the browser from guessing a document type.
NOSNIFF = b"x-content-type-options: nosniff\r\n"

ABSENT, INERT, DOCUMENT = 0, 1, 2  # classes of a function's Content-Type header

# Types in which browsers run no scripts. A comma would start a second type.
_INERT = re.compile(
    r"(?:image/(?![^;]*(?:svg|xml))[a-z0-9.+-]+|(?:audio|video|font)/(?![^;]*xml)[a-z0-9.+-]+"
    r"|text/(?:plain|css|csv|javascript|json|markdown|event-stream)"
    r"|application/(?:json|[a-z0-9.-]+\+json|javascript|octet-stream|pdf|zip|gzip|wasm|x-ndjson|yaml))"
    r"[ \t]*(?:;[^,]*)?"
)
_BEARER = re.compile(r'bearer(?:[ \t]+[a-z_]+=(?:"[^"]*"|[^",\s]+)(?:[ \t]*,[ \t]*[a-z_]+=(?:"[^"]*"|[^",\s]+))*)?')

# Headers that affect the whole origin or its connections.
_ORIGIN_WIDE = frozenset(
    (
        *("accept-ch", "critical-ch", "alt-svc", "clear-site-data", "expect-ct", "nel", "report-to"),
        *("origin-agent-cluster", "proxy-authenticate", "public-key-pins", "public-key-pins-report-only"),
        *("sec-session-registration", "secure-session-registration", "service-worker-allowed", "set-cookie2"),
        *("set-login", "strict-transport-security", "use-as-dictionary"),
        # Browsers do not show a sandboxed document with this header.
        "cross-origin-opener-policy",
    )
)


class Origin(ABC):
    """Rules of one address; `starts` caches heads by status, kind and size."""

    __slots__ = ("starts",)
    starts: dict[tuple[int, int, int], bytes]
    is_shared = False
    checked: ClassVar[frozenset[str]]  # headers that `allowed` filters

    @abstractmethod
    def allowed(self, name: str, value: str) -> str | None:
        """Return the allowed value of a header; None: drop it."""

    @abstractmethod
    def protection(self, kind: int, declared: int) -> bytes:
        """Return protective headers for the frame's kind and the content type's class."""


class SharedOrigin(Origin):
    """The shared address `/api/v1/web/…`, for one function."""

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
            return _restrict_cookie(value, self._path)
        if name == "www-authenticate":
            return self._challenge(value)
        return None

    def protection(self, kind: int, declared: int) -> bytes:
        if declared == ABSENT and kind == frames.JSON:
            return b""  # Browsers run no scripts in JSON.
        return NOSNIFF if declared == INERT and kind == frames.DECLARED else SANDBOX

    def _challenge(self, value: str) -> str | None:
        """Set the function's realm: browsers send stored passwords to equal realms."""
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
        """Whether a cookie attribute extends it beyond this host and its subdomains."""
        name, _, domain = part.partition("=")
        return name.strip().lower() == "domain" and domain.strip().lower().removeprefix(".") != self._host


# For requests that match no function.
NOWHERE = SharedOrigin("/api/v1/web/-")


def declared_type(value: str) -> int:
    """Return INERT for content types in which browsers run no scripts, else DOCUMENT."""
    is_inert = value.isascii() and _INERT.fullmatch(value.strip(" \t").lower()) is not None
    return INERT if is_inert else DOCUMENT


def _restrict_cookie(cookie: str, path: str) -> str | None:
    """Restrict a cookie to a path; None for a `__Host-` cookie."""
    pair, *attributes = cookie.split(";")
    if pair.strip().lower().removeprefix("=").startswith("__host-"):
        return None
    cookie_path, kept = path, [pair.strip(" \t")]
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        match name.strip().lower():
            case "path":
                requested = value.strip()
                cookie_path = requested if requested.startswith(f"{path}/") else path
            case "domain":
                pass
            case _:
                kept.append(attribute.strip(" \t"))
    return "; ".join([*kept, f"Path={cookie_path}"])
