"""Databases as pods: created, linked to an app, backed up, restored, changed and deleted, over the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.functions_support import wait_until
from tests.e2e.kubernetes.cluster_support import Harbor, started_harbor

SOON_S = 120.0
KINDS = {"postgresql": "16.4.0", "mysql": "8.4.2"}
pytestmark = [pytest.mark.deep, pytest.mark.group("cluster-databases")]

# Connects to the server of DATABASE_URL, and answers with the first byte that the server sends.
CLIENT = """
import http.server, os, socket, struct, urllib.parse
url = urllib.parse.urlsplit(os.environ.get("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = self.ask() if self.path == "/database" else b"up"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def ask(self):
        body = b"user\\0" + url.username.encode() + b"\\0database\\0" + url.path[1:].encode() + b"\\0\\0"
        try:
            with socket.create_connection((url.hostname, url.port), 5) as sock:
                sock.settimeout(5)
                sock.sendall(struct.pack("!ii", len(body) + 8, 3 << 16) + body)
                return sock.recv(1) + b" " + url.hostname.encode()
        except OSError as error:
            return str(error).encode()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
DOCKERFILE = 'FROM PYTHON\nWORKDIR /srv\nCOPY server.py ./\nUSER 1001\nEXPOSE 8000\nCMD ["python3", "server.py"]\n'


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    with started_harbor(tmp_path_factory.mktemp("harbor")) as started:
        yield started


def create(harbor: Harbor, name: str, type_: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "type": type_, "version": KINDS[type_], "instanceType": "micro", **fields}
    found: dict[str, Any] = harbor.apps.call("POST", "/v1/databases", body)
    return found


def read(harbor: Harbor, name: str) -> dict[str, Any]:
    found: dict[str, Any] = harbor.apps.call("GET", f"/v1/databases/{name}")
    return found


def running(harbor: Harbor, name: str) -> dict[str, Any]:
    wait_until(lambda: read(harbor, name)["status"] == "running", SOON_S)
    return read(harbor, name)


def query(harbor: Harbor, name: str, sql: str, *, write: bool = False) -> list[list[Any]]:
    answer = harbor.apps.call("POST", f"/v1/databases/{name}/query", {"sql": sql, "write": write})
    return list(answer["rows"])


def pods(harbor: Harbor, name: str) -> list[dict[str, Any]]:
    number = read(harbor, name)["id"]
    return harbor.cluster.objects("Pod", f"moorage.dev/name=database-{number}")


def test_an_app_reaches_its_linked_database_by_the_name_of_its_service(harbor: Harbor) -> None:
    apps = harbor.apps
    work = harbor.repository("ship", Dockerfile=DOCKERFILE, server__py=CLIENT)
    apps.live(apps.launch("ship", work, language="docker"))

    create(harbor, "cargo", "postgresql", projectId=apps.call("GET", "/v1/projects/ship")["id"])
    found = running(harbor, "cargo")

    host = f"database-{found['id']}."
    wait_until(lambda: apps.ask("ship", "GET", "/database").body.decode().startswith(f"R {host}"), SOON_S)
    assert host in found["privateUrl"]
    assert found["publicUrl"] is None


@pytest.mark.parametrize("type_", KINDS)
def test_a_database_is_backed_up_restored_changed_and_deleted(harbor: Harbor, type_: str) -> None:
    apps, name = harbor.apps, f"log-{type_}"
    number = create(harbor, name, type_, instanceType="mini")["id"]
    running(harbor, name)
    query(harbor, name, "CREATE TABLE ships (name varchar(20))", write=True)
    query(harbor, name, "INSERT INTO ships VALUES ('gull')", write=True)

    backup = apps.call("POST", f"/v1/databases/{name}/backups")["name"]
    wait_until(lambda: apps.call("GET", f"/v1/databases/{name}/backups")["items"][0]["status"] == "completed", SOON_S)
    query(harbor, name, "INSERT INTO ships VALUES ('tern')", write=True)
    apps.call("POST", f"/v1/databases/{name}/restore", {"backupName": backup, "confirm": True})
    restored = running(harbor, name)
    after_restore = query(harbor, name, "SELECT name FROM ships")
    apps.call("POST", f"/v1/databases/{name}/change-tier", {"instanceType": "micro"})
    changed = running(harbor, name)
    [pod] = pods(harbor, name)
    old = apps.call("GET", f"/v1/databases/{name}/password")["password"]
    apps.call("POST", f"/v1/databases/{name}/rotate-password")
    running(harbor, name)
    new = apps.call("GET", f"/v1/databases/{name}/password")["password"]
    after_all = query(harbor, name, "SELECT name FROM ships")
    wait_until(lambda: read(harbor, name)["diskUsedBytes"] > 0, SOON_S)
    apps.call("DELETE", f"/v1/databases/{name}")
    trashed = f"moorage.dev/volume=database-{number},moorage.dev/trash"
    wait_until(lambda: harbor.cluster.objects("PersistentVolumeClaim", trashed), SOON_S)

    assert (restored["statusReason"], changed["statusReason"]) == (None, None)
    assert (after_restore, after_all) == ([["gull"]], [["gull"]])
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "640Mi"
    assert old != new
    assert harbor.cluster.objects("StatefulSet", f"moorage.dev/name=database-{number}") == []


def test_any_moment_after_a_base_backup_is_restored(harbor: Harbor) -> None:
    apps, name = harbor.apps, "journal"
    create(harbor, name, "postgresql", instanceType="mini")
    running(harbor, name)
    query(harbor, name, "CREATE TABLE ships (name varchar(20))", write=True)

    apps.call("PATCH", f"/v1/databases/{name}/backups", {"enabled": True, "method": "physical"})
    wait_until(lambda: base_of(harbor, name)["status"] == "completed", SOON_S)
    query(harbor, name, "INSERT INTO ships VALUES ('gull')", write=True)
    time.sleep(0.1)
    [[moment]] = query(harbor, name, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
    time.sleep(0.1)
    query(harbor, name, "DROP TABLE ships", write=True)
    asked = {"backupName": base_of(harbor, name)["name"], "targetTime": moment, "confirm": True}
    apps.call("POST", f"/v1/databases/{name}/restore", asked)
    restored = running(harbor, name)

    assert restored["statusReason"] is None
    assert query(harbor, name, "SELECT name FROM ships") == [["gull"]]
    wait_until(lambda: len(physical_of(harbor, name)) == 2, SOON_S)  # A base backup of the restored data.


def base_of(harbor: Harbor, name: str) -> dict[str, Any]:
    return next(iter(reversed(physical_of(harbor, name))), {"status": "none"})


def physical_of(harbor: Harbor, name: str) -> list[dict[str, Any]]:
    """Return the physical backups, newest first."""
    items = harbor.apps.call("GET", f"/v1/databases/{name}/backups")["items"]
    return [each for each in items if each["method"] == "physical"]


def test_what_a_cluster_does_not_offer_is_refused_with_a_sentence(harbor: Harbor) -> None:
    body = {"name": "no", "type": "postgresql", "version": "16.4.0", "instanceType": "free"}

    public = harbor.apps.call("POST", "/v1/databases", {**body, "visibility": "public"}, status=400)
    replicated = harbor.apps.call("POST", "/v1/databases", {**body, "architecture": "replicaset"}, status=400)

    assert "only its own apps and jobs reach them" in str(public)
    assert "standalone" in str(replicated)


def test_a_database_waits_for_room_says_so_and_starts_when_there_is_some(harbor: Harbor) -> None:
    harbor.cluster.set_room(has_room=False)
    try:
        create(harbor, "buoy", "postgresql", instanceType="free")
        wait_until(lambda: "no node of the cluster has room" in str(read(harbor, "buoy")["statusReason"]), SOON_S)
        during = read(harbor, "buoy")["status"]
    finally:
        harbor.cluster.set_room(has_room=True)

    found = running(harbor, "buoy")
    assert (during, found["statusReason"]) == ("deploying", None)


def test_an_api_server_that_is_away_stops_no_database(harbor: Harbor) -> None:
    create(harbor, "lamp", "postgresql", instanceType="free")
    running(harbor, "lamp")
    harbor.cluster.pause(is_paused=True)
    try:
        during = query(harbor, "lamp", "SELECT 1")
    finally:
        harbor.cluster.pause(is_paused=False)

    assert during == [[1]]
    assert running(harbor, "lamp")["statusReason"] is None
