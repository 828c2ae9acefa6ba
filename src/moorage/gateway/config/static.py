"""How a release is served: the routes of one host's files, in the order that costs the least.

A request for a file that is there pays for a handful of cheap looks at its headers and path, and then it is Caddy's own
file server. Everything that needs another look at the disk (clean addresses, the site's own page for what is not there,
the single page of an application, a host in upper case, a project that is switched off) comes after the file server
found nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moorage.gateway.config import pages
from moorage.gateway.config.pages import Route, subroute
from moorage.gateway.sites import HOST_PATTERN
from moorage.settings import Settings

OWN_404 = "404.html"
# What the platform adds to a release is in a folder that nobody can ask for.
OWN_FOLDER = ".moorage"
SINGLE_PAGE = f"{OWN_FOLDER}/spa.html"
KEPT = f"{OWN_FOLDER}/kept"  # the files whose names change with what is in them, once more
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATED = "public, max-age=0, must-revalidate"

_READING = {"method": ["GET", "HEAD"]}
_EXTENSION = "{http.request.uri.path.file.ext}"
_TYPE = "{moorage.type}"

PAGES = (".html", "/")  # what the addresses of pages end with, as long as they are not clean
# These have the right type in every build of Caddy, the most frequent first.
KNOWN_TO_CADDY = (".js", ".css", ".png", ".svg", ".jpg", ".webp", ".json", ".gif", ".jpeg", ".wasm", ".avif", ".pdf")

# For others Caddy asks the machine it runs on. A site must not change with the machine.
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
    """Return the routes that serve whatever a host has; nothing comes after them.

    `late` are tried where a host has no such file, before anything is said about that.
    """
    missing = _missing_routes(settings, late)
    serve = _file_routes(settings)
    # A name in upper case, or with the dot of the root, is the same name. It is so rare that it may cost a second try.
    odd_name = {"vars_regexp": {"{http.request.host}": {"pattern": r"[A-Z]|\.$"}}}
    again = subroute([{"handle": [PLAIN_HOST]}, *serve, *missing])
    return [*serve, {"match": [odd_name], "handle": [again], "terminal": True}, *missing]


def _file_routes(settings: Settings) -> list[Route]:
    # Caddy puts the routes of a subroute together anew for each request, so what most requests pass stands here.
    return [
        {"match": [{"header": {"Range": ["*"]}}], "handle": [_WITHOUT_COMPRESSION]},
        {"match": [{"header": {"Accept-Encoding": ["*"]}}], "handle": [_WITHOUT_LENGTH, _COMPRESS]},
        {"match": [{"path": ["*/.*"]}], "handle": [subroute(_HIDDEN)]},
        {"match": [_has_ending(*PAGES)], "handle": [said(REVALIDATED), _files(_root(settings), pass_thru=True)]},
        {"match": [_has_ending(*KNOWN_TO_CADDY)], "handle": _asset_handlers(settings)},
        {
            "match": [{"not": [_has_ending(*PAGES, *KNOWN_TO_CADDY)]}],
            "handle": [*_TYPE_HANDLERS, *_asset_handlers(settings)],
        },
    ]


def _has_ending(*endings: str) -> dict[str, Any]:
    return {"path": [f"*{ending}" for ending in endings]}


def _asset_handlers(settings: Settings) -> list[dict[str, Any]]:
    """Serve what never changes, and say so; else what may change."""
    return [
        said(IMMUTABLE),
        _files(f"{_root(settings)}/{KEPT}", pass_thru=True),
        said(REVALIDATED),
        _files(_root(settings), pass_thru=True),
    ]


def said(caching: str) -> dict[str, Any]:
    """Return the handler that sets the headers of every answer, and how long it may be kept."""
    headers = {"Cache-Control": [caching], "X-Content-Type-Options": ["nosniff"]}
    return {"handler": "headers", "response": {"delete": ["Server"], "set": headers}}


# A permanent redirect is kept for good, unless it says otherwise; but rules change, and names are given away.
REDIRECTED = said(REVALIDATED)

# Where the type is empty, the file server sets it.
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

# A range is one of the file as it was published: hardly anybody means one of its compressed form.
_WITHOUT_COMPRESSION = {"handler": "headers", "request": {"delete": ["Accept-Encoding"]}}

_COMPRESS = {"handler": "encode", "encodings": {"zstd": {}, "gzip": {}}, "prefer": ["zstd", "gzip"]}

# The file server looks up the length of a compressed twin before it opens it. If the host changes to another release in
# between, that is not the length of what is sent, and the answer breaks.
_WITHOUT_LENGTH = {
    "handler": "headers",
    "response": {
        "deferred": True,
        "delete": ["Content-Length"],
        "require": {"headers": {"Content-Encoding": ["*"]}},
    },
}

# The file server's own `hide` looks at the whole path on disk, where the data folder `.moorage` would hide every site.
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
        # `/about` is served from `about/index.html` where it is asked for, without sending anybody on.
        "canonical_uris": False,
        "precompressed": {"zstd": {}, "br": {}, "gzip": {}},
        "precompressed_order": ["zstd", "br", "gzip"],
        **options,
    }


def _root(settings: Settings) -> str:
    return f"{literal(settings.folder('sites'))}/{{http.request.host}}"


def file_is(root: str, path: str) -> dict[str, Any]:
    """Return the matcher for a file that is there. The path may be a pattern, the root is taken as it is."""
    # To this matcher a path is a pattern; what comes from the request it quotes by itself.
    quoted = re.sub(r"[*?[]", lambda found: f"\\{found[0]}", root)
    return {"file": {"root": quoted, "try_files": [path]}}


# Puts the host of a request as the folder of sites has it.
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
    """Return what is tried where there is no such file."""
    is_host = {"vars_regexp": {"{http.request.host}": {"pattern": HOST_PATTERN}}}
    page_routes = [{"handle": [_FOR_A_PAGE]}, *_clean_routes(settings), *fallback_routes(settings)]
    return [
        {"match": [{"not": [is_host]}], "handle": [pages.not_found()], "terminal": True},
        *late,
        {"match": [_READING], "handle": [subroute(page_routes)]},
        *closing_routes(settings),
    ]


# Whatever is sent now is a page, and not the file that its address made it look like.
_FOR_A_PAGE = {
    "handler": "headers",
    "response": {"delete": ["Content-Type"], "set": {"Cache-Control": [REVALIDATED]}},
}


def closing_routes(settings: Settings) -> list[Route]:
    """Return what is said where a host has nothing for a request."""
    switched_off = file_is(literal(settings.folder("disabled")), "/{http.request.host}")
    return [
        {"match": [switched_off], "handle": [pages.disabled()], "terminal": True},
        {"handle": [pages.not_found()]},
    ]


def _clean_routes(settings: Settings) -> list[Route]:
    """Serve `/about` from `about.html`, and send `/about/` there.

    The file server does the same for `about/index.html`, the other way around: links in it are relative to `/about/`.
    """
    page = file_is(_root(settings), "{http.request.uri.path}.html")
    # Without a name there is no page; and in a pattern a backslash would make another name of what follows it.
    nameless = {"path": ["*/", r"*\*"]}
    # Two slashes at the start of a `Location` would be another host.
    is_ours = {"vars_regexp": {"{http.request.uri}": {"pattern": "^/[^/]"}}}
    there = {"handler": "static_response", "status_code": 308, "headers": {"Location": ["{http.request.uri}"]}}
    with_ending = {"handler": "rewrite", "path_regexp": [{"find": "$", "replace": ".html"}]}
    without_slash: list[Route] = [
        {"handle": [{"handler": "rewrite", "strip_path_suffix": "/"}]},
        {"match": [{"not": [nameless], **is_ours, **page}], "handle": [there], "terminal": True},
    ]
    return [
        {"match": [{"path": ["*/"], "not": [{"path": ["/"]}]}], "handle": [subroute(without_slash)]},
        {"match": [{"not": [nameless], **page}], "handle": [with_ending, _files(_root(settings))], "terminal": True},
    ]


def fallback_routes(settings: Settings, *, after_error: bool = False) -> list[Route]:
    """Serve the site's own page for what is not there, else the single page of an application.

    `after_error`: where Caddy refused to look, it would give its own status to the page, whatever was asked.
    """
    single = {"status_code": 200} if after_error else {}
    return [
        {"handle": [_FOR_A_PAGE]},
        _fallback(settings, OWN_404, [_WHOLE, _files(_root(settings), status_code=404)]),
        _fallback(settings, SINGLE_PAGE, [*([_WHOLE] if after_error else []), _files(_root(settings), **single)]),
    ]


def _fallback(settings: Settings, name: str, handle: list[dict[str, Any]]) -> Route:
    there = {"handler": "rewrite", "uri": f"/{name}"}
    return {"match": [file_is(_root(settings), f"/{name}")], "handle": [there, *handle], "terminal": True}


# A page whose status is set has to be sent whole: "not modified" or "partial" would be overwritten with that status.
_WHOLE = {
    "handler": "headers",
    "request": {
        "delete": ["If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range"],
    },
}


def literal(path: Path) -> str:
    """Return the path so that Caddy takes no part of it for a placeholder."""
    return str(path).replace("{", r"\{").replace("}", r"\}")
