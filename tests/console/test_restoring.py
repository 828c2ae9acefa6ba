"""Backups, restores and the tier of a database, in a real browser in front of a real PostgreSQL server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.console.accounts import call
from tests.console.support import Console, Visit

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

SETTLED_MS = 120_000  # A restore starts a server again.
# The next whole second, as a field for times of the browser's zone wants it.
NEXT_SECOND = """() => {
  const at = new Date(Date.now() + 1_000);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}"""
STATE = ".page-head .status"


def query(console: Console, name: str, sql: str, *, write: bool = False) -> Any:
    return call(console, "POST", f"/v1/databases/{name}/query", {"sql": sql, "write": write})["rows"]


def numbers_of(console: Console, name: str) -> Any:
    """Return the rows, or None while the database is being restored."""
    headers, body = {"Authorization": f"Bearer {console.running.token()}"}, {"sql": "SELECT n FROM log"}
    status, answer = console.running.call("POST", f"/v1/databases/{name}/query", headers=headers, json_body=body)
    return answer["data"]["rows"] if status == 200 else None


def make_database(console: Console, name: str, tier: str = "micro") -> None:
    body = {"name": name, "type": "postgresql", "version": "16.4.0", "instanceType": tier}
    call(console, "POST", "/v1/databases?wait=9", body)
    console.running.wait_until(lambda: call(console, "GET", f"/v1/databases/{name}")["status"] == "running", 60)
    query(console, name, "CREATE TABLE log (n integer)", write=True)


def back_up(page: Page) -> None:
    """Make a backup and wait until it is there."""
    page.get_by_role("button", name="Back up now").click()
    expect(page.get_by_role("button", name="Restore").first).to_be_enabled(timeout=SETTLED_MS)


def restore(page: Page, name: str) -> None:
    """Type the name, start the restore of the open dialog, and wait until the database runs again."""
    page.get_by_label(f"Type {name} to confirm").fill(name)
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Restore")).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_backup_is_restored_and_the_wizard_says_what_is_lost(console: Console, visit: Visit) -> None:
    make_database(console, "restored")
    query(console, "restored", "INSERT INTO log VALUES (1)", write=True)
    visit.sign_in()
    visit.settle("/databases/restored/backups")
    back_up(visit.page)
    query(console, "restored", "INSERT INTO log VALUES (2)", write=True)
    visit.page.get_by_role("button", name="Restore").first.click()
    dialog = visit.page.get_by_role("dialog")
    expect(dialog).to_contain_text("is no longer in the database")
    expect(dialog.get_by_role("radio")).to_have_count(0)  # A logical backup has one moment only.
    expect(dialog.get_by_role("button", name=re.compile("^Restore"))).to_be_disabled()
    restore(visit.page, "restored")

    console.running.wait_until(lambda: numbers_of(console, "restored") == [[1]], SETTLED_MS / 1000)
    expect(visit.page.locator(STATE)).to_have_text("Running", timeout=SETTLED_MS)
    visit.problems.clear()  # Requests that meet the restart are refused.


def test_a_moment_between_two_writes_is_restored(console: Console, visit: Visit) -> None:
    make_database(console, "moments")
    visit.sign_in()
    visit.settle("/databases/moments/backups")
    visit.page.get_by_role("switch", name="Make backups on a schedule").click()
    visit.page.get_by_role("radio", name="Physical").click()
    visit.page.get_by_role("button", name="Save").click()
    expect(visit.page.get_by_text("saved")).to_be_visible()
    back_up(visit.page)
    query(console, "moments", "INSERT INTO log VALUES (1)", write=True)
    moment = visit.page.evaluate(NEXT_SECOND)
    query(console, "moments", "SELECT pg_sleep(2.5)")
    query(console, "moments", "INSERT INTO log VALUES (2)", write=True)
    visit.page.get_by_role("button", name="Restore").first.click()
    visit.page.get_by_role("radio", name="A moment").click()
    visit.page.get_by_label("Time").fill("2020-01-01T00:00:00")
    expect(visit.page.get_by_label("Time")).to_have_attribute("aria-invalid", "true")
    visit.page.get_by_label("Time").fill(moment)
    expect(visit.page.get_by_label("Time")).not_to_have_attribute("aria-invalid", "true")
    restore(visit.page, "moments")

    console.running.wait_until(lambda: numbers_of(console, "moments") == [[1]], SETTLED_MS / 1000)
    visit.problems.clear()  # Requests that meet the restart are refused.


def test_a_database_gets_another_tier_and_keeps_its_rows(console: Console, visit: Visit) -> None:
    make_database(console, "grown", "free")
    query(console, "grown", "INSERT INTO log VALUES (7)", write=True)
    visit.sign_in()
    visit.settle("/databases/grown/settings")
    change = visit.page.get_by_role("button", name="Change tier")
    expect(change).to_have_attribute("aria-disabled", "true")  # the tier that it has
    visit.page.get_by_role("radio", name="Mini").click()
    change.click()
    expect(visit.page.get_by_text("mini ·")).to_be_visible(timeout=SETTLED_MS)
    expect(visit.page.locator(STATE)).to_have_text("Running", timeout=SETTLED_MS)

    visit.page.get_by_role("radio", name="Free").click()
    expect(visit.page.get_by_role("switch")).to_be_visible()  # A smaller tier asks once more.
    assert query(console, "grown", "SELECT n FROM log") == [[7]]
    assert call(console, "GET", "/v1/databases/grown")["instanceType"] == "mini"
    visit.problems.clear()  # Requests that meet the restart are refused.
