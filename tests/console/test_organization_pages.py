"""The organization, its activity and the account, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call, make_site, sign_in_as, sign_in_as_member
from tests.console.support import Console, Visit

from moorage.accounts.identity.roles import Role

pytestmark = pytest.mark.group("console")

HOSTILE = "<img src=x onerror=alert(1)>"


def test_a_token_is_shown_once(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/settings/tokens")
    visit.page.get_by_role("button", name="Create token").click()
    visit.page.get_by_label("Name", exact=True).fill(HOSTILE)
    visit.page.get_by_role("dialog").get_by_role("button", name="Create token").click()
    shown = visit.page.get_by_role("region", name="Token").inner_text().strip()
    assert console.running.get("/v1/projects", token=shown)[0] == 200
    visit.page.get_by_role("button", name="I have copied it").click()

    expect(visit.page.get_by_role("table", name="API tokens")).to_contain_text(HOSTILE)
    assert shown not in visit.page.content()
    visit.page.reload()
    visit.page.get_by_role("button", name=f"Revoke {HOSTILE}").click()
    visit.page.get_by_role("dialog").get_by_role("button", name=f"Revoke {HOSTILE}").click()
    expect(visit.page.get_by_role("table", name="API tokens")).not_to_contain_text(HOSTILE)
    assert console.running.get("/v1/projects", token=shown)[0] == 401


@pytest.mark.deep
def test_of_a_long_list_only_the_rows_near_the_view_exist(console: Console, visit: Visit) -> None:
    for number in range(70):
        call(console, "POST", "/v1/api-tokens", {"name": f"crane {number:02}", "role": "viewer"})
    visit.sign_in()
    visit.settle("/settings/tokens")
    table, rows = visit.page.get_by_role("table", name="API tokens"), visit.page.locator("tr[aria-rowindex]")
    expect(table).to_have_attribute("aria-rowcount", re.compile(r"[7-9]\d"))
    last = int(table.get_attribute("aria-rowcount") or 0)
    while visit.page.locator(f"tr[aria-rowindex='{last}']").count() == 0:
        visit.page.mouse.wheel(0, 600)
    expect(visit.page.locator("tr[aria-rowindex='2']")).to_have_count(0)
    assert rows.count() < 60

    visit.page.evaluate("scrollTo(0, 0)")
    expect(visit.page.locator("tr[aria-rowindex='2']")).to_be_visible()


def test_activity_appears_by_itself(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/activity")
    expect(visit.page.locator(".live-dot")).to_have_attribute("data-on", "true")
    make_site(console, "lively-site")

    fresh = visit.page.locator(".feed .fresh").filter(has_text="lively-site").first
    expect(fresh).to_be_visible()
    visit.page.get_by_label("Filter").fill("lively-site")
    expect(visit.page.locator(".feed li").first).to_contain_text("lively-site")
    assert visit.page.url.endswith("?filter=lively-site")


def test_a_person_is_invited_and_the_invitation_revoked(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/settings/members")
    visit.page.get_by_role("button", name="Invite").click()
    visit.page.get_by_label("Mail address").fill("nobody")
    visit.page.get_by_role("dialog").get_by_role("button", name="Invite").click()
    expect(visit.page.get_by_label("Mail address")).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.
    visit.page.get_by_label("Mail address").fill("grace@harbor.example")
    visit.page.get_by_role("radio", name="Viewer").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Invite").click()

    invitations = visit.page.get_by_role("table", name="Pending invitations")
    expect(invitations).to_contain_text("grace@harbor.example")
    expect(invitations).to_contain_text("Viewer")
    visit.page.get_by_role("button", name="Revoke the invitation of grace@harbor.example").click()
    expect(visit.page.get_by_text("Nobody is invited at the moment.")).to_be_visible()


def test_a_changed_role_opens_and_closes_controls_in_the_tab_of_the_member(console: Console, visit: Visit) -> None:
    name = make_site(console, "role-change")
    with console.visit() as other:
        sign_in_as_member(other, "grace@role-change.example", Role.VIEWER)
        other.page.clock.install()
        other.settle(f"/projects/{name}/settings")
        disable = other.page.get_by_role("button", name="Disable project")
        expect(disable).to_be_disabled()
        visit.sign_in()
        visit.settle("/settings/members")
        role = visit.page.get_by_role("row").filter(has_text="grace@role-change.example").get_by_role("combobox")
        role.select_option("member")
        expect(visit.page.get_by_text("is now member")).to_be_visible()
        other.page.clock.fast_forward("00:31")

        expect(disable).to_be_enabled()
        role.select_option("viewer")
        expect(visit.page.get_by_text("is now viewer")).to_be_visible()
        disable.click()  # It is still open in the tab, but the server refuses it.
        expect(disable).to_be_disabled()


def test_the_webhook_secret_is_revealed_after_a_question(visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/settings")
    visit.page.get_by_role("button", name="Reveal: Webhook secret").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Reveal").click()

    expect(visit.page.locator(".revealed")).not_to_contain_text("•")


def test_an_organization_is_created_renamed_and_deleted(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/organizations/new")
    visit.page.get_by_label("Name").fill(HOSTILE)
    visit.page.get_by_role("button", name="Create organization", exact=True).click()
    expect(visit.page.get_by_role("heading", name="Home")).to_be_visible()
    expect(visit.page.locator(".organization")).to_contain_text(HOSTILE)
    visit.page.get_by_role("link", name="Settings").click()
    visit.page.get_by_label("Name", exact=True).fill("Breakwater")
    visit.page.get_by_role("button", name="Rename").click()
    expect(visit.page.locator(".organization")).to_contain_text("Breakwater")
    visit.page.get_by_role("switch", name="A push creates a project").click()
    expect(visit.page.get_by_role("switch", name="A push creates a project")).to_have_attribute("aria-checked", "false")
    visit.page.get_by_role("button", name="Delete organization").click()
    visit.page.get_by_label("Type Breakwater to confirm").fill("Breakwater")
    visit.page.get_by_role("button", name="Delete organization Breakwater").click()

    expect(visit.page.get_by_role("heading", name="Home")).to_be_visible()
    expect(visit.page.locator(".organization")).not_to_contain_text("Breakwater")
    visit.problems.clear()  # Requests for the deleted organization are refused.


def test_another_session_is_signed_out(console: Console, visit: Visit) -> None:
    visit.sign_in()
    before = count_sessions(console)
    visit.settle("/account/sessions")
    mine = visit.page.get_by_role("row").filter(has_text="this session")
    expect(mine.get_by_role("button")).to_have_count(0)
    visit.page.get_by_role("button", name="Sign out").first.click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
    expect(visit.page.get_by_role("dialog")).to_have_count(0)

    assert count_sessions(console) == before  # One fewer, and the session that counts.


def count_sessions(console: Console) -> int:
    """Return the number of sessions, with a new one. The page has them in parts."""
    headers = {"Authorization": f"Bearer {console.running.session()}"}
    return len(console.running.call("GET", "/v1/sessions", headers=headers)[1]["data"])


def test_the_profile_is_saved(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/account")
    visit.page.get_by_label("Last name").fill("Sailor")
    visit.page.get_by_role("button", name="Save").click()
    expect(visit.page.get_by_text("Profile saved")).to_be_visible()

    assert call(console, "GET", "/v1/account")["lastName"] == "Sailor"


def test_a_member_sees_why_tokens_are_closed(visit: Visit) -> None:
    sign_in_as(visit, "member")
    visit.settle("/settings/tokens")

    expect(visit.page.get_by_text("Tokens are managed by admins.")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Create token")).to_have_attribute("aria-disabled", "true")
