"""Time limits of request bodies: a stalled upload is aborted, a slow one is not.

Caddy has two limits, and each has a gap.

- `read_timeout` is one deadline for a whole body. It also bounds the time that Go's server waits for the rest of a body
  that no handler reads. It applies to all bodies, unless another limit moves it.
- The handler `timeouts` moves the deadline at every read, so only a pause aborts an upload. After a pause Caddy 2.11.7
  removes the deadline, and Go's server waits without a limit for the rest of a body with a `Content-Length` if that
  rest is at most 256 KB. So only long bodies get this limit: a client has to send the bytes before that rest first.

The server-wide `read_idle_timeout` has the same gap, for short bodies too. It is on by default and disabled here.

A third gap: if a client sends `Expect: 100-continue` and the response precedes the body, Go's server removes the
deadline as well. Such a body, if short, is read before the request is proxied.
"""

from __future__ import annotations

from typing import Any

from moorage.gateway.config import pages
from moorage.gateway.config.pages import Route, subroute
from moorage.settings import Settings

# Bytes. A short body must arrive completely within the timeout: 17 KB/s for the longest one at 30 s.
LONG_BODY = 500_000
_LONG = "^([5-9][0-9]{5}|[0-9]{7,})$"
# The edge checks for pauses every second; its response is more specific, so it gets to answer first.
EDGE_HEAD_START_S = 2.0
_NANOSECONDS = 1_000_000_000
_OFF = -1


def limits(settings: Settings) -> dict[str, Any]:
    """Return the body limits of Caddy's server."""
    return {"read_timeout": int(settings.body_timeout_s * _NANOSECONDS), "read_idle_timeout": _OFF}


def routes(settings: Settings) -> list[Route]:
    """Return the routes that set limits; they precede all routes that read a body."""
    timeout = int((settings.body_timeout_s + EDGE_HEAD_START_S) * _NANOSECONDS)
    sends = {"not": [{"method": ["GET", "HEAD"]}]}
    is_long = {"vars_regexp": {"{http.request.header.Content-Length}": {"pattern": _LONG}}}
    # Long bodies, and bodies of unknown length, have no total limit, only a limit for each pause.
    pause_limit = {
        "match": [sends | {"header": {"Content-Length": None}}, sends | is_long],
        "handle": [{"handler": "timeouts", "read_timeout": timeout}],
    }
    # Comparing the body with a text makes Caddy read it into memory for the next handlers. No body equals a tab.
    is_read = {"vars": {"{http.request.body}": ["\t"]}}
    read_early = {
        "match": [{"header": {"Expect": ["*"], "Content-Length": ["*"]}, "not": [is_long]}],
        "handle": [subroute([{"match": [is_read], "handle": []}])],
    }
    return [pause_limit, read_early]


def stalled() -> Route:
    """Answer 408 if the body stalled while it was proxied: the client caused it."""
    # Only client connections have a read deadline.
    is_late = {"vars_regexp": {"{http.error.message}": {"pattern": r"\bread (tcp|unix)\b.*i/o timeout$"}}}
    return {"match": [is_late], "handle": [pages.too_slow()], "terminal": True}
