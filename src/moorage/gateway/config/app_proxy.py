"""How a request reaches an app: the handlers of Caddy between a visitor and 127.0.0.1.

The address is read from the name of a file (see `app_routes.py`), so a deployment loads nothing. Listing a folder costs
a request half as much again as all the rest, so a configuration that is loaded for another reason brings along the
names of that moment; each is good until there is a file that says that it was left, and to find no file is cheap. Hosts
with several replicas are always configured: Caddy counts connections and failures only for addresses it knows. What an
app says goes through as it is, compressed or not, and as soon as it is said: Caddy flushes what has no length.

The routes here are meant to stand side by side: those within a subroute Caddy puts together anew for each request, and
that costs about a microsecond for each of them.
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

WAKER = "waker"  # stands in the name of a file where the app sleeps
DIAL_TIMEOUT = "3s"
# Shorter than what servers wait before they close a connection that is idle (gunicorn 2 s, Node.js and uvicorn 5 s): a
# request must not be sent into one that is closing. An old replica is also left that much sooner.
IDLE = "1500ms"
IDLE_CONNECTIONS = 256  # for each app: as many clients at once do not connect anew for each request
TRY_FOR = "5s"  # An app that crashed is started again in less.
TRY_EVERY = "100ms"
# A load of configuration ends the WebSockets that came before it, after this. Until then it is kept in memory.
STREAMS_KEPT = "10m"
FAILED_FOR, MAX_FAILS = "10s", 2

# With tabs, as in `rules.py`: no host and no address has one.
_UPSTREAM, _KNOWN, _LEFT = "{app\tupstream}", "{app\tknown}", "{app\tleft}"

_ALWAYS_THERE = "/run/caddy.json"  # below the data folder: what Caddy was started with


def waker_socket(settings: Settings) -> Path:
    """Return where whoever wakes apps takes the requests for those that sleep."""
    return settings.folder("run") / "waker.sock"


def left_name(name: str) -> str:
    """Return the name of the file that says that the app is no longer where the other one says."""
    return name.replace("~", "-left-")


def direct_routes(settings: Settings, names: Mapping[str, str], before: Sequence[dict[str, Any]] = ()) -> list[Route]:
    """Return the routes to the apps of these hosts, by the names in their folders now.

    Other hosts pay for being told apart three times. `before` is handled ahead of all else.
    """
    if not names:
        return []
    # Caddy tries the matchers of one set in an order that it draws at each load, but those of several sets in theirs: a
    # file must not be looked for before it is known that the host is one of these.
    is_other = {"not": [host_is(names)]}
    was_left = file_is(literal(settings.data), _LEFT)
    found = _app_route(settings)
    return [
        {"match": [host_is(names)], "handle": [*before, _table(settings, names)]},
        {"match": [{"not": [is_other, was_left]}], "handle": _PROXY_TO_KNOWN, "terminal": True},
        {**found, "match": [{"not": [is_other, {"not": found["match"]}]}]},
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
        # A host in upper case has no line. For it this is as if its name had been left.
        "defaults": [_ALWAYS_THERE, ""],
    }


def _dial(settings: Settings, name: str) -> str:
    address = name.partition("~")[2]
    return f"unix/{literal(waker_socket(settings))}" if address == WAKER else address


def late_routes(settings: Settings) -> list[Route]:
    """Return the route to the app of any host, for after no file was found: new hosts need no configuration."""
    return [_app_route(settings, _UNSAID)]


def _app_route(settings: Settings, *before: dict[str, Any]) -> Route:
    there = file_is(literal(settings.folder("apps")), "/{http.request.host}/*~*")
    # What a regular expression gives is not looked through for placeholders, only for `$`.
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
    """Return the route to an app with several replicas: to the least busy, and not to one that refuses."""
    balanced = {"selection_policy": {"policy": "least_conn"}}
    health = {"health_checks": {"passive": {"fail_duration": FAILED_FOR, "max_fails": MAX_FAILS}}}
    # Only to say in the routes for errors that this is an app.
    named = {"handler": "map", "source": "", "destinations": [_UPSTREAM], "mappings": [], "defaults": [addresses[0]]}
    proxy = _proxy(addresses, balanced) | health
    return {"match": [{"host": [host]}], "handle": [named, _WITHOUT_VIA, proxy], "terminal": True}


def error_routes() -> list[Route]:
    """Say that an app does not answer, whatever the reason; what it says itself is no error here."""
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
            # Else the app would compress for clients that did not ask for it, and Caddy undo it.
            "compression": False,
        },
        "load_balancing": {
            "try_duration": TRY_FOR,
            "try_interval": TRY_EVERY,
            # What could not be sent at all is always tried again. Nothing else is: it may be what ended the app.
            "retry_match": [{"method": [""]}],
            **(balancing or {}),
        },
        "stream_close_delay": STREAMS_KEPT,
    }


# What was about to be said of a file.
_UNSAID = {"handler": "headers", "response": {"delete": ["Cache-Control", "Content-Type", "X-Content-Type-Options"]}}

# The proxy names itself as it writes the answer, so this has to wait until then.
_WITHOUT_VIA = {"handler": "headers", "response": {"deferred": True, "delete": ["Via"]}}

_PROXY_TO_KNOWN = [_WITHOUT_VIA, _proxy([_KNOWN])]
