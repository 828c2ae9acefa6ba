"""Names that people choose are shown as text: markup, escape sequences, and marks that turn text around."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call
from tests.console.support import Console, Visit

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

MARKUP = "<img src=names onerror=alert(1)>"
TURNED = "\u202egnp.exe"  # reads "exe.png" where marks are obeyed
NAME = f"{MARKUP} {TURNED}"


def test_a_hostile_name_is_text_wherever_it_stands(console: Console, visit: Visit) -> None:
    monitor = call(console, "POST", "/v1/monitors", {"name": NAME, "url": "http://127.0.0.1:9/", "interval": 60})
    call(console, "POST", "/v1/api-tokens", {"name": NAME, "role": "viewer"})
    visit.sign_in()
    for path in ("/monitors", f"/monitors/{monitor['id']}", "/", "/settings/tokens", "/activity"):
        visit.settle(path)
        expect(visit.page.get_by_text(MARKUP).first).to_be_visible()
        assert visit.page.locator("main img").count() == 0, path
        assert "\u202e" not in visit.page.locator("body").inner_text(), path
    visit.page.keyboard.press("Control+k")
    visit.page.get_by_role("combobox").fill("onerror")
    expect(visit.page.get_by_role("option").first).to_contain_text(MARKUP)
