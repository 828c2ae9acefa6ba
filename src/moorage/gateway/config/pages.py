"""Responses of the gateway itself: HTML for browsers, JSON errors for others.

Nothing here comes from a request except its validated id: these responses are served on the hosts of tenants. They say
the same to every client. The reason of a failed build is in the API only, because the gateway knows no users.
"""

from __future__ import annotations

from typing import Any

from moorage.core.net import error_pages
from moorage.core.net.error_pages import ErrorPage
from moorage.settings import Settings

Route = dict[str, Any]

NOTHING_HERE = "Nothing is published at this address"
RETRY_AFTER_S = 300  # A disabled project may be enabled again; a crawler should not retry every second.
BUILD_RELOAD_S = 5
OWNER_HINT = "Is it your project? The console shows its deployments, with their logs and errors."

_REQUEST_ID = "{http.vars.request_id}"
_BROWSER = {"header": {"Accept": ["*text/html*"]}}
_WANTS_JSON = {"header": {"Accept": ["*json*"]}}


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
    """Return the handler for a host without a project, and for paths that no site may serve."""
    return _answered(ErrorPage(404, "not_found", "Not found", NOTHING_HERE, "Check the spelling of the address."))


def no_page() -> dict[str, Any]:
    """Return the handler for a published site without the requested file."""
    return _answered(ErrorPage(404, "not_found", "Not found", "This site has no page at this address"))


def no_start_page() -> dict[str, Any]:
    """Return the handler for the root of a published site without an index.html."""
    message = "This site has no start page: it was published without an index.html"
    return _answered(ErrorPage(404, "not_found", "No start page", message))


def unpublished(settings: Settings) -> dict[str, Any]:
    """Return the handler for a project without a release, whether a build failed or none was requested."""
    message = "This project is not published yet"
    page = ErrorPage(404, "not_found", "Not published yet", message, OWNER_HINT, _console_url(settings))
    return _answered(page)


def building(settings: Settings) -> dict[str, Any]:
    """Return the handler for a project whose first release is queued or being built."""
    message = "This project is being built, and is published here when the build has succeeded"
    url = _console_url(settings)
    return _answered(ErrorPage(404, "not_found", "Being built", message, OWNER_HINT, url, reload_s=BUILD_RELOAD_S))


def _console_url(settings: Settings) -> str:
    """Return the list of projects; the pages of a project are the same for all hosts, so they name none."""
    return f"{settings.api_url}/projects"


def disabled() -> dict[str, Any]:
    """Return the handler for a disabled project: HTML, unless the client asks for JSON."""
    message = "This site is switched off at the moment. Please come back later"
    page = ErrorPage(503, "internal", "Not available", message, retry_after_s=RETRY_AFTER_S)
    as_html, as_json = _as_html(page), _as_json(page)
    return _with_id([{"match": [_WANTS_JSON | {"not": [_BROWSER]}], "handle": [as_json]}, {"handle": [as_html]}])


def app_down() -> dict[str, Any]:
    """Return the handler for an app that cannot be reached."""
    title = "The app does not answer"
    return _answered(ErrorPage(502, "internal", title, title, "Please try again in a moment."))


def bad_request() -> dict[str, Any]:
    return _answered(ErrorPage(400, "bad_request", "Bad request", "The request is malformed"))


def long_path() -> dict[str, Any]:
    return _answered(ErrorPage(414, "bad_request", "Address too long", "The path is too long"))


def too_slow() -> dict[str, Any]:
    """Return the handler for a stalled body; closes, so the rest is no new request."""
    page = ErrorPage(408, "bad_request", "Too slow", "The request did not arrive in time")
    return _answered(page, {"Connection": ["close"]})


def no_answer() -> dict[str, Any]:
    return _answered(ErrorPage(502, "internal", "No answer", "The server of this address does not answer"))


def _answered(page: ErrorPage, extra: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Answer a browser with HTML and others with JSON."""
    as_html, as_json = _as_html(page), _as_json(page)
    for answer in (as_html, as_json):
        answer["headers"] |= extra or {}
    return _with_id([{"match": [_BROWSER], "handle": [as_html]}, {"handle": [as_json]}])


def _with_id(routes: list[Route]) -> dict[str, Any]:
    """Add a request id, and remove headers that were set for a file."""
    undone = {"handler": "headers", "response": {"delete": ["Server", "Content-Type", "Allow", "Vary", "Etag"]}}
    return subroute([{"handle": [undone]}, *identified(), *routes])


def _as_html(page: ErrorPage) -> dict[str, Any]:
    # Caddy reads braces as placeholders; those of the style sheet are escaped.
    before, after = error_pages.to_html(page, "\0").split("\0")
    body = _literal(before) + _REQUEST_ID + _literal(after)
    return _static(page, error_pages.HTML, body)


def _as_json(page: ErrorPage) -> dict[str, Any]:
    return _static(page, error_pages.JSON, error_pages.to_json(page, _REQUEST_ID))


def _literal(text: str) -> str:
    return text.replace("{", r"\{").replace("}", r"\}")


def _static(page: ErrorPage, kind: str, body: str) -> dict[str, Any]:
    headers = {name: [value] for name, value in error_pages.headers_of(page, kind)}
    headers["X-Request-Id"] = [_REQUEST_ID]
    return {"handler": "static_response", "status_code": page.status, "headers": headers, "body": body}
