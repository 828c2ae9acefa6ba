"""Monitors on a running platform: real targets and receivers, and a control process that is killed in between."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.core.mail import support as mail
from tests.core.mail.support import Inbox
from tests.e2e.functions_support import Platform, started, wait_until

pytestmark = [pytest.mark.deep, pytest.mark.group("monitors")]

ALERTS = 4
TOLD_S = 90.0


@dataclass
class Site:
    """A server on loopback: `/broken` fails, `/hook` takes what it is told, all else answers."""

    url: str = ""
    hooks: list[dict[str, str]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def serving_site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked[self.path] += 1
            body = b"all ships are in"
            self.send_response(500 if self.path == "/broken" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            delivery = {
                "id": self.headers["X-Moorage-Delivery"],
                "event": told["event"],
                "name": told["monitor"]["name"],
            }
            site.hooks.append(delivery)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving_site() as found:
        yield found


@pytest.fixture(scope="module")
def inbox() -> Iterator[Inbox]:
    with mail.serving() as found:
        yield found


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory, inbox: Inbox) -> Iterator[Platform]:
    with started(tmp_path_factory.mktemp("monitors") / "data", smtp_url=inbox.url) as platform:
        yield platform


@pytest.fixture(scope="module")
def steady(harbor: Platform, site: Site) -> dict[str, Any]:
    return monitor(harbor, "Steady", f"{site.url}/steady", keyword="ships", public=True)


@pytest.fixture(scope="module", autouse=True)
def outage(harbor: Platform, site: Site, steady: dict[str, Any]) -> Iterator[Future[None]]:
    """Alerts that fire while the control process is killed; the other tests go on meanwhile."""

    def fail() -> None:
        for number in range(ALERTS):
            made = monitor(harbor, f"Broken {number}", f"{site.url}/broken")
            rule = {"metric": "status", "condition": "lt", "threshold": 1, "webhookUrl": f"{site.url}/hook"}
            told = {"email": True, "slack": False, "webhook": True}
            harbor.api("POST", f"/v1/monitors/{made['id']}/alerts", {**rule, "notifications": told})
        wait_until(lambda: count(harbor, "alert WHERE pending_since IS NOT NULL") == ALERTS, TOLD_S)
        harbor.crash_control()
        # Nobody wants to wait a minute here, so it has begun a minute ago.
        write(harbor, "UPDATE alert SET pending_since = pending_since - 60000")
        wait_until(lambda: site.hooks, TOLD_S)
        harbor.crash_control()
        wait_until(lambda: count(harbor, "alert_incident") == ALERTS, TOLD_S)
        wait_until(lambda: count(harbor, "alert_notice WHERE status = 'pending'") == 0, TOLD_S)

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(fail)


def monitor(harbor: Platform, name: str, url: str, **fields: Any) -> dict[str, Any]:
    given = {"name": name, "url": url, "interval": 30, "retries": 0, **fields}
    made: dict[str, Any] = harbor.api("POST", "/v1/monitors", given)
    return made


def write(harbor: Platform, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(harbor.running.data / "store" / "moorage.db", timeout=30)) as store, store:
        store.execute(statement)


def count(harbor: Platform, what: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{harbor.running.data}/store/moorage.db?mode=ro", uri=True)) as store:
        return int(store.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def beats(harbor: Platform, made: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = harbor.api("GET", f"/v1/monitors/{made['id']}/heartbeats")
    return found


def test_a_new_monitor_is_checked_at_once(harbor: Platform, steady: dict[str, Any]) -> None:
    wait_until(lambda: beats(harbor, steady), TOLD_S)

    found = harbor.api("GET", f"/v1/monitors/{steady['id']}")
    assert (found["lastHeartbeat"]["status"], found["uptimePercent"]) == ("UP", 100.0)


def test_the_status_page_is_public_at_the_gateway(harbor: Platform, steady: dict[str, Any]) -> None:
    (org,) = harbor.api("GET", "/v1/orgs")
    wait_until(lambda: beats(harbor, steady), TOLD_S)

    with contextlib.closing(harbor.connect("gateway")) as visitor:
        visitor.request("GET", f"/status/{org['slug']}")
        answer = visitor.getresponse()
        page = answer.read().decode()

    assert answer.status == 200
    assert "Steady" in page
    assert "Broken" not in page


@pytest.mark.deep
def test_incidents_are_told_once_though_the_platform_is_killed_before_and_while_it_tells(
    harbor: Platform, site: Site, inbox: Inbox, outage: Future[None]
) -> None:
    outage.result()

    # What was sent just before the crash may come again, under the same id.
    by_hook = {hook["id"]: (hook["event"], hook["name"]) for hook in site.hooks}
    by_mail = {mail["Message-ID"]: mail["Subject"] for mail in inbox.mails}
    names = [f"Broken {number}" for number in range(ALERTS)]
    assert sorted(by_hook.values()) == [("alert.triggered", name) for name in names]
    assert len(by_mail) == ALERTS
    assert [sum(name in subject for subject in by_mail.values()) for name in names] == [1] * ALERTS
    alerts = [
        alert
        for row in harbor.api("GET", "/v1/monitors")
        for alert in harbor.api("GET", f"/v1/monitors/{row['id']}/alerts")
    ]
    assert [alert["status"] for alert in alerts] == ["triggered"] * ALERTS
    assert {delivery["status"] for alert in alerts for delivery in alert["deliveries"]} == {"delivered"}


@pytest.mark.deep
def test_checks_go_on_where_they_were_after_the_platform_was_killed(
    harbor: Platform, site: Site, steady: dict[str, Any], outage: Future[None]
) -> None:
    outage.result()

    wait_until(lambda: len(beats(harbor, steady)) > 1, TOLD_S)

    found = beats(harbor, steady)
    assert {beat["status"] for beat in found} == {"UP"}
    assert len({beat["time"] for beat in found}) == len(found)
    assert site.asked["/steady"] >= len(found)
