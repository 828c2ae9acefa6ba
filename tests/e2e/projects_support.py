"""What the end-to-end tests of projects share: a platform to push to, to upload to and to visit, and a code host."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import itertools
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.machine import tree_of
from joserfc.jwk import RSAKey
from tests.core.http.live_server import live_server
from tests.e2e.functions_support import Answer, Platform, read_answer, wait_until
from tests.platform.running import Running, running
from tests.products.functions.support import form, zip_of
from tests.products.repositories.code_host import CodeHost
from tests.products.repositories.support import Checkout

NOBODY = "http://127.0.0.1:9"  # a code host that is not there: no test may ask the real one
GITHUB_SECRET = "between the code host and us"
GITHUB_PATH = "/api/v1/webhook/github-events"
ENDED_S = 60.0

_numbers = itertools.count(1)


def new_name(stem: str) -> str:
    """Return a project's name that nothing else on the platform has."""
    return f"{stem}-{next(_numbers)}"


def page(text: str) -> str:
    return f"<!doctype html><title>{text}</title><h1>{text}</h1>"


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    name: str
    id: str | None
    data: Any


class Sites(Platform):
    """A started platform, as those who have sites on it and those who visit them speak to it."""

    # Visitors.

    def visit(self, name: str, path: str = "/", headers: Mapping[str, str] | None = None) -> Answer:
        """Ask the public gateway for a page of a project."""
        return visit(self.running.ports["gateway"], name, path, headers)

    def text(self, name: str, path: str = "/") -> str:
        """Return a page that has to be there."""
        answer = self.visit(name, path)
        assert answer.status == 200, answer
        return answer.body.decode()

    # Owners.

    def call(self, method: str, path: str, payload: Any = None, *, status: int = 200) -> Any:
        """Send JSON to the API, which has to answer with a status, and return the data or the error."""
        body = None if payload is None else json.dumps(payload)
        answer = self.send(method, path, body, {"Content-Type": "application/json"})
        assert answer.status == status, answer.body
        return answer.json["data" if answer.json["success"] else "error"]

    def create_project(self, name: str, repository: str, slug: str = "static", **fields: Any) -> str:
        """Make a project of a repository, and return the uuid of its first deployment."""
        asked = {"slug": slug, "name": name, "repositoryName": repository, **fields}
        return str(self.call("POST", "/v1/projects", asked)["deploymentUuid"])

    def upload(self, name: str, files: Mapping[str, str | bytes]) -> dict[str, Any]:
        sent = form(zip_of(files), sent_as="staticFiles", name=name)
        answer = self.send("POST", "/v1/projects/static-upload", sent["content"], sent["headers"])
        assert answer.status == 200, answer.body
        data: dict[str, Any] = answer.json["data"]
        return data

    def publish(self, name: str, files: Mapping[str, str | bytes]) -> str:
        """Upload a site and return its deployment once it is live."""
        uuid = str(self.upload(name, files)["uploadId"])
        assert self.ended(uuid)["status"] == "succeeded"
        return uuid

    def deploy(self, name: str, **asked: Any) -> str:  # type: ignore[override]  # of a project, not of a function
        return str(self.call("POST", f"/v1/projects/{name}/deploy", asked, status=202)["deploymentUuid"])

    def status(self, uuid: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v1/deployments/{uuid}/status")
        return found

    def ended(self, uuid: str) -> dict[str, Any]:
        """Return how a deployment ended, as soon as it has."""
        wait_until(lambda: self.status(uuid)["terminal"], ENDED_S)
        return self.status(uuid)

    def deployments(self, name: str) -> list[dict[str, Any]]:
        """Return a project's deployments, newest first."""
        items: list[dict[str, Any]] = self.call("GET", f"/v1/projects/{name}/deployments")["items"]
        return items

    def log(self, uuid: str) -> list[str]:
        """Return all lines of a deployment, waiting for its end."""
        return [event.data["message"] for event in self.follow(uuid) if event.name == "log"]

    def follow(self, uuid: str, seen: str | None = None) -> Iterator[Event]:
        """Yield the events of a deployment as a browser gets them: the token is in the address."""
        query = urlencode({"access_token": self.token})
        connection = HTTPConnection("127.0.0.1", self.running.ports["api"], timeout=ENDED_S)
        with contextlib.closing(connection):
            headers = {} if seen is None else {"Last-Event-ID": seen}
            connection.request("GET", f"/v1/deployments/{uuid}/logs/stream?{query}", headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
            yield from read_events(response)

    # Git.

    def git_url(self, repository: str) -> str:
        return f"http://x:{self.token}@localhost:{self.running.ports['api']}/git/{repository}.git"

    def push(self, work: Checkout, repository: str, branch: str = "main") -> list[str]:
        """Push with the real client, and return the lines that the platform had to say."""
        said = work.git("push", self.git_url(repository), branch)
        return [line.removeprefix("remote: ").rstrip() for line in said.splitlines() if line.startswith("remote: ")]

    # The code host.

    def deliver(self, event: str, payload: Any, delivery: str) -> Answer:
        """Tell the platform of an event, as GitHub does."""
        body = json.dumps(payload).encode()
        signature = hmac.new(GITHUB_SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": f"sha256={signature}",
        }
        connection = HTTPConnection("127.0.0.1", self.running.ports["api"], timeout=ENDED_S)
        with contextlib.closing(connection):
            connection.request("POST", GITHUB_PATH, body, headers)
            return read_answer(connection.getresponse())

    # Its processes.

    def kill_all(self, control: int) -> None:
        """End every process of the platform, as a power cut does.

        Finding them all takes a moment, in which the control process and who would start it again must not go on.
        """
        supervisor = self.running.process.pid
        for pid in (control, supervisor):
            os.kill(pid, signal.SIGSTOP)
        doomed = tree_of(supervisor)
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.running.process.wait(ENDED_S)
        wait_until(lambda: not any(is_alive(pid) for pid in doomed))

    def crashes(self) -> list[str]:
        """Return what is in the platform's log of jobs that met something they did not expect."""
        return [line for line in self.printed().splitlines() if '"event":"crashed"' in line and '"where":"job' in line]

    def printed(self) -> str:
        """Return what the platform has written to its standard error, and at its start to its standard output."""
        log = self.running.data.parent / f"{self.running.data.name}.log"
        return "\n".join((log.read_text(errors="replace"), *self.running.said))


def visit(
    port: int,
    name: str,
    path: str = "/",
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 20,
    source: str = "127.0.0.1",
) -> Answer:
    """Ask a gateway for a page of a project, on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": f"{name}.localhost:{port}", **(headers or {})})
        return read_answer(connection.getresponse())


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def read_events(lines: Any) -> Iterator[Event]:
    """Yield the events of a stream of server-sent events as they come."""
    fields: dict[str, str] = {}
    for raw in lines:
        line = raw.decode().rstrip("\n")
        if not line and fields:
            yield Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            fields[key] = value


@contextlib.contextmanager
def started_sites(data: Path, ports: dict[str, int] | None = None, **settings: str) -> Iterator[Sites]:
    """Start a platform for sites, and end it whatever happens."""
    given = {"rate_limit": "1000000", "codehost_url": NOBODY, "function_pool": "0", **settings}
    env = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
    with running(data, ports=ports, env=env) as platform:
        yield sites_of(platform)


def sites_of(platform: Running) -> Sites:
    return Sites(platform, platform.session())


@dataclass(frozen=True)
class Codehost:
    """A code host on loopback, and the folder in which its repositories are."""

    url: str
    root: Path
    works: Path

    def repository(self, name: str, **files: str) -> Checkout:
        """Make a repository with one commit, and return somebody's copy of it."""
        work = Checkout.init(self.works / name)
        work.commit("the first", **files)
        work.git("init", "--quiet", "--bare", str(self.root / f"{name}.git"))
        self.receive(work, name)
        return work

    def receive(self, work: Checkout, name: str, branch: str = "main") -> None:
        work.git("push", "--quiet", str(self.root / f"{name}.git"), branch)


@contextlib.contextmanager
def running_codehost(folder: Path) -> Iterator[Codehost]:
    host = CodeHost(folder / "root", RSAKey.generate_key(2048, private=True))
    with live_server(host) as server:
        yield Codehost(server.url, folder / "root", folder / "works")
