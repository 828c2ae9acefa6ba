"""axe-core on every page and dialog of the console, in both themes, with one resource of every kind."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.architecture.source import ROOT
from tests.console.accounts import call
from tests.console.support import Console, Scheme, Visit
from tests.console.world import World, make_world

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

ROUTES = re.findall(r'path: "([^"]+)"', (ROOT / "console" / "src" / "pages.ts").read_text())
PLAIN = [path for path in ROUTES if ":" not in path]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
STRANGERS = ("/sign-in/return?error=denied", "/setup", "/no/such/page")
# Dialogs and menus, by their page and the button that opens them.
OPENED = (
    ("/", "Account"),
    ("/", "Notifications"),
    ("/projects/{site}", "More"),
    ("/projects/{site}/environment", "Paste .env"),
    ("/projects/{site}/environment", "Add secret"),
    ("/projects/{site}/settings", "Delete project"),
    ("/functions/{function}/settings", "Delete function"),
    ("/databases/{database}/settings", "Delete database"),
    ("/settings/members", "Invite"),
    ("/settings/tokens", "Create token"),
    ("/settings/registries", "Add registry"),
    ("/operator/machines", "Drain"),
)


@pytest.fixture(scope="module")
def world(console: Console) -> World:
    return make_world(console, "axe")


def test_no_page_is_forgotten(world: World) -> None:
    kinds = {path.split("/")[1] for path in (*PLAIN, *world.paths())}

    assert kinds >= {route.split("/")[1] for route in ROUTES}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_locked_out_of_any_page(console: Console, world: World, scheme: Scheme) -> None:
    barriers = {}
    with console.visit(scheme=scheme) as visit:
        for path in STRANGERS[:2]:
            visit.settle(path)
            barriers[path] = visit.find_barriers()
        visit.sign_in()
        for path in (*PLAIN, *world.paths(), STRANGERS[2]):
            visit.settle(path)
            barriers[path] = visit.find_barriers()

    assert {path: found for path, found in barriers.items() if found} == {}
    assert visit.problems == []


def test_every_page_fits_on_a_phone(console: Console, world: World) -> None:
    widths = {}
    with console.visit(width=390) as visit:
        visit.sign_in()
        for path in (*PLAIN, *world.paths()):
            visit.settle(path)
            widths[path] = visit.page.evaluate("document.documentElement.scrollWidth")

    assert {path: width for path, width in widths.items() if width > 390} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_locked_out_of_a_dialog(console: Console, world: World, scheme: Scheme) -> None:
    barriers = {}
    with console.visit(scheme=scheme) as visit:
        visit.sign_in()
        for path, button in OPENED:
            visit.settle(path.format(**world.names))
            visit.page.get_by_role("button", name=button).first.click()
            barriers[path, button] = visit.find_barriers()
        visit.settle("/")
        for key in ("?", "Control+k"):
            barriers["/", key] = open_by_key(visit, key)
            visit.page.keyboard.press("Escape")

    assert {place: found for place, found in barriers.items() if found} == {}


def open_by_key(visit: Visit, key: str) -> list[str]:
    visit.page.keyboard.press(key)
    expect(visit.page.locator("dialog[open]")).to_be_visible()
    return visit.find_barriers()


def test_pages_for_strangers_have_no_barriers(console: Console, world: World) -> None:
    gateway = console.running.ports["gateway"]
    addresses = (
        f"http://nobody-here.localhost:{gateway}/",
        f"{console.url}/status/{call(console, 'GET', '/v1/orgs')[0]['slug']}",
    )
    barriers = {}
    for scheme in SCHEMES:
        with console.visit(scheme=scheme) as visit:
            for address in addresses:
                visit.page.goto(address)
                barriers[scheme, address] = visit.find_barriers()

    assert {place: found for place, found in barriers.items() if found} == {}
