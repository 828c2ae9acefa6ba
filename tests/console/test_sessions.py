"""Sessions in several tabs, and sessions that end in the middle of work, in a real browser."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect
from tests.console.accounts import call, make_site
from tests.console.support import DEMO, Console, Visit

pytestmark = pytest.mark.group("console")


def end_session(visit: Visit) -> None:
    """End the session of a page on the server, as an administrator or the end of the day does."""
    token = visit.page.evaluate("JSON.parse(localStorage.getItem('moorage.session')).token")
    headers = {"Authorization": f"Bearer {token}"}
    listed = visit.console.running.call("GET", "/v1/sessions", headers=headers)[1]["data"]
    mine = next(each["id"] for each in listed if each["current"])
    assert visit.console.running.call("DELETE", f"/v1/sessions/{mine}", headers=headers)[0] == 200


def other_tab(visit: Visit, path: str) -> Page:
    """Open a second tab of the same browser."""
    page = visit.page.context.new_page()
    page.clock.install()
    page.goto(visit.console.url + path)
    page.wait_for_selector("h1")
    return page


@pytest.mark.usefixtures("own_profile")
def test_a_change_in_one_tab_appears_in_the_other(console: Console, visit: Visit) -> None:
    name = make_site(console, "two-tabs")
    visit.sign_in()
    visit.settle(f"/projects/{name}/environment")
    other = other_tab(visit, f"/projects/{name}/environment")
    expect(other.get_by_role("button", name="Add variable")).to_be_visible()
    other.clock.pause_at(time.time() + 1)  # Time stands still in this tab, so that nothing is polled.
    visit.page.get_by_role("button", name="Add variable").click()
    visit.page.get_by_label("Name", exact=True).fill("GREETING")
    visit.page.get_by_label("Value", exact=True).fill("ahoy")
    visit.page.get_by_role("button", name="Save").click()

    expect(other.get_by_role("table", name="Variables")).to_contain_text("GREETING")


@pytest.mark.usefixtures("own_profile")
def test_signing_out_in_one_tab_ends_the_other(visit: Visit) -> None:
    visit.open("/")
    visit.page.get_by_role("button", name=DEMO).click()
    expect(visit.page.get_by_role("heading", name="Home")).to_be_visible()
    other = other_tab(visit, "/projects")
    visit.page.get_by_role("button", name="Account").click()
    visit.page.get_by_role("menuitem", name="Sign out").click()

    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_role("table")).to_have_count(0)
    visit.problems.clear()  # Requests that were under way are refused.


@pytest.mark.deep
@pytest.mark.usefixtures("own_profile")
def test_tabs_work_in_organizations_of_their_own(console: Console, visit: Visit) -> None:
    call(console, "POST", "/v1/orgs", {"name": "Second harbor"})
    visit.open("/")
    visit.page.get_by_role("button", name=DEMO).click()
    expect(visit.page.get_by_role("heading", name="Home")).to_be_visible()
    other = other_tab(visit, "/")
    first = other.locator(".organization").inner_text()
    visit.page.locator(".organization").click()
    visit.page.get_by_role("menuitemradio", name="Second harbor").click()
    expect(visit.page.locator(".organization")).to_contain_text("Second harbor")

    expect(other.locator(".organization")).to_have_text(first)


def test_what_was_typed_survives_the_end_of_the_session(console: Console) -> None:
    with console.visit() as visit:  # The browser reports refused requests as errors.
        name = make_site(console, "typed-site")
        visit.open(f"/projects/{name}/environment")
        visit.page.get_by_role("button", name=DEMO).click()
        visit.page.get_by_role("button", name="Add variable").click()
        visit.page.get_by_label("Name", exact=True).fill("LONG_TEXT")
        visit.page.get_by_label("Value", exact=True).fill("hours of work")
        end_session(visit)
        visit.page.get_by_role("button", name="Save").click()
        expect(visit.page.get_by_role("heading", name="Your session has ended")).to_be_visible()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_role("button", name=DEMO).click()

        expect(visit.page.get_by_role("heading", name="Your session has ended")).to_have_count(0)
        expect(visit.page.get_by_label("Value", exact=True)).to_have_value("hours of work")
        visit.page.get_by_role("button", name="Save").click()
        expect(visit.page.get_by_role("table", name="Variables")).to_contain_text("LONG_TEXT")


def test_another_tab_signs_in_for_one_whose_session_has_ended(console: Console) -> None:
    with console.visit() as visit:
        visit.open("/monitors/new")
        visit.page.get_by_role("button", name=DEMO).click()
        visit.page.get_by_label("Name").fill("Unsaved")
        end_session(visit)
        visit.page.evaluate("dispatchEvent(new Event('online'))")  # reads everything again
        expect(visit.page.get_by_role("heading", name="Your session has ended")).to_be_visible()
        other = other_tab(visit, "/projects")
        expect(other.get_by_text("Your session has ended")).to_be_visible()
        other.get_by_role("button", name=DEMO).click()
        expect(other.get_by_role("heading", name="Projects")).to_be_visible()

        expect(visit.page.get_by_role("heading", name="Your session has ended")).to_have_count(0)
        expect(visit.page.get_by_label("Name")).to_have_value("Unsaved")
