"""Every page of the console, in a real browser: deep links, policy, keyboard, hostile text."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.architecture.source import ROOT
from tests.console.support import Console, Visit

pytestmark = pytest.mark.group("console")

PATHS = re.findall(r'path: "([^":]+)"', (ROOT / "console" / "src" / "pages.ts").read_text())

FEW = ["/projects", "/settings/members"]


def test_every_page_is_registered() -> None:
    assert {"/", "/projects", "/functions", "/databases", "/cronjobs", "/monitors"} <= set(PATHS)


def test_nobody_is_locked_out_of_the_first_pages(visit: Visit) -> None:
    """`test_every_page.py` has all pages, in both themes."""
    visit.open("/")
    visit.page.wait_for_selector("button")
    barriers = visit.find_barriers()
    visit.sign_in()
    visit.settle("/projects")

    assert [*barriers, *visit.find_barriers()] == []


@pytest.mark.parametrize("paths", [FEW, pytest.param(PATHS, marks=pytest.mark.deep)], ids=["few", "all"])
def test_deep_links_open_pages_that_survive_a_reload(visit: Visit, paths: list[str]) -> None:
    visit.sign_in()
    for path in paths:
        visit.settle(path)
        title = visit.page.title()
        visit.page.reload()
        expect(visit.page).to_have_title(title)
        assert visit.page.evaluate("location.pathname") == path

    assert visit.problems == []


def test_an_unknown_address_says_so(visit: Visit) -> None:
    visit.sign_in()
    visit.open("/no/such/page")

    expect(visit.page.get_by_role("heading", name="There is no page at this address")).to_be_visible()


def test_text_of_programs_is_shown_as_text(visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/components")
    log = visit.page.get_by_role("log")

    expect(log).to_contain_text("<img src=x onerror=alert(1)>")
    assert visit.page.locator("[role=log] img").count() == 0
    assert visit.page.locator("[role=log] .ansi-green").count() == 1
    assert visit.page.locator(".log-line").count() < 100  # of 5,000
    assert "\u202e" not in log.inner_text()


def test_keys_lead_through_the_console(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/")
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("p")
    expect(visit.page.get_by_role("heading", name="Projects")).to_be_visible()
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    visit.page.keyboard.press("Escape")
    visit.page.keyboard.press("Control+k")
    visit.page.get_by_role("combobox").fill("monit")
    visit.page.keyboard.press("Enter")

    expect(visit.page.get_by_role("heading", name="Monitors")).to_be_visible()


def test_a_chart_and_an_editor_are_loaded_when_they_are_shown(visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/components")

    expect(visit.page.locator(".uplot canvas")).to_have_count(2)
    expect(visit.page.locator(".cm-content")).to_contain_text("def main(params)")


def test_data_stays_visible_while_the_platform_does_not_answer(console: Console) -> None:
    with console.visit() as visit:
        visit.sign_in()
        visit.settle("/functions")
        visit.page.context.set_offline(True)
        visit.page.evaluate("dispatchEvent(new Event('online'))")

        expect(visit.page.get_by_text("The platform does not answer")).to_be_visible()
        expect(visit.page.get_by_role("heading", name="Functions")).to_be_visible()
        visit.page.context.set_offline(False)
        visit.page.evaluate("dispatchEvent(new Event('online'))")
        expect(visit.page.get_by_text("The platform does not answer")).to_be_hidden()


def test_on_a_phone_the_side_bar_is_a_drawer(console: Console) -> None:
    with console.visit(width=390) as visit:
        visit.sign_in()
        visit.settle("/")
        visit.page.get_by_role("button", name="Menu").click()
        visit.page.get_by_role("link", name="Databases", exact=True).click()

        expect(visit.page.get_by_role("heading", name="Databases")).to_be_visible()
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        assert visit.problems == []
