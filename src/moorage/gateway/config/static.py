"""Caddy's routes for the files of a release, ordered by cost.

A request for an existing file passes a few cheap matchers on headers and path, then Caddy's file server. All routes
that read the disk again come after the file server found nothing: clean addresses, the site's 404 page, the page of a
single-page application, a host in upper case, the state of a host without a page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moorage.gateway.config import pages
from moorage.gateway.config.pages import Route, subroute
from moorage.gateway.sites import HOST_PATTERN, HostMarker
from moorage.settings import Settings

OWN_404 = "404.html"
OWN_FOLDER = ".moorage"  # files that the platform adds to a release; no request can address them
SINGLE_PAGE = f"{OWN_FOLDER}/spa.html"
KEPT = f"{OWN_FOLDER}/kept"  # hard links to files with a content hash in their names
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATED = "public, max-age=0, must-revalidate"

_READING = {"method": ["GET", "HEAD"]}
_EXTENSION = "{http.request.uri.path.file.ext}"
_TYPE = "{moorage.type}"

PAGES = (".html", "/")  # endings of the addresses of pages that are not clean addresses
# Every build of Caddy knows the types of these; the most frequent come first.
KNOWN_TO_CADDY = (".js", ".css", ".png", ".svg", ".jpg", ".webp", ".json", ".gif", ".jpeg", ".wasm", ".avif", ".pdf")

# Caddy would take other types from the machine's MIME tables, and a site must not depend on the machine.
CONTENT_TYPES = {
    ".apng": "image/apng",
    ".atom": "application/atom+xml",
    ".bmp": "image/bmp",
    ".cjs": "text/javascript; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".eot": "application/vnd.ms-fontobject",
    ".flac": "audio/flac",
    ".geojson": "application/geo+json",
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".gz": "application/gzip",
    ".heic": "image/heic",
    ".htm": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".ics": "text/calendar; charset=utf-8",
    ".jsonld": "application/ld+json",
    ".jxl": "image/jxl",
    ".m4a": "audio/mp4",
    ".map": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".mov": "video/quicktime",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".ogg": "audio/ogg",
    ".ogv": "video/ogg",
    ".opus": "audio/ogg",
    ".otf": "font/otf",
    ".rss": "application/rss+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".toml": "application/toml",
    ".ttf": "font/ttf",
    ".txt": "text/plain; charset=utf-8",
    ".vtt": "text/vtt; charset=utf-8",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webmanifest": "application/manifest+json",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".zip": "application/zip",
}


def site_routes(settings: Settings, *, late: Sequence[Route] = ()) -> list[Route]:
    """Return the routes that serve the files of a host; they answer every request.

    `late` routes are tried where a host has no such file, before the "not found" routes.
    """
    missing = _missing_routes(settings, late)
    serve = _file_routes(settings)
    # A host in upper case, or with a trailing dot, is the same host. It is rare, so it may cost a second lookup.
    odd_name = {"vars_regexp": {"{http.request.host}": {"pattern": r"[A-Z]|\.$"}}}
    again = subroute([{"handle": [PLAIN_HOST]}, *serve, *missing])
    return [*serve, {"match": [odd_name], "handle": [again], "terminal": True}, *missing]


def _file_routes(settings: Settings) -> list[Route]:
    # Caddy compiles the routes of a subroute at each request, so the frequent routes stand at the top level.
    return [
        {"match": [{"header": {"Range": ["*"]}}], "handle": [_WITHOUT_COMPRESSION]},
        {"match": [{"header": {"Accept-Encoding": ["*"]}}], "handle": [_WITHOUT_LENGTH, _COMPRESS]},
        {"match": [{"path": ["*/.*"]}], "handle": [subroute(_HIDDEN)]},
        {
            "match": [_has_ending(*PAGES)],
            # A folder may have a name with the ending of a page.
            "handle": [cache_headers(REVALIDATED), _files(_root(settings), pass_thru=True, canonical_uris=True)],
        },
        {"match": [_has_ending(*KNOWN_TO_CADDY)], "handle": _asset_handlers(settings)},
        {
            "match": [{"not": [_has_ending(*PAGES, *KNOWN_TO_CADDY)]}],
            "handle": [*_TYPE_HANDLERS, *_asset_handlers(settings)],
        },
    ]


def _has_ending(*endings: str) -> dict[str, Any]:
    return {"path": [f"*{ending}" for ending in endings]}


def _asset_handlers(settings: Settings) -> list[dict[str, Any]]:
    """Serve files that never change as immutable, other files with revalidation.

    No index pages: the address of a folder without a slash is redirected by `_clean_address_routes`.
    """
    return [
        cache_headers(IMMUTABLE),
        _files(f"{_root(settings)}/{KEPT}", pass_thru=True, index_names=[]),
        cache_headers(REVALIDATED),
        _files(_root(settings), pass_thru=True, index_names=[]),
    ]


def cache_headers(caching: str) -> dict[str, Any]:
    """Return the handler that sets `Cache-Control` and the headers of every response."""
    headers = {"Cache-Control": [caching], "X-Content-Type-Options": ["nosniff"]}
    return {"handler": "headers", "response": {"delete": ["Server"], "set": headers}}


# Browsers keep a permanent redirect for good without `Cache-Control`; but rules change, and names get new owners.
REDIRECTED = cache_headers(REVALIDATED)

# With an empty type, the file server sets the type.
_TYPE_HANDLERS = [
    {
        "handler": "map",
        "source": _EXTENSION,
        "destinations": [_TYPE],
        "mappings": [{"input": ending, "outputs": [kind]} for ending, kind in CONTENT_TYPES.items()],
        "defaults": [""],
    },
    {"handler": "headers", "response": {"set": {"Content-Type": [_TYPE]}}},
]

# A range refers to the file as published; ranges of the compressed form are rarely meant.
_WITHOUT_COMPRESSION = {"handler": "headers", "request": {"delete": ["Accept-Encoding"]}}

_COMPRESS = {"handler": "encode", "encodings": {"zstd": {}, "gzip": {}}, "prefer": ["zstd", "gzip"]}

# The file server stats the compressed file before it opens it. If the host gets another release in between, that length
# is wrong and the response breaks.
_WITHOUT_LENGTH = {
    "handler": "headers",
    "response": {
        "deferred": True,
        "delete": ["Content-Length"],
        "require": {"headers": {"Content-Encoding": ["*"]}},
    },
}

# The file server's `hide` option matches the whole path on disk, where the data folder `.moorage` would hide every
# site.
_HIDDEN: list[Route] = [
    {
        "match": [{"not": [{"path_regexp": {"pattern": r"^/\.well-known(?:/[^./][^/]*)*/?$"}}]}],
        "handle": [pages.not_found()],
        "terminal": True,
    }
]


def _files(root: str, **options: Any) -> dict[str, Any]:
    return {
        "handler": "file_server",
        "root": root,
        "index_names": ["index.html"],
        "canonical_uris": False,  # Caddy's redirects do not escape `%`, `?` and `#` in names.
        "precompressed": {"zstd": {}, "br": {}, "gzip": {}},
        "precompressed_order": ["zstd", "br", "gzip"],
        **options,
    }


def _root(settings: Settings) -> str:
    return f"{literal(settings.folder('sites'))}/{{http.request.host}}"


def file_is(root: str, path: str) -> dict[str, Any]:
    """Return the matcher for an existing file; `path` may be a glob pattern."""
    # Caddy reads the root as a glob pattern too. It quotes placeholders of the request itself.
    quoted = re.sub(r"[*?[]", lambda wildcard: f"\\{wildcard[0]}", root)
    return {"file": {"root": quoted, "try_files": [path]}}


# Rewrites the host to its name in `sites/`.
PLAIN_HOST = {
    "handler": "headers",
    "request": {
        "replace": {
            "Host": [
                {"search_regexp": r"\.(:\d+)?$", "replace": "$1"},
                *({"search": chr(letter), "replace": chr(letter).lower()} for letter in range(ord("A"), ord("Z") + 1)),
            ]
        }
    },
}


def _missing_routes(settings: Settings, late: Sequence[Route]) -> list[Route]:
    """Return the routes for a path that is no file."""
    is_host = {"vars_regexp": {"{http.request.host}": {"pattern": HOST_PATTERN}}}
    page_routes = [{"handle": [_PAGE_HEADERS]}, *_clean_address_routes(settings), *fallback_routes(settings)]
    return [
        {"match": [{"not": [is_host]}], "handle": [pages.not_found()], "terminal": True},
        *late,
        {"match": [_READING], "handle": [subroute(page_routes)]},
        *closing_routes(settings),
    ]


# Replaces the headers that were set for the file type of the address: the response is a page.
_PAGE_HEADERS = {
    "handler": "headers",
    "response": {"delete": ["Content-Type"], "set": {"Cache-Control": [REVALIDATED]}},
}


def closing_routes(settings: Settings) -> list[Route]:
    """Return the routes that answer why there is no page: the state of the host, else "not found"."""
    is_published = file_is(literal(settings.folder("sites")), "/{http.request.host}")
    # The other policies of Caddy do not match folders, or do not match below a data folder with a bracket in its name.
    is_published["file"]["try_policy"] = "most_recently_modified"
    page_routes: list[Route] = [
        {"match": [{"path": ["/"]}], "handle": [pages.no_start_page()], "terminal": True},
        {"handle": [pages.no_page()]},
    ]
    return [
        _marked(settings, HostMarker.DISABLED, pages.disabled()),
        {"match": [is_published], "handle": [subroute(page_routes)], "terminal": True},
        _marked(settings, HostMarker.BUILDING, pages.building(settings)),
        _marked(settings, HostMarker.UNPUBLISHED, pages.unpublished(settings)),
        {"handle": [pages.not_found()]},
    ]


def _marked(settings: Settings, marker: HostMarker, page: dict[str, Any]) -> Route:
    is_marked = file_is(literal(settings.folder(marker)), "/{http.request.host}")
    return {"match": [is_marked], "handle": [page], "terminal": True}


def _clean_address_routes(settings: Settings) -> list[Route]:
    """Serve `/about` from `about.html`, and redirect `/about/` to it and `/docs` to `/docs/`.

    The links of `docs/index.html` are relative to `/docs/`.
    """
    root = _root(settings)
    page, index = (file_is(root, f"{{http.request.uri.path}}{ending}") for ending in (".html", "/index.html"))
    # A path that ends with a slash names no page, and a backslash would quote the next character of the pattern.
    is_name = {"not": [{"path": ["*/", r"*\*"]}]}
    # A `Location` that starts with two slashes would name another host.
    is_same_host = {"vars_regexp": {"{http.request.uri}": {"pattern": "^/[^/]"}}}
    redirect = {"handler": "static_response", "status_code": 308, "headers": {"Location": ["{http.request.uri}"]}}
    without_slash: list[Route] = [
        {"handle": [{"handler": "rewrite", "strip_path_suffix": "/"}]},
        {"match": [is_name | is_same_host | page], "handle": [redirect], "terminal": True},
    ]
    return [
        {"match": [{"path": ["*/"], "not": [{"path": ["/"]}]}], "handle": [subroute(without_slash)]},
        {"match": [is_name | is_same_host | index], "handle": [_with_ending("/"), redirect], "terminal": True},
        {"match": [is_name | page], "handle": [_with_ending(".html"), _files(root)], "terminal": True},
    ]


def _with_ending(ending: str) -> dict[str, Any]:
    return {"handler": "rewrite", "path_regexp": [{"find": "$", "replace": ending}]}


def fallback_routes(settings: Settings, *, after_error: bool = False) -> list[Route]:
    """Serve the site's 404.html, else the page of a single-page application.

    `after_error`: in error routes Caddy would send the page with the status of the error.
    """
    root = _root(settings)
    status = {"status_code": 200} if after_error else {}
    app_page = [*([_UNCONDITIONAL] if after_error else []), _files(root, **status)]
    return [
        {"handle": [_PAGE_HEADERS]},
        _fallback(file_is(root, f"/{OWN_404}"), OWN_404, [_UNCONDITIONAL, _files(root, status_code=404)]),
        _fallback(file_is(root, f"/{SINGLE_PAGE}") | _FOR_A_PAGE, SINGLE_PAGE, app_page),
    ]


def _fallback(matcher: dict[str, Any], name: str, handle: list[dict[str, Any]]) -> Route:
    return {"match": [matcher], "handle": [{"handler": "rewrite", "uri": f"/{name}"}, *handle], "terminal": True}


# A script, image or source map that is missing is not found: browsers would parse the page as that file. `/v1.2` has no
# extension.
_FOR_A_PAGE = {
    "not": [{"path_regexp": {"pattern": r"\.[0-9]?[A-Za-z][A-Za-z0-9]*$"}}],
    "vars_regexp": {"{http.request.header.Accept}": {"pattern": r"^$|text/(html|\*)|\*/\*"}},
}

# A page with a fixed status is sent whole: the status would replace that of a "not modified" or "partial" response.
_UNCONDITIONAL = {
    "handler": "headers",
    "request": {
        "delete": ["If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range"],
    },
}


def literal(path: Path) -> str:
    """Return the path with Caddy's placeholder braces escaped."""
    return str(path).replace("{", r"\{").replace("}", r"\}")
