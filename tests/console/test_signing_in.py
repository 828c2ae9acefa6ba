"""Signing in and out, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.console.support import DEMO, Console, Visit

pytestmark = pytest.mark.group("console")


def test_the_demo_user_signs_in_with_one_click_and_out_again(visit: Visit) -> None:
    visit.open("/")
    visit.page.get_by_role("button", name=DEMO).click()
    expect(visit.page.get_by_role("heading", name="Home")).to_be_visible()

    visit.page.get_by_role("button", name="Account").click()
    visit.page.get_by_role("menuitem", name="Sign out").click()

    expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert visit.page.evaluate("localStorage.getItem('moorage.session')") is None


def test_a_token_signs_in_and_stays_in_its_tab(console: Console, visit: Visit) -> None:
    visit.open("/projects")
    visit.page.get_by_label("API token").fill(console.running.token())
    visit.page.get_by_role("button", name="Sign in with a token").click()

    expect(visit.page.get_by_role("heading", name="Projects")).to_be_visible()
    assert visit.page.evaluate("localStorage.getItem('moorage.session')") is None
    visit.page.reload()
    expect(visit.page.get_by_role("heading", name="Projects")).to_be_visible()


def test_a_wrong_token_is_refused_at_its_field(console: Console) -> None:
    with console.visit() as visit:  # The browser reports the refusal as an error.
        visit.open("/")
        visit.page.get_by_label("API token").fill("nobody")
        visit.page.get_by_role("button", name="Sign in with a token").click()

        expect(visit.page.get_by_label("API token")).to_have_attribute("aria-invalid", "true")
        expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_session_that_ends_in_the_middle_of_work_leads_back_to_the_same_page(console: Console) -> None:
    with console.visit() as visit:
        visit.sign_in()
        visit.settle("/databases")
        session = visit.page.evaluate("JSON.parse(localStorage.getItem('moorage.session')).token")
        headers = {"Authorization": f"Bearer {session}"}
        mine = next(
            each for each in console.running.call("GET", "/v1/sessions", headers=headers)[1]["data"] if each["current"]
        )
        console.running.call("DELETE", f"/v1/sessions/{mine['id']}", headers=headers)
        visit.page.get_by_role("link", name="Cronjobs").click()

        expect(visit.page.get_by_text("Your session has ended")).to_be_visible()
        visit.page.get_by_role("button", name=DEMO).click()
        expect(visit.page.get_by_role("heading", name="Cronjobs")).to_be_visible()
