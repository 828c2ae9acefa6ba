"""Answers of the platform itself to a failed request: HTML for browsers, JSON for programs.

The gateway, the edge and the API use this one template. The edge keeps its memory small, so this module imports neither
`hashlib` nor `html`, which no other module of the edge needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

HTML = "text/html; charset=utf-8"
JSON = "application/json"

STYLE = (
    ":root{color-scheme:light dark;--back:#f5f7f9;--card:#fff;--text:#1b2733;--soft:#5a6b7b;--line:#dde4ea}"
    "@media(prefers-color-scheme:dark){:root{--back:#10161c;--card:#19232c;--text:#dfe7ee;--soft:#93a4b3;"
    "--line:#2a3641}}"
    "*{box-sizing:border-box}"
    "body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1rem;background:var(--back);"
    "color:var(--text);font:1rem/1.55 system-ui,sans-serif;overflow-wrap:anywhere}"
    "main{width:100%;max-width:34rem;padding:2rem;background:var(--card);border:1px solid var(--line);"
    "border-radius:12px}"
    "h1{margin:0 0 .75rem;font-size:1.5rem;line-height:1.25}"
    "p{margin:.5rem 0}"
    ".status{margin:0 0 .25rem;font-weight:600;letter-spacing:.08em}"
    ".status,.hint,footer{color:var(--soft);font-size:.9rem}"
    "footer{margin-top:1.5rem;padding-top:1rem;border-top:1px solid var(--line)}"
    "code{font:.875em/1.5 ui-monospace,Menlo,Consolas,monospace}"
)
# For the Content-Security-Policy; a test compares it with STYLE.
STYLE_HASH = "sha256-UluFqSfwoCEBvWkl7hI11LMPBXEX4kmuZU80n+nLw0E="
POLICY = f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """One answer, in both forms."""

    status: int
    code: str  # of the error envelope
    title: str  # heading of the page
    message: str  # sentence without a period, in the envelope and on the page
    hint: str = ""  # next step, only on the page
    retry_after_s: int = 0  # sent as a header unless it is 0
    reload_s: int = 0  # the browser loads the page again after this time, unless it is 0


def accepts_html(accept: str) -> bool:
    """Return whether a client is a browser: it names HTML in its `Accept` header."""
    return "text/html" in accept.lower()


def to_html(page: ErrorPage, request_id: str) -> str:
    reload = f'<meta http-equiv="refresh" content="{page.reload_s}">' if page.reload_s else ""
    hint = f'<p class="hint">{_escape(page.hint)}</p>' if page.hint else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escape(page.title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"{reload}<style>{STYLE}</style></head>\n"
        f'<body><main><p class="status">{page.status}</p><h1>{_escape(page.title)}</h1>'
        f"<p>{_escape(page.message)}.</p>{hint}"
        f"<footer>Request <code>{_escape(request_id)}</code></footer></main></body></html>\n"
    )


def to_json(page: ErrorPage, request_id: str) -> str:
    error = {"code": page.code, "message": page.message, "traceId": request_id}
    return json.dumps({"success": False, "error": error}, separators=(",", ":"))


def headers_of(page: ErrorPage, content_type: str) -> list[tuple[str, str]]:
    """Return the headers of an answer without its length and its request id."""
    headers = [
        ("Content-Type", content_type),
        ("Cache-Control", "no-store"),
        ("Vary", "Accept"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if content_type == HTML:
        headers += [("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer")]
    if page.retry_after_s:
        headers.append(("Retry-After", str(page.retry_after_s)))
    return headers


def _escape(text: str) -> str:
    return text.translate(_ESCAPED)
