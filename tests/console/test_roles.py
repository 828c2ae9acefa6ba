"""What each role may do: on every kind of page controls that would be refused are off, and say why."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.console.accounts import sign_in_as
from tests.console.support import Console
from tests.console.world import World, make_world

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

# Names of controls that change something, by the role that the API wants.
MEMBER = re.compile(
    r"(Add|Back up|Create|Delete|Deploy|Disable|Edit|Enable|Pause|Paste|Remove|Replace|Resume|Reveal|Roll back|Run now"
    r"|Save)\b"
)
ADMIN = re.compile(
    r"(Add registry|Change tier|Create token|Delete (project|organization)|Invite|Rotate password|Restore"
    r"|Reveal: Webhook)\b"
)
OWN = ("Create organization", "Delete organization", "Add file")  # of the person or of the page, not of the role
CREATE = (
    *("/projects/new?from=git", "/functions/new", "/schedules/new", "/cronjobs/new", "/databases/new"),
    "/monitors/new",
)
# Buttons in the page with whether they are on, and their reason if they are off.
BUTTONS = """() => [...document.querySelectorAll("main button")].filter((each) => each.offsetParent).map((each) => [
  (each.getAttribute("aria-label") || each.innerText).trim().split("\\n")[0],
  !each.disabled && each.getAttribute("aria-disabled") !== "true",
  each.title || document.getElementById(each.getAttribute("aria-describedby"))?.innerText || "",
])"""


@pytest.fixture(scope="module")
def world(console: Console) -> World:
    return make_world(console, "role")


def found(console: Console, role: str, paths: list[str]) -> dict[str, list[tuple[str, bool, str]]]:
    """Return the buttons of pages, as somebody with a role sees them."""
    seen = {}
    with console.visit() as visit:
        sign_in_as(visit, role)
        for path in paths:
            visit.settle(path)
            seen[path] = [(name, is_on, why) for name, is_on, why in visit.page.evaluate(BUTTONS)]
        assert visit.problems == []
    return seen


def test_a_viewer_changes_nothing_and_is_told_why(console: Console, world: World) -> None:
    pages = found(console, "viewer", [*world.paths(), *CREATE])
    buttons = [
        (path, *button)
        for path, listed in pages.items()
        for button in listed
        if MEMBER.match(button[0]) or ADMIN.match(button[0])
        if button[0] not in OWN and not path.startswith("/account")
    ]

    assert [each for each in buttons if each[2]] == []
    assert [each for each in buttons if "you are viewer" not in each[3]] == []
    assert len({path.split("/")[1] for path, *_ in buttons}) >= 7  # Every kind of page has some.


def test_a_member_is_told_what_only_admins_do(console: Console, world: World) -> None:
    pages = found(console, "member", [path for path in world.paths() if not path.startswith(("/account", "/operator"))])
    every = [(path, *button) for path, listed in pages.items() for button in listed if button[0] not in OWN]
    for_admins = [each for each in every if ADMIN.match(each[1])]
    work = re.compile(r"(Add|Back up|Deploy|Pause|Roll back|Run now)\b")
    for_members = [each for each in every if work.match(each[1]) and each not in for_admins]

    assert [each for each in for_admins if each[2]] == []
    assert [each for each in for_admins if "Needs the role admin" not in each[3]] == []
    assert [each for each in for_members if "you are member" in each[3]] == []
    assert len(for_members) >= 10
    assert {name for _, name, *_ in for_admins} >= {"Change tier", "Create token", "Delete project", "Invite"}, pages


def test_an_admin_meets_no_limit_but_the_owner_s(console: Console, world: World) -> None:
    pages = found(console, "admin", [path for path in world.paths() if not path.startswith(("/account", "/operator"))])
    off = [(path, *button) for path, listed in pages.items() for button in listed if "you are admin" in button[2]]

    assert [each for each in off if "Needs the role owner" not in each[3]] == []


def test_the_palette_and_the_keyboard_lead_to_no_act_of_another_role(console: Console, world: World) -> None:
    with console.visit() as visit:
        sign_in_as(visit, "viewer")
        visit.settle("/")
        visit.page.keyboard.press("Control+k")
        visit.page.get_by_role("combobox").fill("create monitor")
        act = visit.page.get_by_role("option")
        expect(act).to_contain_text("Needs the role member; you are viewer.")
        expect(act).to_have_attribute("aria-disabled", "true")
        visit.page.keyboard.press("Enter")
        expect(visit.page).to_have_url(f"{console.url}/")
        visit.open("/monitors/new")

        create = visit.page.get_by_role("button", name="Create monitor")
        expect(create).to_have_attribute("aria-disabled", "true")
        assert visit.problems == []
