"""Pages for visitors, phases of logs and marks of charts, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call, make_site
from tests.console.support import Console, Scheme, Visit
from tests.e2e.projects_support import Sites
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("console")


def test_the_api_page_sends_a_request_with_a_pasted_token(console: Console, visit: Visit) -> None:
    visit.open("/docs")
    visit.page.get_by_label("Token", exact=True).fill(console.running.token())
    visit.page.get_by_role("button", name="Store").click()
    expect(visit.page.get_by_text("A token is stored in this tab")).to_be_visible()
    route = visit.page.locator("[id='get:/v1/me']")
    route.get_by_text("Try it").click()
    route.get_by_role("button", name="Send GET").click()

    expect(route.get_by_role("status")).to_contain_text("200 OK")
    expect(route.get_by_label("Answer", exact=True)).to_contain_text('"email": "demo@moorage.example"')


def test_the_api_page_takes_the_session_of_the_console_and_filters_routes(visit: Visit) -> None:
    visit.sign_in()
    visit.open("/docs")
    visit.page.get_by_role("button", name="Use my session of the console").click()
    expect(visit.page.get_by_text("A token is stored in this tab")).to_be_visible()
    visit.page.get_by_label("Filter routes").fill("post backups")

    links = visit.page.get_by_label("Contents").locator("details li:visible")
    expect(links).to_have_count(1)
    expect(links).to_contain_text("/v1/databases/{name}/backups")


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_for_visitors_have_no_barriers_and_fit_a_phone(console: Console, scheme: Scheme) -> None:
    name = make_site(console, "visited-site")
    gateway = f"localhost:{console.running.ports['gateway']}"
    monitor = {"name": "Visited", "url": f"http://{name}.{gateway}", "interval": 60, "retries": 0, "public": True}
    call(console, "POST", "/v1/monitors", monitor)
    slug = call(console, "GET", "/v1/orgs")[0]["slug"]
    pages = (f"http://{gateway}/status/{slug}", f"http://nobody.{gateway}/", f"{console.url}/docs")
    with console.visit(scheme=scheme, width=390) as visit:
        for page in pages:
            visit.page.goto(page)
            assert visit.find_barriers() == [], page
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390, page


def test_a_mark_in_a_chart_leads_to_its_deployment(console: Console, visit: Visit) -> None:
    name = make_site(console, "marked-site")
    call(console, "PATCH", f"/v1/projects/{name}", {"enableAnalytics": True})
    console.running.call("GET", "/", headers={"Host": f"{name}.localhost"}, port="gateway")
    visit.sign_in()
    visit.settle(f"/projects/{name}/visitors")
    visit.page.locator(".chart-mark").first.click()

    expect(visit.page).to_have_url(re.compile(f"/projects/{name}/deployments/[0-9a-f-]+$"))


def test_a_build_log_has_its_phases_with_durations(console: Console, visit: Visit, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "phased")
    work.commit(**{"index.html": "<!doctype html><title>phased</title>"})
    Sites(console.running, console.running.token()).push(work, "demo/phased")
    deployment = call(console, "GET", "/v1/projects/phased/deployments")["items"][0]["deploymentUuid"]
    visit.sign_in()
    visit.settle(f"/projects/phased/deployments/{deployment}")

    phases = visit.page.get_by_role("list", name="Phases of the build").get_by_role("button")
    expect(phases.first).to_contain_text(re.compile(r"Source\s*[\d.]+ m?s"))
    expect(phases.last).to_contain_text("Publish")
    expect(visit.page.locator(".log-line.begins").first).to_contain_text("Fetching")
