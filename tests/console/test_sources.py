"""Creating projects from repositories and images, registries, and machines, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call, make_site, sign_in_as
from tests.console.support import Console, Visit
from tests.e2e.projects_support import Sites
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("console")

HOSTILE = "<img src=x onerror=alert(1)>"
EXPRESS = {"scripts": {"start": "node index.js", "build": HOSTILE}, "dependencies": {"express": "^5.0.0"}}


def test_the_plan_of_a_repository_is_shown_before_the_project_exists(
    console: Console, visit: Visit, tmp_path: Path
) -> None:
    work = Checkout.init(tmp_path / "planned")
    work.commit(f"a shop {HOSTILE}", **{"package.json": json.dumps(EXPRESS), "index.js": "require('express')"})
    address = Sites(console.running, console.running.token()).git_url("demo/planned")
    work.git("-c", "http.extraHeader=X-Moorage-Deploy: none", "push", address, "main")
    visit.sign_in()
    visit.settle("/projects/new?from=git")
    plan = visit.page.locator(".detected")
    expect(plan).to_contain_text("Choose a repository")
    visit.page.get_by_label("Repository", exact=True).fill("demo/planned")

    expect(plan).to_contain_text("App, Express")
    expect(plan).to_contain_text("npm start")
    expect(plan).to_contain_text(HOSTILE)
    visit.page.get_by_label("Branch", exact=True).fill("nowhere")
    expect(plan).to_contain_text("branch 'nowhere' does not exist in demo/planned")
    visit.problems.clear()  # The browser reports the answer 400.


def test_a_chosen_commit_is_deployed_and_then_an_earlier_one_again(
    console: Console, visit: Visit, tmp_path: Path
) -> None:
    work, sites = Checkout.init(tmp_path / "chosen"), Sites(console.running, console.running.token())
    first = work.commit("first", **{"index.html": "<h1>First</h1>"})
    sites.push(work, "demo/chosen")  # creates the project
    work.git("checkout", "--quiet", "-b", "aside")
    aside = work.commit("aside", **{"index.html": "<h1>Aside</h1>"})
    sites.push(work, "demo/chosen", "aside")
    visit.sign_in()
    visit.settle("/projects/chosen")
    open_dialog(visit)
    dialog = visit.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Deploy commit")).to_be_disabled()
    dialog.get_by_label("Commit", exact=True).fill(aside[:10])
    dialog.get_by_role("button", name="Deploy commit").click()

    visit.page.wait_for_url("**/projects/chosen/deployments/*")
    expect(visit.page.get_by_role("log")).to_contain_text("Live at")
    assert "Aside" in sites.text("chosen")
    open_dialog(visit)
    dialog.get_by_role("radio", name=first[:7]).click()
    expect(dialog.get_by_label("Commit", exact=True)).to_have_value(first)
    dialog.get_by_role("button", name="Deploy commit").click()
    expect(visit.page.get_by_role("log")).to_contain_text(first[:7])
    console.running.wait_until(lambda: "First" in sites.text("chosen"))


def open_dialog(visit: Visit) -> None:
    visit.page.get_by_role("button", name="More", exact=True).click()
    visit.page.get_by_role("menuitem", name="Deploy a commit").click()


def test_an_app_gets_the_tier_and_the_variables_that_were_chosen_with_its_image(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/projects/new?from=image")
    visit.page.get_by_label("Name", exact=True).fill("sized-image")
    visit.page.get_by_label("Image", exact=True).fill("localhost:9/nothing:1")
    visit.page.get_by_role("radio", name="Mini").click()
    visit.page.get_by_text("Advanced").click()
    visit.page.get_by_label("Environment").fill("GREETING='ahoy there'\nAPI_KEY=sesame-open")
    expect(visit.page.get_by_text("1 variable, 1 secret")).to_be_visible()
    visit.page.get_by_role("button", name="Show as API call").click()
    shown = visit.page.get_by_role("region", name="Show as API call")
    expect(shown).to_contain_text("API_KEY")
    expect(shown).not_to_contain_text("sesame")
    visit.page.get_by_role("button", name="Create project").click()
    visit.page.wait_for_url("**/projects/sized-image/deployments/*")

    project = call(console, "GET", "/v1/projects/sized-image")
    assert (project["tier"]["key"], project["env"]) == ("mini", [{"name": "GREETING", "value": "ahoy there"}])
    assert [each["name"] for each in call(console, "GET", "/v1/projects/sized-image/secrets")] == ["API_KEY"]


def test_credentials_of_a_registry_are_stored_changed_and_never_shown(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/settings/registries")
    visit.page.get_by_role("button", name="Add registry").click()
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Host", exact=True).fill("Registry.example.com")
    dialog.get_by_label("User name").fill(HOSTILE)
    dialog.get_by_label("Password or access token").fill("hush-hush")
    dialog.get_by_role("button", name="Add registry").click()

    table = visit.page.get_by_role("table", name="Image registries")
    expect(table).to_contain_text("registry.example.com")
    expect(table).to_contain_text(HOSTILE)
    assert "hush-hush" not in visit.page.content()
    visit.page.get_by_role("button", name="Change registry.example.com").click()
    expect(dialog.get_by_label("Password or access token")).to_have_value("")
    dialog.get_by_label("User name").fill("ada")
    dialog.get_by_role("button", name="Save").click()
    expect(table).to_contain_text("ada")
    visit.page.get_by_role("button", name="Delete registry.example.com").click()
    dialog.get_by_role("button", name="Delete registry.example.com").click()
    expect(visit.page.get_by_text("Credentials of a private registry let apps")).to_be_visible()
    assert call(console, "GET", "/v1/registries") == []


def test_a_member_sees_registries_and_why_they_cannot_be_changed(visit: Visit) -> None:
    sign_in_as(visit, "member")
    visit.settle("/settings/registries")

    add = visit.page.get_by_role("button", name="Add registry")
    expect(add).to_be_disabled()
    expect(add).to_have_attribute("title", "Needs the role admin; you are member.")


def test_a_project_is_created_from_an_image_and_its_image_can_be_changed(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/projects/new?from=image")
    visit.page.get_by_label("Name", exact=True).fill("ready-image")
    visit.page.get_by_label("Image", exact=True).fill("localhost:9/nothing:1")
    visit.page.get_by_role("button", name="Create project").click()
    visit.page.wait_for_url("**/projects/ready-image/deployments/*")

    assert call(console, "GET", "/v1/projects/ready-image")["publicImage"] == "localhost:9/nothing:1"
    expect(visit.page.get_by_role("button", name="Deploy", exact=True)).to_be_visible()
    expect(visit.page.get_by_role("button", name="Deploy new files")).to_have_count(0)
    visit.settle("/projects/ready-image/settings")
    visit.page.get_by_label("Image", exact=True).fill("localhost:9/nothing:2")
    visit.page.get_by_role("button", name="Save").first.click()
    expect(visit.page.get_by_text("Saved", exact=True)).to_be_visible()
    assert call(console, "GET", "/v1/projects/ready-image")["publicImage"] == "localhost:9/nothing:2"


def test_an_operator_drains_a_machine_and_undoes_it(console: Console, visit: Visit) -> None:
    visit.sign_in()
    visit.settle("/operator/machines")
    table = visit.page.get_by_role("table", name="Machines")
    expect(table).to_contain_text("this one")
    expect(visit.page.get_by_role("button", name="Remove")).to_be_disabled()
    visit.page.get_by_role("button", name="Drain").click()
    dialog = visit.page.get_by_role("dialog")
    expect(dialog).to_contain_text("There is no other active machine")
    dialog.get_by_role("button", name="Drain").click()

    expect(table).to_contain_text("Draining")
    visit.page.get_by_role("button", name="Stop draining").click()
    expect(table).to_contain_text("Active")


def test_the_palette_has_the_acts_of_the_open_project_and_says_what_a_viewer_may_not(
    console: Console, visit: Visit
) -> None:
    name = make_site(console, "palette-site")
    sign_in_as(visit, "viewer")
    visit.settle(f"/projects/{name}")
    visit.page.keyboard.press("Control+k")
    found = visit.page.get_by_role("option")
    expect(found.filter(has_text="Create database")).to_contain_text("Needs the role member; you are viewer.")
    visit.page.get_by_role("combobox").fill(f"{name} environment")
    visit.page.keyboard.press("Enter")

    expect(visit.page).to_have_url(f"{console.url}/projects/{name}/environment")
