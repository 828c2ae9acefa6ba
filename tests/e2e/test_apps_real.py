"""Real apps, from the registries: pushed with git, built, started, and used through the public gateway.

Their builds share the time that the slowest takes. An open WebSocket holds the release that it was opened on for half a
minute, so that is begun while others are still built, and its end is looked at by the last test.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.e2e.apps_support import Apps, WebSocket, checkout_of, eventually, pairs, started_apps
from tests.e2e.functions_support import Answer
from tests.platform.running import free_ports
from tests.postgres_server import running_postgres

pytestmark = [pytest.mark.deep, pytest.mark.group("apps-real")]

UP = [sys.executable, "-P", str(Path(__file__).with_name("apps_up.py"))]
API_KEY, PASSWORD = "sk-of-the-harbor", "a password of the harbor master"
MIGRATE = "python manage.py migrate --noinput && python manage.py createsuperuser --noinput"


@dataclass
class Swapped:
    """A WebSocket that was open while another release took over, and what came back on it before and after."""

    socket: WebSocket
    before: str
    after: str


@dataclass
class Fleet:
    """The platform, and what every app's deployment said."""

    apps: Apps
    logs: dict[str, list[str]]
    swapped: Swapped
    database_port: int
    folder: Path


@pytest.fixture(scope="module")
def database_port() -> Iterator[int]:
    port = free_ports()["api"]
    with running_postgres(port):
        yield port


def samples(database_port: int) -> dict[str, dict[str, Any]]:
    """Return what each project is made with; it is named after its sample."""
    django = {
        "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{database_port}/postgres",
        "SECRET_KEY": secrets.token_hex(25),
        "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    }
    master = {"DJANGO_SUPERUSER_USERNAME": "master", "DJANGO_SUPERUSER_EMAIL": "master@harbor.test"}
    return {
        "sockets": {"env": pairs({"RELEASE": "one"})},
        "django": {"language": "python", "env": pairs(master), "secrets": pairs(django)},
        "express": {
            "language": "nodejs",
            "env": pairs({"GREETING": "ahoy"}),
            "secrets": pairs({"API_KEY": API_KEY}),
        },
        "fastapi": {"env": pairs({"HARBOR": "north"}), "healthCheckPath": "/berths/1"},
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, database_port: int) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("real")
    links = json.dumps({"django": f"127.0.0.1:{database_port}"})
    with started_apps(folder / "data", UP, {"LINKED": links}, builds="5", build_memory_mb="1024") as apps:
        asked = samples(database_port)
        uuids = {name: apps.launch(name, checkout_of(name, folder), **fields) for name, fields in asked.items()}
        apps.live(uuids["sockets"])
        swapped = swap(apps)
        for uuid in uuids.values():
            apps.live(uuid)
        yield Fleet(apps, {name: apps.log(uuid) for name, uuid in uuids.items()}, swapped, database_port, folder)


def swap(apps: Apps) -> Swapped:
    """Open a socket, and let another release take over."""
    socket = apps.web_socket("sockets")
    before = socket.echo("hello")
    apps.live(apps.change("sockets", env=pairs({"RELEASE": "two"})))
    return Swapped(socket, before, socket.echo("still here"))


def test_an_open_socket_stays_with_its_release_when_another_takes_over(fleet: Fleet) -> None:
    fresh = fleet.apps.web_socket("sockets")

    said = (fleet.swapped.before, fleet.swapped.after, fresh.echo("hello"))

    assert "start:    node echo.js" in fleet.logs["sockets"]
    assert said == ("one: hello", "one: still here", "two: hello")
    assert fleet.apps.text("sockets") == "two"
    fresh.sock.close()


def test_an_express_app_is_installed_by_its_lock_file_and_gets_what_it_is_given(fleet: Fleet) -> None:
    apps = fleet.apps

    home = apps.ask("express", "GET", "/").json
    key = apps.ask("express", "GET", "/key").json["key"]

    assert {"install:  npm ci", "start:    npm start"} <= set(fleet.logs["express"])
    assert home == {"greeting": "ahoy", "version": "1.0.0"}
    assert key == API_KEY
    assert "the key is ****" in apps.printed_by("express")


def test_an_express_app_finishes_its_requests_and_closes_when_new_settings_take_over(fleet: Fleet) -> None:
    apps, numbers = fleet.apps, b'{"numbers": [1, 2, 39]}'
    with apps.begun("express", "/sum", numbers) as begun:
        eventually(lambda: apps.printed_by("express"), lambda lines: "POST /sum has begun" in lines)

        apps.live(apps.change("express", env=pairs({"GREETING": "moin"})))
        after = apps.ask("express", "GET", "/").json["greeting"]
        finished = begun()

    lines = eventually(lambda: apps.printed_by("express"), lambda lines: "closed, having served" in lines, 60)
    deployment = apps.deployments("express")[0]
    assert (finished.status, finished.json) == (200, {"greeting": "ahoy", "sum": 42})
    assert after == "moin"
    assert lines.index("asked to stop") < lines.index("closed, having served")
    assert (deployment["kind"], deployment["swap"]["failed"]) == ("restart", 0)
    assert deployment["swap"]["requests"] > 0


def test_a_vite_app_is_built_twice_and_rendered_on_the_server(fleet: Fleet) -> None:
    apps = fleet.apps
    uuid = apps.launch("ssr", checkout_of("ssr", fleet.folder))
    apps.live(uuid)

    page = apps.text("ssr", "/north/quay")
    (script,) = re.findall(r'src="(/assets/[^"]+\.js)"', page)
    code = apps.visit("ssr", script)

    assert {"detected: container app, Vite", "build:    npm run build"} <= set(apps.log(uuid))
    assert "<h1>You are at /north/quay</h1><button>seen 0 times</button>" in page
    assert (code.status, code.header("content-type")) == (200, "text/javascript")
    assert b"You are at" in code.body


def test_a_fastapi_app_that_names_no_server_is_served(fleet: Fleet) -> None:
    apps = fleet.apps

    home, refused = apps.ask("fastapi", "GET", "/").json, apps.ask("fastapi", "GET", "/berths/100")
    streamed = apps.text("fastapi", "/lines")
    document = apps.ask("fastapi", "GET", "/openapi.json").json

    said = fleet.logs["fastapi"]
    assert "uvicorn is installed as well, for the app names no server" in said
    assert any(line.startswith("start:    uvicorn main:app ") for line in said)
    assert (home, refused.status) == ({"harbor": "north"}, 422)
    assert streamed.splitlines() == [f"line {number}" for number in range(1000)]
    assert document["info"]["title"] == "Berths"


@dataclass
class Admin:
    """Somebody at Django's admin, with a browser that keeps cookies."""

    apps: Apps
    cookies: dict[str, str]

    def get(self, path: str) -> Answer:
        return self._keep(self.apps.ask("django", "GET", path, Cookie=self._cookie()))

    def post(self, path: str, **fields: str) -> Answer:
        """Fill in the form at a path, and send it."""
        page = self.get(path).body.decode()
        (token,) = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page))
        body = urlencode({**fields, "csrfmiddlewaretoken": token})
        sent = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": self._cookie()}
        return self._keep(self.apps.ask("django", "POST", path, body, **sent))

    def _keep(self, answer: Answer) -> Answer:
        for line in answer.all_of("set-cookie"):
            self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
        return answer

    def _cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())


