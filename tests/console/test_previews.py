"""Previews of pull requests in the console, in a real browser: a code host sends events to a real platform."""

from __future__ import annotations

import re

import pytest
from bench.browser import headless_shell
from playwright.sync_api import expect
from tests.console.accounts import sign_in_as
from tests.console.support import Console
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import Codehost, Sites, new_name, page
from tests.shared import SharedServers

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = [pytest.mark.group("projects"), pytest.mark.deep]

HOSTILE = "<img src=x onerror=alert(1)>"


def open_pull_request(sites: Sites, codehost: Codehost, name: str) -> str:
    """Create a project with previews, propose a change from a fork, and return its commit."""
    repository, fork = f"octo/{name}", f"stranger/{name}"
    codehost.repository(repository, index_html=page("main"))
    theirs = codehost.repository(fork, index_html=page("main"))
    sites.ended(sites.create_project(name, repository, prPreview=True))
    theirs.git("checkout", "--quiet", "-B", "change")
    sha = theirs.commit("a change", index_html=page("proposed"))
    codehost.receive(theirs, fork, "change")
    head = {"sha": sha, "ref": "change", "repo": {"full_name": fork}}
    event = {
        "action": "opened",
        "pull_request": {"number": 7, "title": f"A change {HOSTILE}", "head": head},
        "repository": {"full_name": repository, "id": 1, "private": False},
    }
    assert sites.deliver("pull_request", event, f"{name}-opened").status == 200
    wait_until(lambda: "waiting" in [each["status"] for each in sites.call("GET", f"/v1/projects/{name}/previews")])
    return sha


def test_a_preview_of_a_fork_is_approved_and_opened(sites: Sites, codehost: Codehost, shared: SharedServers) -> None:
    name = new_name("approved")
    sha = open_pull_request(sites, codehost, name)
    console = Console(sites.running, shared.get("browser", headless_shell))
    with console.visit() as viewer:
        sign_in_as(viewer, "viewer")
        viewer.settle(f"/projects/{name}/previews")
        approve = viewer.page.get_by_role("button", name="Approve")
        expect(approve).to_have_attribute("title", "Needs the role member; you are viewer.")
    with console.visit() as visit:
        visit.sign_in()
        visit.settle(f"/projects/{name}/previews")
        table = visit.page.get_by_role("table", name="Previews")
        expect(table).to_contain_text(f"#7A change {HOSTILE}")
        visit.page.get_by_role("button", name="Approve").click()
        with visit.page.expect_request("**/approve") as sent:
            visit.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        address = table.get_by_role("link", name=re.compile(f"{name}-pr-7"))
        expect(address).to_be_visible()
        wait_until(lambda: sites.text(f"{name}-pr-7") == page("proposed"))
        with visit.page.expect_popup() as opened:
            address.click()

        expect(opened.value.get_by_role("heading", name="proposed")).to_be_visible()
        assert sent.value.post_data_json == {"commitSha": sha}
        assert visit.problems == []
