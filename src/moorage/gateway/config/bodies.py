"""Time limits of request bodies at the public gateway: a stalled upload ends, a slow one that goes on does not.

Caddy has two limits, and each has a gap.

- `read_timeout` is one deadline for a whole body. It also bounds the time that Go's server waits for the rest of a body
  that no handler reads. It holds for all bodies, unless another limit moves it.
- The handler `timeouts` moves the deadline at every read, so only a pause ends an upload. After a pause Caddy 2.11.7
  removes the deadline, and Go's server waits without a limit for the rest of a body with a `Content-Length` where that
  rest is at most 256 KB. So only long bodies have this limit, and to get there takes the bytes before that rest.

The server-wide `read_idle_timeout` has the same gap, for short bodies too. It is on by default and switched off here.

A third gap: where a client sends `Expect: 100-continue` and the answer comes before the body, Go's server removes the
deadline as well. Such a body is read before the request is passed on, if it is short.
"""

from __future__ import annotations

from typing import Any

from moorage.gateway.config import pages
from moorage.gateway.config.pages import Route, subroute
from moorage.settings import Settings

# Bytes. A short body has to be complete within the timeout, which is 17 KB a second for the longest at 30 seconds.
LONG_BODY = 500_000
_LONG = "^([5-9][0-9]{5}|[0-9]{7,})$"
# The function gateway looks for pauses every second, and its own answer is the better one.
SLACK_S = 2.0
_NANOSECONDS = 1_000_000_000
_OFF = -1


def limits(settings: Settings) -> dict[str, Any]:
    """Return the limits of the server."""
    return {"read_timeout": int(settings.body_timeout_s * _NANOSECONDS), "read_idle_timeout": _OFF}


def routes(settings: Settings) -> list[Route]:
    """Return the routes that come before all that read a body; none of them answers."""
    timeout = int((settings.body_timeout_s + SLACK_S) * _NANOSECONDS)
    sends = {"not": [{"method": ["GET", "HEAD"]}]}
    is_long = {"vars_regexp": {"{http.request.header.Content-Length}": {"pattern": _LONG}}}
    # Long bodies, and bodies of unknown length, may take as long as they need while no pause is too long.
    unhurried = {
        "match": [sends | {"header": {"Content-Length": None}}, sends | is_long],
        "handle": [{"handler": "timeouts", "read_timeout": timeout}],
    }
    # To compare the body with a text reads it, and leaves it in memory for the handlers. It equals nothing like this.
    is_read = {"vars": {"{http.request.body}": ["\t"]}}
    expected = {
        "match": [{"header": {"Expect": ["*"], "Content-Length": ["*"]}, "not": [is_long]}],
        "handle": [subroute([{"match": [is_read], "handle": []}])],
    }
    return [unhurried, expected]


def stalled() -> Route:
    """Answer where the body of a request stalled while it was passed on: it is the client's fault, not the app's."""
    # Only connections of clients are read with a deadline.
    is_late = {"vars_regexp": {"{http.error.message}": {"pattern": r"\bread (tcp|unix)\b.*i/o timeout$"}}}
    return {"match": [is_late], "handle": [pages.too_slow()], "terminal": True}
