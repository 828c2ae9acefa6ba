"""Behaviour that all pages share, in a real browser: keys, history, errors, motion, hidden tabs, notices."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Route, expect
from tests.console.accounts import call, make_site
from tests.console.support import Console, Visit

pytestmark = pytest.mark.group("console")

TRACE = "0af7651916cd43dd8448eb211c80319c"
FAILURE = {"success": False, "error": {"code": "internal", "message": "the store is busy", "traceId": TRACE}}
# Tells the page that its tab is hidden or shown, as the browser does when somebody changes the tab.
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
MOVING = """() => document.getAnimations().filter((each) => each.effect.getComputedTiming().duration > 0)
  .map((each) => each.animationName || each.transitionProperty)"""


def test_a_slash_leads_to_the_filter_of_a_list_and_elsewhere_to_the_search(console: Console, visit: Visit) -> None:
    make_site(console, "slash-site")
    visit.sign_in()
    visit.settle("/projects")
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("slash")
    expect(visit.page.get_by_label("Filter")).to_have_value("slash")
    expect(visit.page.get_by_role("row")).to_have_count(2)  # with the head
    visit.settle("/")
    visit.page.keyboard.press("/")
    expect(visit.page.get_by_role("combobox")).to_be_focused()
    visit.page.keyboard.type("slash-site")
    visit.page.keyboard.press("Enter")

    expect(visit.page).to_have_url(f"{console.url}/projects/slash-site")


def test_the_back_button_leads_through_pages_and_tabs(console: Console, visit: Visit) -> None:
    name = make_site(console, "back-site")
    visit.sign_in()
    visit.settle("/projects")
    visit.page.get_by_role("link", name=name, exact=True).click()
    visit.page.get_by_role("link", name="Domains").click()
    expect(visit.page.get_by_label("Domain", exact=True)).to_be_visible()
    visit.page.go_back()
    expect(visit.page.get_by_role("link", name="Build log")).to_be_visible()
    visit.page.go_back()
    expect(visit.page.get_by_role("heading", name="Projects")).to_be_visible()
    visit.page.go_forward()
    visit.page.go_forward()

    expect(visit.page).to_have_url(f"{console.url}/projects/{name}/domains")
    expect(visit.page.get_by_label("Domain", exact=True)).to_be_visible()


def test_a_failure_shows_its_trace_and_another_try_helps(visit: Visit) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=500, content_type="application/json", body=json.dumps(FAILURE))

    visit.sign_in()
    visit.page.route(re.compile("/v1/databases"), fail)
    visit.open("/databases")
    failure = visit.page.get_by_role("alert")
    expect(failure).to_contain_text("the store is busy")
    expect(failure).to_contain_text(TRACE)
    visit.page.unroute(re.compile("/v1/databases"))
    failure.get_by_role("button", name="Try again").click()

    expect(failure).to_have_count(0)
    expect(visit.page.get_by_text("Create database").first).to_be_visible()
    visit.problems.clear()  # The browser reports the answer 500.


@pytest.mark.usefixtures("own_profile")
def test_nothing_moves_for_those_who_want_no_motion(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/components")
    assert visit.page.evaluate(MOVING) == []
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog")).to_be_visible()

    assert visit.page.evaluate(MOVING) == []
    visit.page.emulate_media(reduced_motion="no-preference")
    assert "spin" in visit.page.evaluate(MOVING)


@pytest.mark.usefixtures("own_profile")
def test_a_hidden_tab_asks_for_nothing_and_is_up_to_date_when_it_is_shown(console: Console, visit: Visit) -> None:
    visit.page.clock.install()
    visit.sign_in()
    visit.settle("/projects")
    visit.page.clock.pause_at(time.time() + 5)
    visit.page.evaluate(HIDE, True)
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.clock.run_for("10:00")
    assert [url for url in asked if "/v1/" in url] == []
    make_site(console, "meanwhile-site")
    visit.page.evaluate(HIDE, False)

    expect(visit.page.get_by_role("link", name="meanwhile-site", exact=True)).to_be_visible()


def test_the_bell_counts_notices_and_marks_them_as_read(console: Console, visit: Visit) -> None:
    call(console, "POST", "/v1/orgs", {"name": "Told harbor"})
    visit.sign_in()
    visit.settle("/")
    bell = visit.page.get_by_role("button", name=re.compile(r"^Notifications: \d+$"))
    bell.click()
    panel = visit.page.get_by_role("dialog", name="Notifications")
    expect(panel).to_contain_text("Told harbor")
    panel.get_by_role("button", name="Mark all as read").click()

    expect(visit.page.get_by_role("button", name="Notifications", exact=True)).to_be_visible()
    console.running.wait_until(lambda: all(each["read"] for each in call(console, "GET", "/v1/notifications")))


def test_menus_stay_in_the_view_of_a_phone(console: Console) -> None:
    with console.visit(width=390) as visit:
        visit.sign_in()
        visit.settle("/")
        for button in ("Notifications", "Account"):
            visit.page.get_by_role("button", name=button).click()
            box = visit.page.locator(".menu:popover-open").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            visit.page.keyboard.press("Escape")
