"""Serves the built files of the console from disk, and `index.html` for every address of a page.

Names of assets contain a hash of their content, so browsers keep them for ever. Nothing is read before it is asked for,
and nothing is kept: the control process stays as small as without a console.
"""

from __future__ import annotations

import re
from pathlib import Path

from moorage.core.http.answer import Answer, Headers
from moorage.core.http.request import Request
from moorage.core.net import error_pages
from moorage.core.net.error_pages import ErrorPage

STATIC = Path(__file__).parent / "static"
ASSETS_PREFIX = "/assets/"
# First parts of paths that belong to programs. A browser that opens an unknown one gets the error page.
_OTHERS = frozenset(("v1", "api", "assets", "docs", "git", "health", "metrics", "status", "webhook"))
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_TYPES = {
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "woff2": b"font/woff2",
    "txt": b"text/plain; charset=utf-8",
}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))  # the best first
# Scripts, styles, fonts and connections of this server only; images may also be part of a style or a script.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: Headers = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept"),
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_BEING_BUILT = ErrorPage(
    503,
    "internal",
    "The console is being built",
    "This page opens it as soon as it is ready",
    hint="In a checkout `make console` builds it. The API works meanwhile: see /docs.",
    retry_after_s=2,
    reload_s=2,
)


class ConsoleFiles:
    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder

    async def asset(self, request: Request) -> Answer | None:
        """Return the asset at a path below `/assets/`, compressed if the client accepts that."""
        name = request.path.removeprefix(ASSETS_PREFIX)
        kind = _TYPES.get(name.rpartition(".")[2])
        if request.method not in ("GET", "HEAD") or kind is None or _NAME.fullmatch(name) is None:
            return None
        headers: Headers = [
            (b"content-type", kind),
            (b"cache-control", b"public, max-age=31536000, immutable"),
            (b"vary", b"accept-encoding"),
        ]
        path = self._folder / "assets" / name
        for encoding, ending in _ENCODINGS:
            if accepts(request, encoding) and (body := _read(path.with_name(name + ending))) is not None:
                return Answer(200, body, [*headers, (b"content-encoding", encoding.encode())])
        body = _read(path)
        return Answer(200, body, headers) if body is not None else None

    async def page(self, request: Request) -> Answer | None:
        """Return the console for a browser that opens the address of one of its pages; None for all others."""
        first = request.path.split("/", 2)[1]
        if first in _OTHERS or "." in first or not error_pages.accepts_html(request.header(b"accept") or ""):
            return None
        body = _read(self._folder / "index.html")
        if body is None:
            return _being_built(request)
        return Answer(200, body, _PAGE_HEADERS)


def accepts(request: Request, encoding: str) -> bool:
    """Return whether a client accepts an encoding; a quality of zero refuses it."""
    for part in (request.header(b"accept-encoding") or "").lower().split(","):
        name, _, parameter = part.strip().partition(";")
        if name.strip() == encoding:
            return parameter.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _being_built(request: Request) -> Answer:
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in error_pages.headers_of(_BEING_BUILT, error_pages.HTML)
    ]
    return Answer(503, error_pages.to_html(_BEING_BUILT, request.trace_id).encode(), headers)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
