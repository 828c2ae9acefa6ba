"""Deploying from the console, in a real browser: from nothing to a live site."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.console.support import Console, Visit, write_site

pytestmark = pytest.mark.group("console")

# Drops files on the page, as a file manager does. Scripts cannot make entries of folders, so paths come from names.
DROP = """([name, text]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], name, {type: "text/html"}));
  const zone = document.querySelector(".drop");
  zone.dispatchEvent(new DragEvent("dragover", {dataTransfer: transfer, bubbles: true, cancelable: true}));
  zone.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


def test_a_folder_is_live_after_a_click(console: Console, visit: Visit, tmp_path: Path) -> None:
    visit.sign_in()
    visit.settle("/projects/new")
    visit.page.locator("input[webkitdirectory]").set_input_files(write_site(tmp_path / "quay", "Quay"))
    expect(visit.page.get_by_label("Name of the site")).to_have_value("quay")
    visit.page.get_by_role("button", name="Deploy").click()

    expect(visit.page.get_by_role("link", name="Open the site")).to_be_visible()
    visit.page.goto(f"http://quay.localhost:{console.running.ports['gateway']}")
    expect(visit.page.get_by_role("heading", name="Quay")).to_be_visible()
    visit.problems.clear()  # The site has no icon, and the browser reports that.


def test_an_archive_is_live_and_its_log_can_be_read(console: Console, visit: Visit, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "jetty"), "zip", write_site(tmp_path / "site", "Jetty"))
    visit.sign_in()
    visit.settle("/projects/new")
    visit.page.locator("input[accept='.zip']").set_input_files(archive)
    visit.page.get_by_role("button", name="Deploy").click()
    expect(visit.page.get_by_role("link", name="Open the site")).to_be_visible()
    visit.page.get_by_role("link", name="Open the project").click()

    expect(visit.page.get_by_role("heading", name="jetty")).to_be_visible()
    visit.page.get_by_role("link", name="Build log").click()
    expect(visit.page.get_by_role("log")).to_contain_text("Live at")
    visit.page.reload()
    expect(visit.page.get_by_role("log")).to_contain_text("Live at")


def test_what_is_dropped_on_the_page_is_deployed(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/projects/new")
    visit.page.evaluate(DROP, ["index.html", "<title>Dropped</title><h1>Dropped</h1>"])
    visit.page.get_by_label("Name of the site").fill("dropped")
    visit.page.get_by_role("button", name="Deploy").click()

    expect(visit.page.get_by_role("link", name="Open the site")).to_be_visible()
    assert "Dropped" in console.running.call("GET", "/", headers={"Host": "dropped.localhost"}, port="gateway")[1]


def test_a_name_that_is_refused_is_marked_at_its_field(visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/projects/new?from=git")
    visit.page.get_by_label("Name", exact=True).fill("not a name")
    visit.page.get_by_role("button", name="Create project").click()

    expect(visit.page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(visit.page.get_by_label("Repository", exact=True)).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.


def test_a_project_is_deleted_only_after_its_name_was_typed(console: Console, visit: Visit, tmp_path: Path) -> None:
    visit.sign_in()
    visit.settle("/projects/new")
    visit.page.locator("input[webkitdirectory]").set_input_files(write_site(tmp_path / "buoy", "Buoy"))
    visit.page.get_by_role("button", name="Deploy").click()
    expect(visit.page.get_by_role("link", name="Open the site")).to_be_visible()
    visit.settle("/projects/buoy/settings")
    visit.page.get_by_role("button", name="Delete project").click()
    confirm = visit.page.get_by_role("button", name="Delete project buoy")
    expect(confirm).to_be_disabled()
    visit.page.get_by_label("Type buoy to confirm").fill("buoy")
    confirm.click()

    expect(visit.page.get_by_text("Project buoy was deleted")).to_be_visible()
    assert console.running.get("/v1/projects/buoy", token=console.running.token())[0] == 404
