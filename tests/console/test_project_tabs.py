"""The tabs of a project, in a real browser."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import pytest
from playwright.sync_api import expect
from tests.console.accounts import call, make_site, sign_in_as
from tests.console.support import Console, Scheme, Visit
from tests.e2e.projects_support import Sites
from tests.products.domains.dns_server import Zone
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("console")

HOSTILE = "<img src=x onerror=alert(1)>"
TABS = (
    *("", "deployments", "deployments/compare", "previews", "logs", "metrics", "visitors", "domains", "environment"),
    *("rules?test=/old", "console", "activity", "settings"),
)
SERVER = """
const http = require("http");
console.log(%s);
http.createServer((request, response) => {
  console.log(request.url === "/long" ? "y".repeat(10 << 20) : "visited " + request.url);
  response.end("hello");
}).listen(process.env.PORT);
"""


def test_a_secret_is_shown_after_a_question_and_hidden_again(console: Console, visit: Visit) -> None:
    name = make_site(console, "vault-site")
    call(console, "PATCH", f"/v1/projects/{name}", {"secrets": [{"name": "API_KEY", "value": f"key {HOSTILE}"}]})
    visit.sign_in()
    visit.settle(f"/projects/{name}/environment")
    expect(visit.page.get_by_text(HOSTILE)).to_have_count(0)
    visit.page.get_by_role("button", name="Reveal: API_KEY").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Reveal").click()

    expect(visit.page.get_by_text(f"key {HOSTILE}")).to_be_visible()
    visit.page.get_by_role("button", name="Hide: API_KEY").click()
    expect(visit.page.get_by_text(HOSTILE)).to_have_count(0)
    revealed = call(console, "GET", f"/v1/projects/{name}/audit-log")["items"][0]
    assert (revealed["action"], revealed["details"]) == ("project.secret_revealed", {"secret": "API_KEY"})


@pytest.mark.usefixtures("own_profile")
def test_a_domain_is_verified_by_itself_once_its_record_exists(console: Console, visit: Visit, zone: Zone) -> None:
    name = make_site(console, "domain-site")
    visit.page.clock.install()
    visit.sign_in()
    visit.settle(f"/projects/{name}/domains")
    visit.page.get_by_label("Domain", exact=True).fill("www.verified-harbor.com")
    visit.page.get_by_role("button", name="Add domain").click()
    records = visit.page.get_by_role("table", name="DNS records")
    expect(records).to_contain_text("_moorage.www.verified-harbor.com")
    (domain,) = call(console, "GET", f"/v1/projects/{name}/domains")
    proof = domain["verification"]
    expect(records).to_contain_text(proof["value"])
    visit.page.get_by_role("button", name="Check now").click()
    expect(visit.page.get_by_role("alert").or_(visit.page.locator(".notice"))).to_contain_text("_moorage")
    zone.put_txt(proof["name"], proof["value"])
    visit.page.clock.fast_forward("00:11")

    expect(visit.page.get_by_text("Verified", exact=True)).to_be_visible()
    expect(visit.page.get_by_role("button", name="Check now")).to_have_count(0)
    visit.page.get_by_role("button", name="Remove domain: www.verified-harbor.com").click()
    visit.page.get_by_label("Type www.verified-harbor.com to confirm").fill("www.verified-harbor.com")
    visit.page.get_by_role("dialog").get_by_role("button", name="Remove www.verified-harbor.com").click()
    expect(visit.page.get_by_text("_moorage.www.verified-harbor.com")).to_have_count(0)
    assert call(console, "GET", f"/v1/projects/{name}/domains") == []


def test_a_whole_dotenv_file_is_pasted(console: Console, visit: Visit) -> None:
    name = make_site(console, "dotenv-site")
    call(
        console,
        "PATCH",
        f"/v1/projects/{name}",
        {"env": [{"name": "KEPT", "value": "1"}, {"name": "OLD", "value": "a"}]},
    )
    visit.sign_in()
    visit.settle(f"/projects/{name}/environment")
    visit.page.get_by_role("button", name="Paste .env").click()
    lines = ["# comment", "export OLD='b'", f'TITLE="{HOSTILE}"', "DB_PASSWORD=word # note", "nonsense"]
    visit.page.get_by_label(".env", exact=True).fill("\n".join(lines))
    expect(visit.page.get_by_text("3 found: 2 new, 1 changed")).to_be_visible()
    expect(visit.page.get_by_text("Line 5 is no KEY=value")).to_be_visible()
    visit.page.get_by_role("button", name="Save 3 values").click()

    expect(visit.page.get_by_role("table", name="Variables")).to_contain_text(HOSTILE)
    expect(visit.page.get_by_role("table", name="Secrets")).to_contain_text("DB_PASSWORD")
    stored = {each["name"]: each["value"] for each in call(console, "GET", f"/v1/projects/{name}")["env"]}
    assert stored == {"KEPT": "1", "OLD": "b", "TITLE": HOSTILE}
    secret = call(console, "POST", f"/v1/projects/{name}/secrets/reveal", {"name": "DB_PASSWORD"})
    assert secret["value"] == "word"


def test_a_variable_is_added_changed_and_deleted(console: Console, visit: Visit) -> None:
    name = make_site(console, "variable-site")
    visit.sign_in()
    visit.settle(f"/projects/{name}/environment")
    visit.page.get_by_role("button", name="Add variable").click()
    visit.page.get_by_label("Value", exact=True).fill("one")
    visit.page.get_by_role("button", name="Save").click()
    expect(visit.page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.
    visit.page.get_by_label("Name", exact=True).fill("GREETING")
    visit.page.get_by_role("button", name="Save").click()
    visit.page.get_by_role("button", name="Edit GREETING").click()
    visit.page.get_by_label("Value", exact=True).fill("two")
    visit.page.get_by_role("button", name="Save").click()

    expect(visit.page.get_by_role("table", name="Variables")).to_contain_text("two")
    visit.page.get_by_role("button", name="Delete GREETING").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Delete GREETING").click()
    expect(visit.page.get_by_role("table", name="Variables")).to_have_count(0)
    assert call(console, "GET", f"/v1/projects/{name}")["env"] == []


def test_a_domain_is_added_and_its_records_can_be_copied(console: Console, visit: Visit) -> None:
    name = make_site(console, "domain-site")
    visit.sign_in()
    visit.settle(f"/projects/{name}/domains")
    visit.page.get_by_label("Domain", exact=True).fill("not a domain")
    visit.page.get_by_role("button", name="Add domain").click()
    expect(visit.page.get_by_label("Domain", exact=True)).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.
    visit.page.get_by_label("Domain", exact=True).fill("WWW.Pier-Example.com")
    visit.page.get_by_role("button", name="Add domain").click()

    records = visit.page.get_by_role("table", name="DNS records")
    expect(records).to_contain_text("TXT")
    expect(records).to_contain_text(call(console, "GET", f"/v1/projects/{name}/domains")[0]["verification"]["value"])
    visit.page.get_by_role("button", name="Remove domain: www.pier-example.com").click()
    visit.page.get_by_label("Type www.pier-example.com to confirm").fill("www.pier-example.com")
    visit.page.get_by_role("button", name="Remove www.pier-example.com").click()
    expect(records).to_have_count(0)


def test_the_test_box_says_what_happens_to_a_path(console: Console, visit: Visit) -> None:
    name = make_site(console, "rule-site")
    visit.sign_in()
    visit.settle(f"/projects/{name}/rules")
    for number, (source, destination) in enumerate((("/blog/*", "/posts/*"), ("/old", "/blog/first")), 1):
        visit.page.get_by_role("button", name="Add redirect").click()
        visit.page.get_by_label(f"Source of rule {number}").fill(source)
        visit.page.get_by_label(f"Destination of rule {number}").fill(destination)
    visit.page.get_by_label("Path to test").fill("/old?page=2")
    expect(visit.page.get_by_role("status").get_by_text("/posts/first?page=2")).to_be_visible()
    visit.page.get_by_role("button", name="Add header").click()
    for label, value in (("Source", "/posts/*"), ("Header", "Cache-Control"), ("Value", "max-age=60")):
        visit.page.get_by_label(f"{label} of header rule 1").fill(value)
    expect(visit.page.get_by_role("status").get_by_text("Cache-Control: max-age=60")).to_be_visible()
    visit.page.get_by_role("button", name="Move rule 2 up").click()
    visit.page.get_by_role("button", name="Save rules").first.click()  # of the redirects
    expect(visit.page.get_by_text("Rules saved")).to_be_visible()

    stored = call(console, "GET", f"/v1/projects/{name}/redirects")
    assert [each["source"] for each in stored] == ["/old", "/blog/*"]
    gateway = HTTPConnection("127.0.0.1", console.running.ports["gateway"], timeout=10)
    gateway.request("GET", "/blog/x?page=2", headers={"Host": f"{name}.localhost"})
    answer = gateway.getresponse()
    assert (answer.status, answer.getheader("location")) == (301, "/posts/x?page=2")


def test_the_activity_of_a_project_includes_its_former_name(console: Console, visit: Visit) -> None:
    name = make_site(console, "former-site")
    call(console, "PATCH", f"/v1/projects/{name}", {"env": [{"name": "A", "value": "1"}]})
    call(console, "PATCH", f"/v1/projects/{name}/name", {"name": "later-site"})
    visit.sign_in()
    visit.settle("/projects/later-site/activity")

    entries = visit.page.get_by_role("list", name="Activity").get_by_role("listitem")
    expect(entries.first).to_contain_text("renamed project later-site")
    expect(entries.filter(has_text="updated project")).to_contain_text("changed: env")
    expect(entries.filter(has_text="uploaded")).to_contain_text(name)


def test_a_rule_that_is_refused_is_marked_at_its_field(console: Console, visit: Visit) -> None:
    name = make_site(console, "refused-site")
    visit.sign_in()
    visit.settle(f"/projects/{name}/rules")
    visit.page.get_by_role("button", name="Add redirect").click()
    visit.page.get_by_label("Source of rule 1").fill("no path")
    visit.page.get_by_label("Destination of rule 1").fill("/new")
    visit.page.get_by_role("button", name="Save rules").click()

    expect(visit.page.get_by_label("Source of rule 1")).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.


def test_a_viewer_sees_controls_that_say_why_they_are_off(console: Console, visit: Visit) -> None:
    name = make_site(console, "viewed-site")
    sign_in_as(visit, "viewer")
    visit.settle(f"/projects/{name}/environment")
    add = visit.page.get_by_role("button", name="Add variable")
    expect(add).to_have_attribute("aria-disabled", "true")
    expect(add).to_have_attribute("title", "Needs the role member; you are viewer.")
    add.click(force=True)
    expect(visit.page.get_by_role("dialog")).to_have_count(0)
    expect(visit.page.get_by_text("Viewers do not see the names of secrets.")).to_be_visible()

    for tab, button in (("domains", "Add domain"), ("rules", "Add redirect"), ("settings", "Delete project")):
        visit.settle(f"/projects/{name}/{tab}")
        expect(visit.page.get_by_role("button", name=button)).to_have_attribute("aria-disabled", "true")
    visit.settle("/settings/members")
    expect(visit.page.get_by_role("button", name="Invite")).to_have_attribute("aria-disabled", "true")


@pytest.fixture(scope="module")
def app(console: Console, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An app that prints a hostile line, and each path that is visited."""
    work = Checkout.init(tmp_path_factory.mktemp("app") / "printer")
    line = f"\x1b[32mgreen\x1b[0m {HOSTILE} \u202etxt.exe"
    work.folder.joinpath("server.js").write_text(SERVER % json.dumps(line))
    work.folder.joinpath("package.json").write_text('{"name": "printer", "scripts": {"start": "node server.js"}}')
    work.commit()
    Sites(console.running, console.running.token()).push(work, "demo/printer")
    return "printer"


