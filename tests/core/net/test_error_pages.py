"""The template of the platform's own answers: safe text, strict policy, one message in both forms."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest

from moorage.core.net import error_pages
from moorage.core.net.error_pages import ErrorPage

EVIL = '</p><script>alert("x")</script>\'&{http.request.host}'


def test_the_policy_allows_the_style_sheet_of_the_page_and_nothing_else() -> None:
    page = error_pages.to_html(ErrorPage(404, "not_found", "Not found", "Nothing is here"), "id")

    style = re.findall("<style>(.*?)</style>", page)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in error_pages.POLICY
    assert "unsafe" not in error_pages.POLICY
    assert re.findall(r"(?:src|href|url)\b", page) == []


def test_every_text_is_escaped() -> None:
    page = error_pages.to_html(ErrorPage(404, "not_found", EVIL, EVIL, hint=EVIL, console_url=EVIL), EVIL)

    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&#x27;&amp;") == 6


@pytest.mark.parametrize(
    ("page", "look"),
    [
        (ErrorPage(404, "not_found", "Not found", "Nothing is here"), "off"),
        (ErrorPage(404, "not_found", "Being built", "Wait", reload_s=5), "busy"),
        (ErrorPage(502, "internal", "No answer", "The app does not answer"), "bad"),
    ],
)
def test_a_page_shows_the_symbol_of_its_state_and_links_the_console_if_told(page: ErrorPage, look: str) -> None:
    linked = replace(page, console_url="http://localhost:8080/projects")

    assert f'<p class="status {look}">' in error_pages.to_html(page, "id")
    assert "href" not in error_pages.to_html(page, "id")
    assert '<a href="http://localhost:8080/projects">' in error_pages.to_html(linked, "id")


def test_a_program_gets_the_same_message_in_the_envelope() -> None:
    page = ErrorPage(503, "internal", "Starting", "The app does not answer yet", hint="Wait", retry_after_s=2)

    envelope = json.loads(error_pages.to_json(page, "abc"))

    assert envelope == {
        "success": False,
        "error": {"code": "internal", "message": "The app does not answer yet", "traceId": "abc"},
    }
    assert dict(error_pages.headers_of(page, error_pages.JSON))["Retry-After"] == "2"


@pytest.mark.parametrize(
    ("accept", "is_browser"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("TEXT/HTML", True),
        ("*/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_client_is_a_browser_where_it_names_html(accept: str, is_browser: bool) -> None:
    assert error_pages.accepts_html(accept) is is_browser
