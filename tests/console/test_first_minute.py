"""From nothing to a live site, in a real browser: an empty organization, and a folder that is dropped on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.console.support import DEMO, Console, Visit, write_site

pytestmark = pytest.mark.group("console")


def drop(page: Page, folder: Path) -> None:
    """Drop a folder on the page as a file manager does: with its entries, which scripts cannot make."""
    box = page.locator(".drop").bounding_box()
    assert box is not None
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    session.detach()


def test_an_empty_organization_has_a_live_site_after_one_drop(console: Console, visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    visit.open("/organizations/new")
    page.get_by_role("button", name=DEMO).click()
    page.get_by_label("Name").fill("First minute")
    page.get_by_role("button", name="Create organization", exact=True).click()
    expect(page.get_by_text("Drop a folder or a ZIP here")).to_be_visible()
    drop(page, write_site(tmp_path / "first-minute-site", "First minute"))
    expect(page.get_by_label("Name of the site")).to_have_value("first-minute-site")
    expect(page.get_by_text("2 files")).to_be_visible()
    page.get_by_role("button", name="Deploy").click()

    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open the site").click()
    expect(opened.value.get_by_role("heading", name="First minute")).to_be_visible()
    css = console.running.call(
        "GET", "/assets/style.css", headers={"Host": "first-minute-site.localhost"}, port="gateway"
    )
    assert "teal" in css[1]
