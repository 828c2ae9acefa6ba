"""Mixed traffic on a platform that is killed all the time: each source notes what was acknowledged to it.

A source repeats a request that got no definite answer, with the same Idempotency-Key where it writes.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar
from uuid import uuid4

from tests.e2e.apps_support import Apps
from tests.e2e.functions_support import Answer, form, read_answer, zip_of
from tests.e2e.projects_support import page, visit
from tests.products.repositories.support import Checkout

T = TypeVar("T")

INSIST_S = 150.0  # The supervisor waits up to 10 s before it starts a child again, and the next kill may hit it again.
RETRY_S = 0.2
REFUSED = (OSError, HTTPException, ValueError)
STILL_AT_WORK = b"still at work"
ENDS = ("succeeded", "failed")


@dataclass
class Source(ABC):
    """One kind of traffic. `wrong` is what should never be answered; `stuck` what never came to an end."""

    platform: Apps
    pause_s: float
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    turns: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Repeat turns until the source is stopped; a turn that has begun is finished."""
        while not self.stopping.wait(self.pause_s):
            self.turns += 1
            try:
                self.turn(self.turns)
            except Exception as error:  # noqa: BLE001 - the thread must not end unseen
                self.wrong.append(f"{type(self).__name__}: {error!r}")

    @abstractmethod
    def turn(self, number: int) -> None:
        """Send one request, or a few that belong together."""

    def insist(self, what: str, action: Callable[[], T | None]) -> T | None:
        """Repeat an action until it returns something; None, noted as stuck, where it never does."""
        deadline = time.monotonic() + INSIST_S
        seen: object = None
        while time.monotonic() < deadline:
            try:
                if (found := action()) is not None:
                    return found
            except (*REFUSED, AssertionError) as error:
                seen = error
            time.sleep(RETRY_S)
        self.stuck.append(f"{what}: {seen!r}")
        return None

    def write(self, method: str, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer | None:
        """Send a write under one Idempotency-Key until it is answered for good."""
        sent = {"Content-Type": "application/json", **(headers or {}), "Idempotency-Key": str(uuid4())}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body)
        last: list[Answer] = []

        def once() -> Answer | None:
            answer = self.platform.send(method, path, raw, sent)
            last[:] = [answer]
            is_open = answer.status >= 500 or answer.status == 429 or STILL_AT_WORK in answer.body
            return None if is_open else answer

        answer = self.insist(f"{method} {path}", once)
        if answer is None:
            self.stuck[-1] += f" {last}"
        elif answer.status >= 300:
            self.wrong.append(f"{method} {path}: {answer.status} {answer.body!r}")
            return None
        return answer


@dataclass
class Organizations(Source):
    """Creates organizations: rows, and a job for each."""

    acknowledged: dict[str, str] = field(default_factory=dict)  # id by name

    def turn(self, number: int) -> None:
        answer = self.write("POST", "/v1/orgs", {"name": f"chaos-{number}"})
        if answer is not None:
            self.acknowledged[f"chaos-{number}"] = answer.json["data"]["organizationId"]


@dataclass
class Versions(Source):
    """Deploys versions of a function by multipart uploads."""

    function: str = "versions"
    acknowledged: int = 0

    def turn(self, number: int) -> None:
        code = f"def main(params):\n    return {{'statusCode': 200, 'body': 'version {number}'}}\n"
        body, headers = form(zip_of({"main.py": code}))
        if self.write("POST", f"/v1/functions/{self.function}/deploy", body, headers) is not None:
            self.acknowledged += 1


@dataclass
class Calls(Source):
    """Calls a function at its public address; a call is never repeated."""

    function: str = "calls"
    acknowledged: list[str] = field(default_factory=list)  # activation ids
    refused: int = 0

    def turn(self, number: int) -> None:
        port = self.platform.running.ports["edge"]
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            with contextlib.closing(connection):
                connection.request("GET", self.platform.path(self.function, f"?n={number}"))
                answer = read_answer(connection.getresponse())
        except REFUSED:
            self.refused += 1
            return
        if answer.status == 200:
            self.acknowledged.append(answer.activation)
        elif answer.status in (404, 429) or answer.status >= 500:
            # A function gateway that has just started knows no functions for a moment; one without cells refuses.
            self.refused += 1
        else:
            self.wrong.append(f"a call: {answer.status} {answer.body!r}")