def test_what_an_app_prints_is_followed_live_and_shown_as_text(console: Console, visit: Visit, app: str) -> None:
    visit.sign_in()
    visit.settle(f"/projects/{app}/logs")
    log = visit.page.get_by_role("log")
    expect(log).to_contain_text(HOSTILE)
    console.running.call("GET", "/from-the-test", headers={"Host": f"{app}.localhost"}, port="gateway")

    expect(log).to_contain_text("visited /from-the-test")
    assert log.locator("img").count() == 0
    assert "\u202e" not in log.inner_text()
    visit.page.get_by_label("Only lines that contain").fill("from-the-test")
    expect(log).not_to_contain_text(HOSTILE)
    visit.page.get_by_role("button", name="1h").click()
    expect(visit.page.get_by_role("log")).to_contain_text("visited /from-the-test")
    assert "search=from-the-test" in visit.page.url
    assert "range=1h" in visit.page.url


@pytest.mark.deep
def test_a_line_of_10_mb_is_shown_in_part_and_the_page_answers(console: Console, visit: Visit, app: str) -> None:
    visit.sign_in()
    visit.settle(f"/projects/{app}/logs")
    log = visit.page.get_by_role("log")
    console.running.call("GET", "/long", headers={"Host": f"{app}.localhost"}, port="gateway")
    console.running.call("GET", "/after", headers={"Host": f"{app}.localhost"}, port="gateway")
    expect(log).to_contain_text("visited /after")
    expect(log).to_contain_text("yyyyyyyy")
    visit.settle(f"/projects/{app}/console")
    visit.page.get_by_label("Command").fill("head -c 10485760 /dev/zero | tr '\\0' x; echo; echo over")
    visit.page.get_by_role("button", name="Run").click()

    expect(visit.page.get_by_text("Exit 0 after")).to_be_visible()
    expect(visit.page.get_by_role("log")).to_contain_text("more in this line")
    visit.page.get_by_label("Search the log").fill("over")
    expect(visit.page.get_by_text("1 of 1")).to_be_visible()
    assert visit.page.locator("main").inner_text().count("x" * 100) < 100


