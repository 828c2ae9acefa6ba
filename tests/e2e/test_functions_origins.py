"""Functions of two organizations in one real browser: what one of them can do to a visitor of the other."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright
from tests.command import moorage
from tests.e2e.functions_support import Platform, read_answer

pytestmark = pytest.mark.group("functions")

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]

# A page, a script that takes over whatever it may control, and replies of the types that browsers show as documents.
CODE = '''
PAGE = "<!doctype html><title>%s</title><h1>%s</h1><form method=post><button>send</button></form>"
WORKER = """
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => event.respondWith(new Response("taken over", {headers: {"x-by": "worker"}})));
"""
SCRIPT = "document.documentElement.setAttribute('data-origin', self.origin)"
DOCUMENTS = {
    "/html": ("text/html", "<html><script>%s</script>" % SCRIPT),
    "/xhtml": ("application/xhtml+xml",
               "<html xmlns='http://www.w3.org/1999/xhtml'><body><script>%s</script></body></html>" % SCRIPT),
    "/svg": ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'><script>%s</script></svg>" % SCRIPT),
    "/xml": ("text/xml", "<a><script xmlns='http://www.w3.org/1999/xhtml'>%s</script></a>" % SCRIPT),
    "/several": ("text/plain, text/html", "<html><script>%s</script>" % SCRIPT),
    "/unknown": ("*/*", "<html><script>%s</script>" % SCRIPT),
    "/loosened": ("text/html", "<html><script>%s</script>" % SCRIPT),
}
LOOSE = {
    "Content-Security-Policy": "sandbox allow-scripts allow-same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

def main(params):
    path, headers = params["__ow_path"], params["__ow_headers"]
    if path == "/sw.js":
        return {"statusCode": 200, "body": WORKER,
                "headers": {"Content-Type": "text/javascript", "Service-Worker-Allowed": "/"}}
    if path == "/plain":
        return {"statusCode": 200, "body": {"cookie": headers.get("cookie", "")}}
    if path == "/cookie":
        return {"statusCode": 200, "body": "set", "headers": {"Set-Cookie": "taken=1; Path=/"}}
    if path in DOCUMENTS:
        kind, body = DOCUMENTS[path]
        more = LOOSE if path == "/loosened" else {}
        return {"statusCode": 200, "body": body, "headers": {"Content-Type": kind, **more}}
    said = params["__ow_method"] + " " + params.get("WHO", "")
    return {"statusCode": 200, "body": PAGE % (said, said)}
'''

REGISTER = """async (script) => {
  try {
    await navigator.serviceWorker.register(script, {scope: "/"});
    await navigator.serviceWorker.ready;
    return "registered";
  } catch (error) { return error.name; }
}"""


@dataclass(frozen=True)
class Town:
    """Two organizations on one platform, each with a function `page`."""

    edge: int
    gateway: int
    attacker: str
    victim: str

    def shared(self, org: str, rest: str = "", *, port: int = 0) -> str:
        return f"http://localhost:{port or self.edge}/api/v1/web/org_{org}/default/page{rest}"

    def own(self, org: str, rest: str = "") -> str:
        return f"http://org-{org}.localhost:{self.edge}/default/page{rest}"


class EarlierPlatform(ThreadingHTTPServer):
    """Passes requests to the function gateway and, until the upgrade, its replies on without any protection."""

    def __init__(self, edge: int) -> None:
        super().__init__(("127.0.0.1", 0), EarlierReplies)
        self.edge = edge
        self.is_upgraded = False
        self.url = f"http://localhost:{self.server_port}"


class EarlierReplies(BaseHTTPRequestHandler):
    server: EarlierPlatform

    def do_GET(self) -> None:
        upgraded = self.server.is_upgraded
        sent = {name: value for name, value in self.headers.items() if upgraded or name in ("Host", "Accept")}
        with contextlib.closing(HTTPConnection("127.0.0.1", self.server.edge, timeout=30)) as edge:
            edge.request("GET", self.path, headers=sent)
            reply = edge.getresponse()
            body = reply.read()
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if upgraded or name not in ("content-security-policy", "x-content-type-options"):
                self.send_header(name, value)
        if not upgraded:
            self.send_header("Service-Worker-Allowed", "/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def earlier_platform(edge: int) -> Iterator[EarlierPlatform]:
    with EarlierPlatform(edge) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def town(platform: Platform) -> Town:
    data = platform.running.data
    moorage("admin", "create-user", "rival@example.com", "--data", data)
    rival = Platform(
        platform.running, moorage("admin", "token", "rival@example.com", "--data", data).stdout.split()[-1]
    )
    for each, who in ((platform, "victim"), (rival, "attacker")):
        each.create("page", "python", CODE, env=f'[{{"name": "WHO", "value": "{who}"}}]')
    ports = platform.running.ports
    return Town(ports["edge"], ports["gateway"], attacker=rival.org, victim=platform.org)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A Chromium with one profile: what a page leaves in it, the next one finds."""
    program = shutil.which("chromium")
    assert program, "the tests need Chromium: tests/system-packages installs it"
    with sync_playwright() as driver:
        profile: Path = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(profile, executable_path=program, headless=True, args=FLAGS)
        yield context
        context.close()


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def shown(page: Page, url: str) -> str:
    """Return the text that a visitor of an address sees."""
    page.goto(url)
    return page.inner_text("body")


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "A service worker of one organization never answers for another's function.")
def test_no_service_worker_can_be_registered_at_the_shared_address(town: Town, page: Page) -> None:
    script = town.shared(town.attacker, "/sw.js")

    page.goto(town.shared(town.attacker))
    from_its_page = page.evaluate(REGISTER, script)
    page.goto(town.shared(town.attacker, "/plain"))  # A reply without scripts has the origin of the address.
    from_the_origin = page.evaluate(REGISTER, script)

    assert from_its_page == "SecurityError"
    assert from_the_origin in ("TypeError", "AbortError")
    assert "victim" in shown(page, town.shared(town.victim))


