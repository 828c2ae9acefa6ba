"""What the gateway itself says: small pages for people, the platform's envelope for programs.

Nothing here comes from a request except its id, which is safe by then: these answers go out on the hosts of tenants.
"""

from __future__ import annotations

import json
from typing import Any

Route = dict[str, Any]

NOTHING_HERE = "Nothing is published at this address"
RETRY_AFTER_S = 300  # Whoever switched a project off may switch it on again; a crawler should not ask every second.


def subroute(routes: list[Route]) -> dict[str, Any]:
    """Return a handler that tries routes of its own; what none of them answers goes on after it."""
    return {"handler": "subroute", "routes": routes}


def identified() -> list[Route]:
    """Keep a safe request id the client sent, else make one: `{http.vars.request_id}`."""
    sent = {"header_regexp": {"X-Request-Id": {"name": "sent_id", "pattern": "^[A-Za-z0-9._-]{1,64}$"}}}
    # The part that matched is kept, not the header: of a header sent twice the other value may be anything.
    return [
        {"handle": [{"handler": "vars", "request_id": "{http.request.uuid}"}]},
        {"match": [sent], "handle": [{"handler": "vars", "request_id": "{http.regexp.sent_id.0}"}]},
    ]


def not_found() -> dict[str, Any]:
    """Return the handler that says that there is nothing, to people in a page and to programs in the envelope."""
    for_people = {"header": {"Accept": ["*text/html*"]}}
    page = _page(404, "Not found", f"{NOTHING_HERE}.", {})
    return _answered(
        [{"match": [for_people], "handle": [page]}, {"handle": [_envelope(404, "not_found", NOTHING_HERE)]}]
    )


def disabled() -> dict[str, Any]:
    """Return the handler that says that a project is switched off."""
    retry = {"Retry-After": [str(RETRY_AFTER_S)]}
    text = "This site is switched off at the moment. Please come back later."
    return _answered([{"handle": [_page(503, "Not available", text, retry)]}])


def app_down() -> dict[str, Any]:
    """Return the handler that says that an app cannot be reached."""
    for_people = {"header": {"Accept": ["*text/html*"]}}
    page = _page(502, "The app does not answer", "Please try again in a moment.", {})
    return _answered(
        [{"match": [for_people], "handle": [page]}, {"handle": [_envelope(502, "internal", "The app does not answer")]}]
    )


def bad_request() -> dict[str, Any]:
    return _answered([{"handle": [_envelope(400, "bad_request", "The request is malformed")]}])


def too_slow() -> dict[str, Any]:
    """Return the handler that says that a body stalled, and closes: what still comes must not pass for a request."""
    answer = _envelope(408, "bad_request", "The request did not arrive in time")
    answer["headers"]["Connection"] = ["close"]
    return _answered([{"handle": [answer]}])


def no_answer() -> dict[str, Any]:
    return _answered([{"handle": [_envelope(502, "internal", "What serves this address does not answer")]}])


def _answered(routes: list[Route]) -> dict[str, Any]:
    """Answer with an id. What was about to be said of a file is taken back: it is not what is sent."""
    undone = {"handler": "headers", "response": {"delete": ["Server", "Content-Type", "Allow", "Vary", "Etag"]}}
    return subroute([{"handle": [undone]}, *identified(), *routes])


def _envelope(status: int, code: str, message: str) -> dict[str, Any]:
    body = {"success": False, "error": {"code": code, "message": message, "traceId": "{http.vars.request_id}"}}
    return _static(status, "application/json", json.dumps(body, separators=(",", ":")), {})


def _page(status: int, title: str, text: str, headers: dict[str, list[str]]) -> dict[str, Any]:
    # Without a style sheet: its braces would be placeholders to Caddy.
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
