"""Databases, monitors and the operator's pages, in a real browser in front of a real platform."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Page, expect
from tests.console.accounts import call, sign_in_as
from tests.console.support import Console, Visit

pytestmark = pytest.mark.group("console")

CREATE = "CREATE TABLE ships (id integer PRIMARY KEY, name text NOT NULL)"
FILL = "INSERT INTO ships VALUES (1, '<img src=x onerror=alert(1)>'), (2, 'Aurora')"


@dataclass
class Target:
    """A server whose health a test decides."""

    port: int = 0
    status: int = 200
    received: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serve() -> Iterator[Target]:
    target = Target()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(target.status)
            self.end_headers()

        def do_POST(self) -> None:
            target.received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        target.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield target
        server.shutdown()
        thread.join()


def run_sql(page: Page, sql: str, *, write: bool = False) -> None:
    editor = page.locator(".cm-content")
    editor.press("ControlOrMeta+a")
    editor.press("Delete")  # Chromium adds styles to text that replaces other text, and the policy refuses them.
    editor.fill(sql)
    if write:
        page.get_by_role("switch", name="Allow writes").click()
    page.get_by_role("button", name="Run").click()


def test_a_database_is_created_and_its_rows_and_charts_are_read(visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.open("/databases/new")
    page.get_by_label("Name").fill("lagoon")
    page.get_by_role("radio", name="Micro").click()
    page.get_by_role("button", name="Create database").click()
    expect(page.locator(".page-head .status")).to_have_text("Running")

    page.get_by_role("link", name="Query").click()
    run_sql(page, CREATE, write=True)
    expect(page.get_by_text("0 rows changed")).to_be_visible()
    run_sql(page, FILL, write=True)
    expect(page.get_by_text("2 rows changed")).to_be_visible()
    run_sql(page, "SELECT * FROM ships ORDER BY id")
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("<img src=x onerror=alert(1)>")
    expect(result.locator("thead")).to_contain_text("text")

    page.get_by_role("link", name="ships").click()
    expect(result).to_contain_text("Aurora")
    page.get_by_role("button", name="Indexes").click()
    expect(page.get_by_role("table", name="Indexes")).to_contain_text("ships_pkey")

    page.get_by_role("link", name="Metrics").click()
    expect(page.get_by_role("heading", name="Connections")).to_be_visible()
    expect(page.locator(".chart canvas").first).to_be_visible()


def test_a_wrong_statement_is_shown_at_its_place(console: Console) -> None:
    headers = {"Authorization": f"Bearer {console.running.token()}"}
    body = {"name": "shoal", "type": "postgresql", "version": "16.4.0", "instanceType": "free"}
    assert console.running.call("POST", "/v1/databases?wait=9", headers=headers, json_body=body)[0] == 200
    with console.visit() as visit:
        visit.sign_in()
        visit.open("/databases/shoal/query")
        run_sql(visit.page, "SELECT 1,\n  nothing")
        expect(visit.page.get_by_text("Line 2, column 3")).to_be_visible()
        run_sql(visit.page, "CREATE TABLE ships (id integer)")
        expect(visit.page.get_by_role("alert")).to_contain_text("may not write")
        expect(visit.page.locator(".past-line")).to_have_count(2)


def test_a_monitor_goes_down_and_up_and_its_alert_is_tested(visit: Visit) -> None:
    page = visit.page
    state = page.locator(".page-head .status")

    def check_again() -> None:
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").click()

    visit.sign_in()
    with serve() as target:
        visit.open("/monitors/new")
        page.get_by_label("Address").fill(f"http://127.0.0.1:{target.port}/")
        page.get_by_label("Name").fill("Ferry")
        page.get_by_role("button", name="Create monitor").click()
        expect(state).to_have_text("Up")
        target.status = 503
        check_again()
        expect(state).to_have_text("Down")
        expect(page.get_by_role("table", name="Checks")).to_contain_text("503")
        target.status = 200
        check_again()
        expect(state).to_have_text("Up")

        page.get_by_role("link", name="Alerts").click()
        page.get_by_role("button", name="Add alert").click()
        page.get_by_role("switch", name="Webhook").click()
        page.get_by_label("Webhook address").fill(f"http://127.0.0.1:{target.port}/hook")
        page.get_by_role("button", name="Save alert").click()
        page.get_by_role("button", name="Send test").click()
        expect(page.get_by_text("Test sent")).to_be_visible()
        assert "Ferry" in json.dumps([json.loads(each) for each in target.received])


def test_an_operator_sees_the_platform(visit: Visit) -> None:
    visit.sign_in()
    visit.open("/operator")
    expect(visit.page.get_by_role("table", name="Processes")).to_contain_text("supervisor")
    visit.page.get_by_role("link", name="Users").click()
    expect(visit.page.get_by_role("table", name="Users")).to_contain_text("operator")


def test_a_monitor_is_put_on_the_status_page_and_taken_off(console: Console, visit: Visit) -> None:
    page = visit.page
    body = {"name": "Pilot boat", "url": "http://127.0.0.1:9/", "interval": 60}
    monitor = call(console, "POST", "/v1/monitors", body)
    slug = call(console, "GET", "/v1/orgs")[0]["slug"]
    visit.sign_in()
    visit.settle(f"/monitors/{monitor['id']}/settings")
    expect(page.locator(".status-preview")).to_contain_text("Pilot boat")
    page.get_by_role("switch", name="Show on the public status page").click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open the status page").click()
    expect(opened.value).to_have_url(re.compile(f"/status/{slug}$"))
    expect(opened.value.get_by_text("Pilot boat").first).to_be_visible()
    page.get_by_role("switch", name="Show on the public status page").click()
    expect(page.get_by_role("link", name="Open the status page")).to_have_count(0)

    console.running.wait_until(lambda: "Pilot boat" not in console.running.call("GET", f"/status/{slug}")[1])


def test_an_operator_suspends_an_organization_and_lifts_it(console: Console, visit: Visit) -> None:
    page = visit.page
    made = call(console, "POST", "/v1/orgs", {"name": "Quarantine"})
    visit.sign_in()
    visit.settle("/operator/organizations?search=Quarantine")
    page.get_by_role("button", name="Manage").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Function calls")
    dialog.get_by_label("Plan").select_option("free")
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Suspend").click()
    expect(dialog).to_contain_text("refused with 403")
    dialog.get_by_role("button", name="Suspend").click()
    table = page.get_by_role("table", name="Organizations")
    expect(table).to_contain_text("Suspended")
    expect(table).to_contain_text("Free")
    session = {"Authorization": f"Bearer {console.running.session()}", "X-Organization-Id": made["organizationId"]}
    assert console.running.call("GET", "/v1/projects", headers=session)[0] == 403

    page.get_by_role("button", name="Lift suspension").click()
    expect(table).to_contain_text("Active")
    assert console.running.call("GET", "/v1/projects", headers=session)[0] == 200
    visit.settle("/operator/activity")
    expect(page.get_by_role("table", name="Activity")).to_contain_text("Quarantine")


def test_a_member_reads_a_database_and_only_admins_switch_writes_on(console: Console, visit: Visit) -> None:
    body = {"name": "strait", "type": "postgresql", "version": "16.4.0", "instanceType": "free"}
    call(console, "POST", "/v1/databases?wait=9", body)
    sign_in_as(visit, "member")
    visit.settle("/databases/strait/query")
    writes = visit.page.get_by_role("switch", name="Allow writes")
    expect(writes).to_be_disabled()
    expect(writes).to_have_attribute("title", "Needs the role admin; you are member.")
    run_sql(visit.page, "SELECT 6 * 7 AS answer")

    expect(visit.page.get_by_role("region", name="Result")).to_contain_text("42")


def test_a_viewer_sees_no_operator_page_and_creates_nothing(console: Console, visit: Visit) -> None:
    headers = {"Authorization": f"Bearer {console.running.token()}"}
    status, made = console.running.call(
        "POST", "/v1/api-tokens", headers=headers, json_body={"name": "viewer", "role": "viewer"}
    )
    assert status == 200, made
    visit.open("/")
    visit.page.get_by_label("API token").fill(made["data"]["token"])
    visit.page.get_by_role("button", name="Sign in with a token").click()
    expect(visit.page.get_by_role("link", name="Settings")).to_be_visible()
    expect(visit.page.get_by_role("link", name="Operator")).to_have_count(0)

    visit.open("/databases")
    expect(visit.page.get_by_role("button", name="Create database").first).to_have_attribute("aria-disabled", "true")
    visit.open("/operator")
    expect(visit.page.get_by_text("This page is for operators of the platform")).to_be_visible()