@dataclass
class Deployments(Source):
    """Commits, pushes and asks for a deployment; each has to succeed before the next is asked for."""

    work: Checkout | None = None
    project: str = "deployed"
    acknowledged: list[str] = field(default_factory=list)  # uuids
    text: str = ""

    def turn(self, number: int) -> None:
        assert self.work is not None
        text = page(f"deployed {number}")
        self.work.commit(text, index_html=text)
        if self.insist("push", lambda: push(self.platform, self.work, f"acme/{self.project}")) is None:
            return
        answer = self.write("POST", f"/v1/projects/{self.project}/deploy", {})
        if answer is None:
            return
        uuid = str(answer.json["data"]["deploymentUuid"])
        self.acknowledged.append(uuid)
        ended = self.insist(f"deployment {uuid}", lambda: terminal(self.platform, uuid))
        if ended is not None and ended["status"] != "succeeded":
            self.wrong.append(f"deployment {uuid}: {ended}")
        elif ended is not None:
            self.text = text


@dataclass
class Pushes(Source):
    """Pushes commits to a repository whose project deploys by itself.

    A push that was cut off is sent again, and git then says that there is nothing to push. Its commit is deployed
    unless the branch has moved on by then, so only the newest of those is asked for.
    """

    work: Checkout | None = None
    project: str = "pushed"
    acknowledged: list[str] = field(default_factory=list)  # commits of pushes that were not cut off
    text: str = ""

    def turn(self, number: int) -> None:
        assert self.work is not None
        text = page(f"pushed {number}")
        sha = self.work.commit(text, index_html=text)
        if push(self.platform, self.work, f"acme/{self.project}"):
            self.acknowledged.append(sha)
        elif self.insist("push", lambda: push(self.platform, self.work, f"acme/{self.project}")) is None:
            return
        self.text = text


@dataclass
class Uploads(Source):
    """Publishes static sites by multipart uploads."""

    project: str = "uploaded"
    acknowledged: list[str] = field(default_factory=list)  # uuids
    text: str = ""

    def turn(self, number: int) -> None:
        text = page(f"uploaded {number}")
        body, headers = form(zip_of({"index.html": text}), name=self.project)
        body = body.replace(b'name="code"', b'name="staticFiles"')
        answer = self.write("POST", "/v1/projects/static-upload", body, headers)
        if answer is None:
            return
        self.acknowledged.append(str(answer.json["data"]["uploadId"]))
        ended = self.insist(f"upload {number}", lambda: terminal(self.platform, self.acknowledged[-1]))
        if ended is not None and ended["status"] != "succeeded":
            self.wrong.append(f"upload {number}: {ended}")
        elif ended is not None:
            self.text = text


@dataclass
class Triggers(Source):
    """Runs a cronjob, again and again; each run has to end before the next."""

    cronjob: str = "triggered"
    acknowledged: list[str] = field(default_factory=list)  # uuids of executions

    def turn(self, number: int) -> None:
        answer = self.write("POST", f"/v1/cronjobs/{self.cronjob}/trigger", None)
        if answer is None:
            return
        uuid = str(answer.json["data"]["executionUuid"])
        self.acknowledged.append(uuid)
        self.insist(f"execution {uuid}", lambda: execution(self.platform, self.cronjob, uuid))


@dataclass
class Visits(Source):
    """Visits an app and a site through the public gateway."""

    answers: int = 0
    refused: int = 0

    def turn(self, number: int) -> None:
        for name in ("app", "uploaded"):
            try:
                answer = visit(self.platform.running.ports["gateway"], name, timeout_s=20)
            except REFUSED:
                self.refused += 1
                continue
            self.answers += answer.status == 200
            self.refused += answer.status != 200


def push(platform: Apps, work: Checkout | None, repository: str) -> bool | None:
    """Push with the real client; None where it failed."""
    assert work is not None
    try:
        work.git("push", platform.git_url(repository), "main")
    except AssertionError:
        return None
    return True


def terminal(platform: Apps, uuid: str) -> dict[str, Any] | None:
    status = platform.status(uuid)
    return status if status["terminal"] else None


def execution(platform: Apps, cronjob: str, uuid: str) -> dict[str, Any] | None:
    """Return a run of a cronjob that has ended."""
    items = platform.call("GET", f"/v1/cronjobs/{cronjob}/executions?pageSize=100")["items"]
    found = [each for each in items if each["executionUuid"] == uuid and each["status"] in ENDS]
    return found[0] if found else None
