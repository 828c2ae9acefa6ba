"""The platform goes away and comes back while the console is open, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.browser import headless_shell
from playwright.sync_api import Browser, expect
from tests.console.accounts import call, make_site
from tests.console.support import Console
from tests.platform.running import free_ports, running
from tests.shared import SharedServers

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

AWAY = "The platform does not answer"


def test_work_goes_on_after_the_platform_was_away(tmp_path: Path, shared: SharedServers) -> None:
    browser: Browser = shared.get("browser", headless_shell)
    ports = free_ports()
    with running(tmp_path / "data", ports=ports) as platform:
        console = Console(platform, browser)
        name = make_site(console, "steady")
        visiting = console.visit()
        visit = visiting.__enter__()
        visit.sign_in()
        visit.settle("/activity")
        other = visit.page.context.new_page()
        other.goto(f"{console.url}/projects/{name}/environment")
        other.get_by_role("button", name="Add variable").click()
        other.get_by_label("Name", exact=True).fill("TYPED")
        other.get_by_label("Value", exact=True).fill("before the break")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_role("dialog").get_by_text(AWAY)).to_be_visible()
    expect(other.locator(".connection")).to_be_visible()
    expect(other.get_by_role("heading", name=name)).to_be_visible()  # What was there stays.
    expect(visit.page.locator(".live-dot")).to_have_attribute("data-on", "false")

    with running(tmp_path / "data", ports=ports) as platform:
        console = Console(platform, browser)
        expect(other.locator(".connection")).to_be_hidden()
        other.get_by_role("button", name="Save").click()
        expect(other.get_by_role("table", name="Variables")).to_contain_text("TYPED")
        assert call(console, "GET", f"/v1/projects/{name}")["env"] == [{"name": "TYPED", "value": "before the break"}]
        expect(visit.page.locator(".live-dot")).to_have_attribute("data-on", "true")
        expect(visit.page.locator(".feed")).to_contain_text("steady")
        visiting.__exit__(None, None, None)
