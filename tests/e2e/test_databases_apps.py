"""An app with a database of its own: it is given the address, may connect, and nobody else may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.databases_support import Databases, Harbor, wait_until
from tests.products.repositories.support import Checkout

pytest_plugins = ("tests.e2e.databases_fixtures",)
pytestmark = pytest.mark.group("databases")

COUNTER, STRANGER, VISITS = "counter", "stranger", "visits"
PROCFILE = "web: python main.py\n"
SERVER = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = answer(self.path).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
# It counts its visitors in the database that its environment names.
COUNTING = """
import json, os
from urllib.parse import urlsplit
import pg8000.native

def answer(path):
    url = urlsplit(os.environ.get("DATABASE_URL", ""))
    if path != "/visit" or not url.hostname:
        return "no visit"
    database = pg8000.native.Connection(
        url.username, host=url.hostname, port=url.port, password=url.password, database=url.path[1:]
    )
    database.run("CREATE TABLE IF NOT EXISTS visits (id BIGSERIAL PRIMARY KEY)")
    database.run("INSERT INTO visits DEFAULT VALUES")
    ((count,),) = database.run("SELECT count(*) FROM visits")
    database.close()
    return json.dumps({"visits": count, "passwordLength": len(url.password)})
"""
# Its build creates a table and stores a row of it in a file.
BUILDER = "builder"
PACKAGE = {
    "scripts": {"build": "npm run migration:run", "migration:run": "node migrate.js", "start": "node server.js"},
    "dependencies": {"pg": "8.16.3"},
}
MIGRATING = """
const { writeFileSync } = require("fs"), { Client } = require("pg");
const client = new Client({ connectionString: process.env.DATABASE_URL });
client.connect()
  .then(() => client.query("CREATE TABLE IF NOT EXISTS tides (height int PRIMARY KEY)"))
  .then(() => client.query("INSERT INTO tides VALUES (42) ON CONFLICT DO NOTHING"))
  .then(() => client.query("SELECT height FROM tides"))
  .then(({ rows }) => { writeFileSync("tides.json", JSON.stringify(rows[0])); return client.end(); });
"""
SERVING = """
const { readFileSync } = require("fs"), { createServer } = require("http");
createServer((_, response) => response.end(readFileSync("tides.json"))).listen(process.env.PORT);
"""
STRANGE = "def answer(path):\n    return 'a stranger'\n"


@pytest.fixture(scope="module")
def apps(harbor: Harbor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Two apps, of which one is given a database when both run."""
    folder, apps = tmp_path_factory.mktemp("linked"), harbor.databases
    uuids = [
        apps.launch(
            COUNTER, repository(folder / COUNTER, COUNTING, requirements_txt="pg8000==1.31.2\n"), language="python"
        ),
        apps.launch(STRANGER, repository(folder / STRANGER, STRANGE), language="python"),
    ]
    for uuid in uuids:
        apps.live(uuid)
    project_id = apps.call("GET", f"/v1/projects/{COUNTER}")["id"]
    apps.make(VISITS, projectId=project_id, visibility="private")
    apps.up(VISITS)
    wait_for_deployments(apps, 2)
    yield apps
    for name in (COUNTER, STRANGER):
        apps.call("DELETE", f"/v1/projects/{name}")
    apps.call("DELETE", f"/v1/databases/{VISITS}")
    apps.wait_until_gone(VISITS)


def repository(folder: Path, code: str, **files: str) -> Checkout:
    work = Checkout.init(folder)
    work.commit("the first", main_py=code + SERVER, Procfile=PROCFILE, **files)
    return work


def wait_for_deployments(apps: Databases, count: int) -> None:
    """Wait until the app with the database was started so many times, which has to succeed."""
    wait_until(lambda: len(apps.deployments(COUNTER)) >= count)
    found = apps.deployments(COUNTER)
    assert len(found) == count
    apps.live(found[0]["deploymentUuid"])


def visit(apps: Databases) -> int:
    told = json.loads(apps.text(COUNTER, "/visit"))
    assert told["passwordLength"] == 32
    return int(told["visits"])


def test_an_app_is_given_its_database_and_works_with_it(apps: Databases) -> None:
    counts = [visit(apps), visit(apps)]

    assert counts == [1, 2]
    assert apps.client(VISITS).ask("SELECT count(*) FROM visits") == [(2,)]


def test_an_app_that_is_not_linked_does_not_reach_the_database(apps: Databases) -> None:
    port = apps.read(VISITS)["connectionDetails"]["port"]
    connect = f"python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""

    linked, other = (apps.execute(name, connect) for name in (COUNTER, STRANGER))

    assert linked["exitCode"] == 0
    assert (other["exitCode"], "ConnectionRefusedError" in other["stderr"]) == (1, True)
    assert apps.text(STRANGER) == "a stranger"


def test_an_app_goes_on_with_another_password(apps: Databases) -> None:
    before, visits = apps.credentials(VISITS)["password"], visit(apps)

    apps.call("POST", f"/v1/databases/{VISITS}/rotate-password")
    wait_for_deployments(apps, 3)

    assert visit(apps) == visits + 1
    assert apps.credentials(VISITS)["password"] != before


def test_a_build_with_migrations_gets_a_database_and_reaches_it(apps: Databases, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / BUILDER)
    work.commit("the first", package_json=json.dumps(PACKAGE), migrate_js=MIGRATING, server_js=SERVING)
    names = {each["name"] for each in apps.call("GET", "/v1/databases")["items"]}
    uuid = apps.launch(BUILDER, work, language="nodejs")

    apps.live(uuid)

    assert json.loads(apps.text(BUILDER)) == {"height": 42}
    (name,) = {each["name"] for each in apps.call("GET", "/v1/databases")["items"]} - names
    assert apps.client(name).ask("SELECT height FROM tides") == [(42,)]
    assert apps.credentials(name)["password"] not in "\n".join(apps.log(uuid))
    apps.call("DELETE", f"/v1/projects/{BUILDER}")
    apps.call("DELETE", f"/v1/databases/{name}")
    apps.wait_until_gone(name)
