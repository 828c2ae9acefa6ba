"""Runs of a cronjob that is built from a repository, followed in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call
from tests.console.support import Console, Visit
from tests.e2e.projects_support import Sites
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

BUILT_S = 120
PROGRAM = """import time
print("<b>begins</b>", flush=True)
time.sleep(4)
print("ends", flush=True)
"""


def test_the_log_of_a_run_is_followed_live(console: Console, visit: Visit, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "tally")
    work.commit("first", report_py=PROGRAM)
    address = Sites(console.running, console.running.token()).git_url("demo/tally")
    work.git("-c", "http.extraHeader=X-Moorage-Deploy: none", "push", address, "main")
    visit.sign_in()
    visit.settle("/cronjobs/new")
    visit.page.get_by_label("Name", exact=True).fill("tally")
    visit.page.get_by_label("Repository", exact=True).fill("demo/tally")
    visit.page.get_by_label("Language").select_option("python")
    visit.page.get_by_label("Command (optional)", exact=True).fill("python report.py")
    visit.page.get_by_role("button", name="Create cronjob").click()
    console.running.wait_until(lambda: call(console, "GET", "/v1/cronjobs/tally")["status"] == "running", BUILT_S)
    visit.page.get_by_role("button", name="Run now").click()

    log = visit.page.get_by_role("log")
    expect(log).to_contain_text("<b>begins</b>", timeout=BUILT_S * 1000)
    expect(log).to_contain_text("ends")
    expect(visit.page.get_by_text("Succeeded").first).to_be_visible()
