"""Answers of the platform itself to a failed request: HTML for browsers, JSON for programs.

The gateway, the edge and the API use this one template. The edge keeps its memory small, so this module imports neither
`hashlib` nor `html`, which no other module of the edge needs.
"""

from __future__ import annotations

import json

from moorage.core.kit.records import dataclass

HTML = "text/html; charset=utf-8"
JSON = "application/json"

# Colours and sizes of the console, without its fonts: the pages load nothing.
STYLE = (
    ":root{color-scheme:light dark;--back:#f9f9fb;--card:#fff;--text:#1c2024;--soft:#60646c;--line:#e0e1e6;"
    "--accent:#00796b;--on:#fff;--warn:#ab6400;--bad:#c33113}"
    "@media(prefers-color-scheme:dark){:root{--back:#111113;--card:#151719;--text:#edeef0;--soft:#b0b4ba;"
    "--line:#24282b;--accent:#12a594;--on:#06110f;--warn:#ffca16;--bad:#ff977d}}"
    "*{box-sizing:border-box;margin:0}"
    "body{min-height:100vh;display:grid;place-items:center;padding:16px;background:var(--back);color:var(--text);"
    'font:14px/20px "Inter Variable",Inter,system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere}'
    "main{width:100%;max-width:480px;background:var(--card);border:1px solid var(--line);border-radius:8px}"
    "section{display:grid;gap:8px;padding:28px}"
    "h1{font-size:20px;line-height:28px;font-weight:600;letter-spacing:-.01em}"
    ".status{display:flex;align-items:center;gap:8px;font-size:13px;font-variant-numeric:tabular-nums}"
    "svg{flex:none}.busy svg{color:var(--warn)}.bad svg{color:var(--bad)}"
    ".status,.hint,footer{color:var(--soft)}"
    "a{justify-self:start;margin-top:12px;padding:6px 12px;border-radius:6px;background:var(--accent);"
    "color:var(--on);font-weight:500;text-decoration:none}"
    "footer{padding:12px 28px;border-top:1px solid var(--line);font-size:13px}"
    'code{font:12.5px/18px "JetBrains Mono Variable",ui-monospace,Menlo,Consolas,monospace}'
)
# For the Content-Security-Policy; a test compares it with STYLE.
STYLE_HASH = "sha256-mgDkL+GOGlnYfXdytKI2NJZpk2s3Cg6JURLwAzV/GU0="
POLICY = f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Symbols of a state, as in the console: in progress, failed, neither.
_MARKS = {
    "busy": '<circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.6"/>'
    '<path d="M6 1.500a4.500 4.500 0 0 1 0 9z" fill="currentColor"/>',
    "bad": '<path d="m2.500 2.500 7 7m0-7-7 7" stroke="currentColor" stroke-width="2.200" stroke-linecap="round"/>',
    "off": '<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/>',
}
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """One answer, in both forms."""

    status: int
    code: str  # of the error envelope
    title: str  # heading of the page
    message: str  # sentence without a period, in the envelope and on the page
    hint: str = ""  # next step, only on the page
    console_url: str = ""  # page of the console for the owner, shown as a button unless it is empty
    retry_after_s: int = 0  # sent as a header unless it is 0
    reload_s: int = 0  # the browser loads the page again after this time, unless it is 0


def accepts_html(accept: str) -> bool:
    """Return whether a client is a browser: it names HTML in its `Accept` header."""
    return "text/html" in accept.lower()


def to_html(page: ErrorPage, request_id: str) -> str:
    reload = f'<meta http-equiv="refresh" content="{page.reload_s}">' if page.reload_s else ""
    hint = f'<p class="hint">{_escape(page.hint)}</p>' if page.hint else ""
    link = f'<a href="{_escape(page.console_url)}">Open the console</a>' if page.console_url else ""
    look = "busy" if page.reload_s else "bad" if page.status >= 500 else "off"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escape(page.title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"{reload}<style>{STYLE}</style></head>\n"
        f'<body><main><section><p class="status {look}">'
        f'<svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">{_MARKS[look]}</svg>{page.status}</p>'
        f"<h1>{_escape(page.title)}</h1><p>{_escape(page.message)}.</p>{hint}{link}</section>"
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
