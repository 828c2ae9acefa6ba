"""Caddy's handlers that proxy requests to apps on 127.0.0.1.

The address of an app is read from a file name (see `app_routes.py`), so a deployment loads nothing. Listing that folder
makes a request half as expensive again. So a configuration that is loaded for another reason also contains the current
names; each is valid until its "left" file exists, and the check for a missing file is cheap. Hosts with several
replicas are always configured: Caddy counts connections and failures only for configured addresses. The response of an
app passes unchanged, compressed or not, and without delay: Caddy flushes responses without a length.

The routes of this module are top-level routes: Caddy compiles the routes of a subroute at each request, which costs
about 1 us per route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.gateway.config import pages
from moorage.gateway.config.names import host_is
from moorage.gateway.config.pages import Route
from moorage.gateway.config.static import file_is, literal
from moorage.settings import Settings

WAKER = "waker"  # in a file name: the app sleeps
DIAL_TIMEOUT = "3s"
# Shorter than the keep-alive timeout of common servers (gunicorn 2 s, Node.js and uvicorn 5 s): a request must not be
# sent on a connection that the app is closing. An old replica also loses its connections sooner.
IDLE = "1500ms"
IDLE_CONNECTIONS = 256  # per app: up to this many concurrent clients reuse connections
TRY_FOR = "5s"  # A crashed app restarts in less.
TRY_EVERY = "100ms"
# After a load, Caddy closes older WebSockets after this time. Until then it keeps the old configuration in memory.
STREAMS_KEPT = "10m"
FAILED_FOR, MAX_FAILS = "10s", 2

# The names contain a tab, as in `rules.py`: no host and no address contains one.
_UPSTREAM, _KNOWN, _LEFT = "{app\tupstream}", "{app\tknown}", "{app\tleft}"

_ALWAYS_THERE = "/run/caddy.json"  # below the data folder; exists while Caddy runs


def waker_socket(settings: Settings) -> Path:
    """Return the socket of the waker, which accepts the requests to sleeping apps."""
    return settings.folder("run") / "waker.sock"


def left_name(name: str) -> str:
    """Return the name of the file that marks a route's name as outdated."""
    return name.replace("~", "-left-")


def direct_routes(settings: Settings, names: Mapping[str, str], before: Sequence[dict[str, Any]] = ()) -> list[Route]:
    """Return the routes to the apps of these hosts, from the current file names.

    Requests to other hosts pay for three host matchers. The handlers in `before` run first.
    """
    if not names:
        return []
    # Caddy orders the matchers of one set randomly at each load, but keeps the order of several sets. The file must not
    # be looked up before the host is known to be one of these.
    is_other = {"not": [host_is(names)]}
    was_left = file_is(literal(settings.data), _LEFT)
    by_file = _app_route(settings)
    return [
        {"match": [host_is(names)], "handle": [*before, _table(settings, names)]},
        {"match": [{"not": [is_other, was_left]}], "handle": _PROXY_TO_KNOWN, "terminal": True},
        {**by_file, "match": [{"not": [is_other, {"not": by_file["match"]}]}]},
    ]


def _table(settings: Settings, names: Mapping[str, str]) -> dict[str, Any]:
    lines = [
        {"input": host, "outputs": [f"/apps/{host}/{left_name(name)}", _dial(settings, name)]}
        for host, name in sorted(names.items())
        if name
    ]
    return {
        "handler": "map",
        "source": "{http.request.host}",
        "destinations": [_LEFT, _KNOWN],
        "mappings": lines,
        # A host in upper case is not in the map. This default makes it an outdated name.
        "defaults": [_ALWAYS_THERE, ""],
    }


def _dial(settings: Settings, name: str) -> str:
    address = name.partition("~")[2]
    return f"unix/{literal(waker_socket(settings))}" if address == WAKER else address


def late_routes(settings: Settings) -> list[Route]:
    """Return the route to the app of any host; new hosts need no load."""
    return [_app_route(settings, _WITHOUT_FILE_HEADERS)]


def _app_route(settings: Settings, *before: dict[str, Any]) -> Route:
    there = file_is(literal(settings.folder("apps")), "/{http.request.host}/*~*")
    # Caddy replaces no placeholders in the output of a regular expression, only `$`.
    waker = f"unix/{waker_socket(settings)}".replace("$", "$$")
    address = {
        "handler": "map",
        "source": "{http.matchers.file.relative}",
        "destinations": [_UPSTREAM],
        "mappings": [
            {"input_regexp": "~([^~/]*:[0-9]+)$", "outputs": ["${1}"]},
            {"input_regexp": f"~{WAKER}$", "outputs": [waker]},
        ],
        "defaults": [""],
    }
    return {"match": [there], "handle": [*before, address, _WITHOUT_VIA, _proxy([_UPSTREAM])], "terminal": True}


def replicas_route(host: str, addresses: Sequence[str]) -> Route:
    """Return the route to several replicas: least connections, no failed ones."""
    balanced = {"selection_policy": {"policy": "least_conn"}}
    health = {"health_checks": {"passive": {"fail_duration": FAILED_FOR, "max_fails": MAX_FAILS}}}
    # Marks the request as one to an app for the error routes.
    named = {"handler": "map", "source": "", "destinations": [_UPSTREAM], "mappings": [], "defaults": [addresses[0]]}
    proxy = _proxy(addresses, balanced) | health
    return {"match": [{"host": [host]}], "handle": [named, _WITHOUT_VIA, proxy], "terminal": True}


def error_routes() -> list[Route]:
    """Answer 502 for any proxy error; an error response of the app itself passes."""
    is_app = [{"not": [{"vars": {name: [""]}}]} for name in (_UPSTREAM, _KNOWN)]
    return [{"match": is_app, "handle": [pages.app_down()], "terminal": True}]


def _proxy(addresses: Sequence[str], balancing: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": address} for address in addresses],
        "transport": {
            "protocol": "http",
            "dial_timeout": DIAL_TIMEOUT,
            "keep_alive": {"idle_timeout": IDLE, "max_idle_conns_per_host": IDLE_CONNECTIONS},
            # With compression on, Caddy would request compressed responses for all clients and decompress them.
            "compression": False,
        },
        "load_balancing": {
            "try_duration": TRY_FOR,
            "try_interval": TRY_EVERY,
            # A request that could not be sent is always retried. No other is: it may have crashed the app.
            "retry_match": [{"method": [""]}],
            **(balancing or {}),
        },
        "stream_close_delay": STREAMS_KEPT,
    }


# Removes the headers that were set for a file.
_WITHOUT_FILE_HEADERS = {
    "handler": "headers",
    "response": {"delete": ["Cache-Control", "Content-Type", "X-Content-Type-Options"]},
}

# `deferred`: the proxy adds `Via` while it writes the response.
_WITHOUT_VIA = {"handler": "headers", "response": {"deferred": True, "delete": ["Via"]}}

_PROXY_TO_KNOWN = [_WITHOUT_VIA, _proxy([_KNOWN])]
