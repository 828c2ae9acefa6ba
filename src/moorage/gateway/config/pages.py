"""Responses of the gateway itself: HTML for browsers, JSON errors for others.

Nothing here comes from a request except its validated id: these responses are served on the hosts of tenants.
"""

from __future__ import annotations

import json
from typing import Any

Route = dict[str, Any]

NOTHING_HERE = "Nothing is published at this address"
RETRY_AFTER_S = 300  # A disabled project may be enabled again; a crawler should not retry every second.


def subroute(routes: list[Route]) -> dict[str, Any]:
    """Return a handler with its own routes; unanswered requests continue after it."""
    return {"handler": "subroute", "routes": routes}


def identified() -> list[Route]:
    """Set `{http.vars.request_id}`: the client's id if it is safe, else a new one."""
    sent = {"header_regexp": {"X-Request-Id": {"name": "sent_id", "pattern": "^[A-Za-z0-9._-]{1,64}$"}}}
    # The match is kept, not the header: the other value of a repeated header may be anything.
    return [
        {"handle": [{"handler": "vars", "request_id": "{http.request.uuid}"}]},
        {"match": [sent], "handle": [{"handler": "vars", "request_id": "{http.regexp.sent_id.0}"}]},
    ]


def not_found() -> dict[str, Any]:
    """Return the handler for 404, as a page for browsers and as JSON for others."""
    is_browser = {"header": {"Accept": ["*text/html*"]}}
    page = _page(404, "Not found", f"{NOTHING_HERE}.", {})
    return _answered(
        [{"match": [is_browser], "handle": [page]}, {"handle": [_envelope(404, "not_found", NOTHING_HERE)]}]
    )


def disabled() -> dict[str, Any]:
    """Return the handler for a disabled project."""
    retry = {"Retry-After": [str(RETRY_AFTER_S)]}
    text = "This site is switched off at the moment. Please come back later."
    return _answered([{"handle": [_page(503, "Not available", text, retry)]}])


def app_down() -> dict[str, Any]:
    """Return the handler for an app that cannot be reached."""
    is_browser = {"header": {"Accept": ["*text/html*"]}}
    page = _page(502, "The app does not answer", "Please try again in a moment.", {})
    return _answered(
        [{"match": [is_browser], "handle": [page]}, {"handle": [_envelope(502, "internal", "The app does not answer")]}]
    )


def bad_request() -> dict[str, Any]:
    return _answered([{"handle": [_envelope(400, "bad_request", "The request is malformed")]}])


def too_slow() -> dict[str, Any]:
    """Return the handler for a stalled body; closes, so the rest is no new request."""
    answer = _envelope(408, "bad_request", "The request did not arrive in time")
    answer["headers"]["Connection"] = ["close"]
    return _answered([{"handle": [answer]}])


def no_answer() -> dict[str, Any]:
    return _answered([{"handle": [_envelope(502, "internal", "The server of this address does not answer")]}])


def _answered(routes: list[Route]) -> dict[str, Any]:
    """Add a request id, and remove headers that were set for a file."""
    undone = {"handler": "headers", "response": {"delete": ["Server", "Content-Type", "Allow", "Vary", "Etag"]}}
    return subroute([{"handle": [undone]}, *identified(), *routes])


def _envelope(status: int, code: str, message: str) -> dict[str, Any]:
    body = {"success": False, "error": {"code": code, "message": message, "traceId": "{http.vars.request_id}"}}
    return _static(status, "application/json", json.dumps(body, separators=(",", ":")), {})


def _page(status: int, title: str, text: str, headers: dict[str, list[str]]) -> dict[str, Any]:
    # Without a style sheet: Caddy would read its braces as placeholders.
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><body style="font:1em/1.5 sans-serif;margin:15vh auto;'
        f'max-width:30em;padding:0 1em"><h1>{title}</h1><p>{text}</p></body></html>\n'
    )
    return _static(status, "text/html; charset=utf-8", body, headers)


def _static(status: int, kind: str, body: str, headers: dict[str, list[str]]) -> dict[str, Any]:
    always = {
        "Content-Type": [kind],
        "Cache-Control": ["no-store"],
        "X-Content-Type-Options": ["nosniff"],
        "X-Request-Id": ["{http.vars.request_id}"],
    }
    return {"handler": "static_response", "status_code": status, "headers": always | headers, "body": body}
