"""Functions, schedules and cronjobs in the console, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.console.screenshots import archive, upload
from tests.console.support import Console, Scheme, Visit

pytestmark = pytest.mark.group("console")

SELECT_ALL = "ControlOrMeta+a"
HOSTILE = """import sys

def main(params):
    print("<img src=x onerror=alert(1)> \\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\u202edesrever")
    print("x" * 100_000)
    print("<script>alert(2)</script>", file=sys.stderr)
    return {"statusCode": 200, "body": "<img src=x onerror=alert(3)> \\u202e"}
"""
FIRST = "def main(params):\n    return 'first'\n"
SECOND = "def main(params):\n    print('new line')\n    return 'second'\n"


@pytest.fixture(scope="module")
def functions(console: Console) -> None:
    """Deploy one that prints hostile text, and one of two versions."""
    for name, code in {"hostile": HOSTILE, "rolled": FIRST}.items():
        fields: dict[str, str | bytes] = {"name": name, "runtime": "python", "code": archive({"main.py": code})}
        upload(console.running, "/v1/functions", fields)
    upload(console.running, "/v1/functions/rolled/deploy", {"code": archive({"main.py": SECOND})})


def write(page: Page, label: str, code: str) -> None:
    """Replace the text of an editor."""
    editor = page.get_by_role("textbox", name=label)
    editor.click()
    page.keyboard.press(SELECT_ALL)
    page.keyboard.press("Delete")
    page.keyboard.insert_text(code)


def test_a_function_is_written_deployed_and_run_in_the_page(console: Console, visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/functions/new")
    page.get_by_label("Name", exact=True).fill("abc")
    page.get_by_role("button", name="Create function").click()
    expect(page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Name", exact=True).fill("Tide")
    write(page, "Code of the function: main.py", "def main(params):\n    return {'tide': params['at']}\n")
    page.get_by_role("button", name="Create function").click()

    expect(page).to_have_url(re.compile(r"/functions/tide-[a-z2-9]{6}/test$"))
    name = page.url.split("/")[-2]
    write(page, "Parameters: params.json", "{broken")
    expect(page.get_by_text("Not valid JSON")).to_be_visible()
    write(page, "Parameters: params.json", '{"at": "noon"}')
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Result")).to_contain_text('"tide": "noon"')

    page.get_by_role("link", name="Code", exact=True).click()
    write(page, "Code of the function: main.py", "def main(params):\n    print('ebb')\n    return 2\n")
    page.keyboard.press("ControlOrMeta+s")
    expect(page.get_by_text("Draft saved in this browser")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Draft, not deployed")).to_be_visible()
    page.get_by_role("button", name="Deploy", exact=True).click()
    expect(page.get_by_text("Version 2 is live")).to_be_visible()
    expect(page.get_by_text("Draft, not deployed")).to_be_hidden()
    status, answer = console.running.get(f"/v1/functions/{name}", token=console.running.token())
    assert (status, answer["data"]["currentVersion"]) == (200, 2)


@pytest.mark.usefixtures("functions")
def test_two_versions_are_compared_and_the_earlier_one_comes_back(console: Console, visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/functions/rolled/versions")
    page.get_by_role("link", name="Compare").click()
    difference = page.get_by_role("region", name="Differences: main.py")
    expect(difference.locator(".removed")).to_have_text(re.compile("return 'first'"))
    expect(difference.locator(".added")).to_have_count(2)
    page.get_by_role("button", name="Roll back to version 1").click()
    page.get_by_role("button", name="Roll back", exact=True).click()

    expect(page.get_by_text("Version 1 is live")).to_be_visible()
    token = console.running.token()
    assert console.running.get("/v1/functions/rolled", token=token)[1]["data"]["currentVersion"] == 1


@pytest.mark.usefixtures("functions")
def test_hostile_output_is_shown_as_text(visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/functions/hostile/test")
    page.get_by_role("button", name="Run", exact=True).click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("<img src=x onerror=alert(3)> \\u202e")
    output = page.get_by_role("log", name="stdout")
    expect(output).to_contain_text("<img src=x onerror=alert(1)>")
    expect(output.locator(".ansi-red")).to_have_text("red")
    expect(output).to_contain_text("more in this line")
    expect(page.get_by_role("log", name="stderr")).to_contain_text("<script>alert(2)</script>")
    assert "\u202e" not in page.locator("main").inner_text()

    page.get_by_role("link", name="Invocations").click()
    page.locator(".call-head").first.click()
    expect(page.get_by_role("log", name="stdout")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0
    assert "\u202e" not in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.usefixtures("functions")
def test_a_schedule_is_told_in_words_and_run(console: Console, visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/schedules/new?function=rolled")
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_label("Cron expression").fill("61 * * * *")
    expect(page.locator(".cron-help[role=alert]")).to_be_visible()
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    page.get_by_role("button", name="Weekdays at 9").click()
    expect(page.get_by_label("Cron expression")).to_have_value("0 9 * * 1-5")
    runs = page.locator(".cron-help li time")
    expect(runs).to_have_count(5)
    expect(runs.first).to_have_attribute("title", re.compile(r"T09:00:00\+09:00"))
    page.get_by_role("button", name="Create schedule").click()

    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("region", name="Result")).to_be_visible()
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Enable", exact=True)).to_be_visible()
    schedules = console.running.get("/v1/scheduled-functions", token=console.running.token())[1]["data"]
    assert [(each["name"], each["timezone"], each["enabled"]) for each in schedules] == [
        ("nightly", "Asia/Tokyo", False)
    ]
    visit.problems.clear()  # The browser reports the refused expression.


def test_a_cronjob_is_created_paused_and_deleted(console: Console, visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/cronjobs/new")
    page.get_by_label("Name", exact=True).fill("sweep")
    page.get_by_role("radio", name="Ready image").click()
    page.get_by_label("Image", exact=True).fill("localhost:9/nothing:1")
    page.get_by_role("button", name="Create cronjob").click()

    expect(page).to_have_url(re.compile(r"/cronjobs/sweep$"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page).to_have_url(re.compile(r"/cronjobs/sweep/runs/[0-9a-f-]{36}$"))
    expect(page.get_by_text("Failed")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Delete cronjob").click()
    page.get_by_label("Type sweep to confirm").fill("sweep")
    page.get_by_role("button", name="Delete cronjob sweep").click()
    expect(page.get_by_text("Cronjob sweep was deleted")).to_be_visible()


@pytest.mark.deep
@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_locked_out_of_a_function(console: Console, scheme: Scheme) -> None:
    tabs = ("", "/test", "/invocations", "/metrics", "/versions", "/versions/1..2", "/environment", "/settings")
    with console.visit(scheme=scheme) as visit:
        visit.sign_in()
        barriers = {}
        for tab in tabs:
            visit.settle(f"/functions/rolled{tab}")
            barriers[tab] = visit.find_barriers()

    assert {tab: found for tab, found in barriers.items() if found} == {}
    assert visit.problems == []


@pytest.mark.usefixtures("functions")
def test_a_function_of_several_files_is_written_in_the_page(console: Console, visit: Visit) -> None:
    page = visit.page
    visit.sign_in()
    visit.settle("/functions/rolled")
    page.get_by_role("button", name="Add file").click()
    page.get_by_label("Name of the file").fill("lib/tides.py")
    page.get_by_label("Name of the file").press("Enter")
    write(page, "Code of the function: lib/tides.py", "def next_tide():\n    return 'flood'\n")
    page.get_by_role("group", name="Files").get_by_role("button", name="main.py", exact=True).click()
    code = "from lib.tides import next_tide\n\ndef main(params):\n    return {'next': next_tide()}\n"
    write(page, "Code of the function: main.py", code)
    page.get_by_role("button", name="Deploy", exact=True).click()
    expect(page.get_by_text("Version 3 is live")).to_be_visible()
    page.get_by_role("link", name="Test", exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Result")).to_contain_text('"next": "flood"')

    page.reload()
    page.get_by_role("link", name="Code", exact=True).click()
    page.get_by_role("button", name="lib/tides.py", exact=True).click()
    expect(page.get_by_role("textbox", name="Code of the function: lib/tides.py")).to_contain_text("flood")
    visit.settle("/functions/rolled/versions/2..3")
    expect(page.get_by_role("region", name="Differences: lib/tides.py")).to_contain_text("flood")