def test_a_command_prints_while_it_runs(visit: Visit, app: str) -> None:
    visit.sign_in()
    visit.settle(f"/projects/{app}/console")
    visit.page.get_by_label("Command").fill("echo $((6*7)) and '<b>bold</b>'; exit 3")
    visit.page.get_by_role("button", name="Run").click()

    expect(visit.page.get_by_role("log")).to_contain_text("42 and <b>bold</b>")
    expect(visit.page.get_by_text("Exit 3 after")).to_be_visible()


def test_a_deployment_shows_its_swap_and_is_compared(console: Console, visit: Visit, app: str) -> None:
    call(console, "PATCH", f"/v1/projects/{app}?wait=60", {"env": [{"name": "A", "value": "1"}]})
    visit.sign_in()
    visit.settle(f"/projects/{app}/deployments/compare")

    expect(visit.page.get_by_label("From")).to_be_visible()
    expect(visit.page.get_by_role("row", name="Traffic during the switch")).to_be_visible()
    visit.settle(f"/projects/{app}/deployments")
    visit.page.locator(".row-link").first.click()
    expect(visit.page.get_by_role("heading", name="Switch of traffic")).to_be_visible()


def test_settings_are_saved_and_wrong_ones_are_marked(console: Console, visit: Visit, app: str) -> None:
    visit.sign_in()
    visit.settle(f"/projects/{app}/settings")
    visit.page.get_by_label("Disk (GB)").fill("5000")
    visit.page.get_by_role("button", name="Save").nth(1).click()
    expect(visit.page.get_by_label("Disk (GB)")).to_have_attribute("aria-invalid", "true")
    visit.problems.clear()  # The browser reports the refused request.
    visit.page.get_by_label("Health check path").fill("/ready")
    visit.page.get_by_role("button", name="Save").first.click()
    expect(visit.page.get_by_text("Saved", exact=True)).to_be_visible()

    assert call(console, "GET", f"/v1/projects/{app}")["healthCheckPath"] == "/ready"


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_locked_out_of_a_tab(console: Console, app: str, scheme: Scheme) -> None:
    """Of an app; `test_every_page.py` has the tabs of a site."""
    call(console, "POST", f"/v1/projects/{app}/domains", {"domain": f"{scheme}.barrier-example.com"})
    call(console, "PATCH", f"/v1/projects/{app}", {"secrets": [{"name": "KEY", "value": "1"}], "enableAnalytics": True})
    redirect = {"source": "/old", "destination": "/new", "status": 301}
    call(console, "PUT", f"/v1/projects/{app}/redirects", {"redirects": [redirect]})
    barriers = {}
    with console.visit(scheme=scheme) as visit:
        visit.sign_in()
        for tab in TABS:
            visit.settle(f"/projects/{app}/{tab}")
            barriers[tab] = visit.find_barriers()
    assert {tab: found for tab, found in barriers.items() if found} == {}
    assert visit.problems == []


@pytest.mark.deep
def test_tabs_fit_on_a_phone(console: Console, app: str) -> None:
    with console.visit(width=390) as visit:
        visit.sign_in()
        for tab in TABS:
            visit.settle(f"/projects/{app}/{tab}")
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        assert visit.problems == []