@pytest.mark.parametrize("asked", [{"Service-Worker": "script"}, {"Sec-Fetch-Dest": "serviceworker"}])
@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_the_script_of_a_service_worker_is_refused_without_a_call(
    platform: Platform, town: Town, asked: dict[str, str], port: str
) -> None:
    before = len(platform.invocations("page"))

    refused = platform.fetch("page", "/sw.js", headers=asked, port=port)
    of_no_function = platform.fetch("gone", "/sw.js", headers=asked, port=port)

    assert (refused.status, refused.error["code"], of_no_function.status) == (403, "forbidden", 403)
    assert refused.header("clear-site-data") == '"storage"'
    assert len(platform.invocations("page")) == before


def test_a_function_is_called_at_the_url_that_its_detail_shows(platform: Platform, echo: str, town: Town) -> None:
    url = urlsplit(platform.api("GET", f"/v1/functions/{echo}")["url"])
    assert url.hostname is not None
    connection = platform.connect()

    connection.request("POST", f"{url.path}.http/a?b=1", "c=2", {"Host": url.netloc, **FORM})
    given = read_answer(connection.getresponse())
    connection.request("GET", platform.path(echo), headers={"Host": url.netloc})
    at_its_shared_path = read_answer(connection.getresponse())
    connection.request("GET", url.path, headers={"Host": url.netloc.replace(f"-{town.victim}.", f"-{town.attacker}.")})
    of_another = read_answer(connection.getresponse())
    connection.request("OPTIONS", url.path, headers={"Host": url.netloc})
    preflight = read_answer(connection.getresponse())
    connection.close()

    assert (url.hostname, url.port) == (f"org-{platform.org}.localhost", platform.running.ports["edge"])
    assert (given.json["b"], given.json["c"], given.json["__ow_path"]) == ("1", "2", "/a")
    assert len(given.activation) == 32
    assert [at_its_shared_path.error["code"], of_another.error["code"]] == ["not_found", "not_found"]
    assert (preflight.status, preflight.header("access-control-allow-origin")) == (200, "*")


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "A service worker of one organization never answers for another's function.")
def test_a_service_worker_at_the_own_host_controls_that_host_only(town: Town, page: Page) -> None:
    page.goto(town.own(town.attacker))

    assert page.evaluate(REGISTER, town.own(town.attacker, "/sw.js")) == "registered"
    assert shown(page, town.own(town.attacker)) == "taken over"
    assert "victim" in shown(page, town.own(town.victim))
    assert "victim" in shown(page, town.shared(town.victim))
    assert "attacker" in shown(page, town.shared(town.attacker))


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "A service worker from before such scripts were refused removes itself.")
def test_a_service_worker_that_was_planted_before_ends_at_its_next_update(town: Town, page: Page) -> None:
    path = f"/api/v1/web/org_{town.attacker}/default/page"
    with earlier_platform(town.edge) as platform:
        page.goto(f"{platform.url}{path}")
        planted = page.evaluate(REGISTER, f"{path}/sw.js")
        before = shown(page, f"{platform.url}/api/v1/web/org_{town.victim}/default/page")

        platform.is_upgraded = True
        page.evaluate(
            "async () => { await (await navigator.serviceWorker.getRegistration('/')).update().catch(() => 0) }"
        )
        page.goto("about:blank")
        after = shown(page, f"{platform.url}/api/v1/web/org_{town.victim}/default/page")

    assert (planted, before) == ("registered", "taken over")
    assert "victim" in after


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "Pages of functions at the shared address share no storage and no documents.")
def test_pages_at_the_shared_address_share_neither_storage_nor_cookies_nor_frames(town: Town, page: Page) -> None:
    page.goto(town.shared(town.attacker))

    denied = page.evaluate(
        """async (victim) => {
          const tried = {origin: self.origin};
          for (const [name, use] of Object.entries({
            storage: () => localStorage.x = 1,
            cookie: () => document.cookie = "x=1; path=/",
            database: () => indexedDB.open("x"),
            caches: () => caches.open("x"),
          })) {
            try { await use(); tried[name] = "used"; } catch (error) { tried[name] = error.name; }
          }
          const frame = document.createElement("iframe");
          frame.src = victim;
          await new Promise((done) => { frame.onload = done; document.body.append(frame); });
          tried.frame = frame.contentDocument === null ? "closed" : "open";
          return tried;
        }""",
        town.shared(town.victim),
    )

    assert denied == {"origin": "null", "frame": "closed"} | dict.fromkeys(
        ("storage", "cookie", "database", "caches"), "SecurityError"
    )


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "A cookie of a function is sent to that function only.")
def test_a_cookie_for_all_paths_reaches_only_the_function_that_set_it(town: Town, page: Page) -> None:
    page.goto(town.shared(town.attacker, "/cookie"))
    page.goto(town.own(town.victim, "/cookie"))

    assert "taken=1" in shown(page, town.shared(town.attacker, "/plain"))
    assert "taken" not in shown(page, town.shared(town.victim, "/plain"))
    assert "taken=1" in shown(page, town.own(town.victim, "/plain"))


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "A document that a function answers at the shared address has no origin.")
def test_a_document_of_any_type_has_no_origin_at_the_shared_address(town: Town, page: Page) -> None:
    kinds = ("/html", "/xhtml", "/svg", "/xml", "/several", "/unknown", "/loosened")

    found: dict[str, Any] = {}
    for kind in kinds:
        for port in (town.edge, town.gateway):
            page.goto(town.shared(town.attacker, kind, port=port))
            found[f"{kind} {port}"] = page.evaluate("document.documentElement.getAttribute('data-origin')")

    assert set(found.values()) == {"null"}, found


@pytest.mark.deep
def test_a_page_at_the_shared_address_still_runs_scripts_sends_forms_and_calls_functions(
    town: Town, page: Page
) -> None:
    page.goto(town.shared(town.attacker))

    called = page.evaluate("async (url) => (await fetch(url)).status", town.shared(town.victim, "/plain"))
    page.click("button")

    assert called == 200
    assert "post attacker" in page.inner_text("h1")


@pytest.mark.deep
def test_a_page_at_the_own_host_has_storage_of_its_own(town: Town, page: Page) -> None:
    page.goto(town.own(town.victim))
    page.evaluate("localStorage.x = 'mine'")

    again = page.goto(town.own(town.victim, "/html"))

    assert again is not None
    assert "content-security-policy" not in again.headers
    assert page.evaluate("localStorage.x") == "mine"
    page.goto(town.own(town.victim).replace(f"org-{town.victim}.", f"org-{town.victim}0."))
    assert page.evaluate("localStorage.x") is None