def test_a_django_app_keeps_what_is_written_in_its_admin_in_a_linked_postgresql(fleet: Fleet) -> None:
    apps, admin = fleet.apps, Admin(fleet.apps, {})

    *output, exit_ = apps.execute_events("django", MIGRATE)
    shown = admin.get("/admin/login/?next=/admin/")
    entered = admin.post("/admin/login/?next=/admin/", username="master", password=PASSWORD)
    written = admin.post("/admin/notes/note/add/", text="the Ada is in")
    listed = admin.get("/admin/notes/note/").body.decode()
    found = apps.execute("django", "python manage.py shell -v 0 -c 'print(Note.objects.get())'")

    said = "".join(event.data["text"] for event in output)
    assert "Applying notes.0001_initial... OK" in said
    assert exit_.data == {"exitCode": 0, "reason": None}
    assert (shown.status, "Django administration" in shown.body.decode()) == (200, True)
    assert (entered.status, entered.header("location")) == (302, "/admin/")
    assert (written.status, "the Ada is in" in listed) == (302, True)
    assert found["stdout"] == "the Ada is in\n"
    assert any("gunicorn harbor.wsgi" in line for line in fleet.logs["django"])


def test_nobody_but_the_linked_project_reaches_the_database(fleet: Fleet) -> None:
    connect = f"import socket; socket.create_connection(('127.0.0.1', {fleet.database_port}), 5)"

    linked, other = (fleet.apps.execute(name, f'python -c "{connect}"') for name in ("django", "fastapi"))

    assert linked["exitCode"] == 0
    assert (other["exitCode"], "ConnectionRefusedError" in other["stderr"]) == (1, True)


def test_an_open_socket_is_closed_by_the_app_when_its_release_has_been_drained(fleet: Fleet) -> None:
    code = fleet.swapped.socket.wait_for_close()

    assert code == 1012
    assert fleet.apps.web_socket("sockets").echo("hello") == "two: hello"
