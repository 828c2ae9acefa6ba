"""Proof by fault: all of the platform is killed at every step of a deployment, while visitors keep coming.

Whoever visits sees the old page or the new one, never anything else. Once the platform is back, every deployment ends.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import Sites, page, started_sites, visit
from tests.products.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = [pytest.mark.deep, pytest.mark.group("projects")]

BUILT, ROLLED = "built", "rolled"
REPOSITORY = "acme/built"
# It says where it is, and takes long enough to be met there.
BUILD = "echo building; sleep 0.3; mkdir dist; cp index.html dist/"
ELSEWHERE = "127.0.0.2"  # A connection from here to a port that nobody listens at cannot meet itself.
RANDOM_KILLS = 2  # one for each way to roll
RULES = '{"headers": [{"source": "/*", "name": "X-Harbor", "value": "ruled"}]}'


@dataclass
class Prober:
    """Visits one host without a pause, and notes whatever is not what it may be."""

    port: int
    name: str
    allowed: frozenset[str]
    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopping.wait(0.005):
            before = self.allowed
            # What is down does not answer, and what is killed breaks off: neither is an answer.
            with contextlib.suppress(OSError, HTTPException):
                answer = visit(self.port, self.name, timeout_s=2, source=ELSEWHERE)
                self.answers += 1
                if answer.status != 200 or answer.body.decode() not in before | self.allowed:
                    self.wrong.append(f"{answer.status} {answer.body[:200]!r}")

    def expect(self, *pages: str) -> None:
        self.allowed = frozenset(pages)


class Harbor:
    """A platform that is killed and started again, its visitors, and what should be on its pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = quiet_ports()
        self.work = Checkout.init(folder / "work")
        self.texts = (page(f"release {number}") for number in range(100))
        self.built = Prober(self.ports["gateway"], BUILT, frozenset())
        self.rolled = Prober(self.ports["gateway"], ROLLED, frozenset())
        self.asked: list[str] = []
        self._up = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        self.sites = self._up.enter_context(started_sites(self.folder / "data", self.ports))
        self.control = self.sites.children()["control"]

    def kill(self) -> None:
        self.sites.kill_all(self.control)

    def restart(self) -> None:
        self._up.close()
        self.start()

    def close(self) -> None:
        self._up.close()

    def fill(self) -> None:
        """Let both projects have a live release, and the second one another to go back to."""
        text = self.commit()
        self.sites.push(self.work, REPOSITORY)
        self.sites.ended(self.sites.create_project(BUILT, REPOSITORY, buildCmd=BUILD))
        self.built.expect(text)
        self.uploads = [self.sites.publish(ROLLED, {"index.html": page(text)}) for text in ("one", "two")]
        self.rolled.expect(page("two"))

    def commit(self) -> str:
        text = next(self.texts)
        self.work.commit("another", index_html=text)
        return text

    def ask(self) -> str:
        """Deploy a page that was never there, and return the deployment."""
        text = self.commit()
        self.sites.push(self.work, REPOSITORY)
        self.built.expect(*self.built.allowed, text)
        self.asked.append(self.sites.deploy(BUILT))
        return self.asked[-1]

    def settle(self) -> None:
        """Wait until everything that was asked for has ended; from then on only one page is right."""
        for uuid in self.asked:
            ended = self.sites.ended(uuid)
            assert ended["status"] == "succeeded" or ended["reason"], ended
        self.asked.clear()
        for prober in (self.built, self.rolled):
            prober.expect(self.sites.text(prober.name))
            assert prober.wrong == []

    def live(self, name: str) -> str:
        """Return the status of the deployment that is live."""
        (found,) = [each for each in self.sites.deployments(name) if each["enable"]]
        return str(found["status"])


def quiet_ports() -> dict[str, int]:
    """Return free ports that no outgoing connection gets while the platform is down."""
    found: dict[str, int] = {}
    numbers = random.Random(os.getpid())
    for name in ("api", "gateway", "edge", "metrics"):
        while name not in found:
            port = numbers.randrange(15_000, 30_000)
            with socket.socket() as tried, contextlib.suppress(OSError):
                tried.bind(("127.0.0.1", port))
                found[name] = port
    return found


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    made = Harbor(tmp_path_factory.mktemp("faults"))
    with contextlib.closing(made):
        made.fill()
        visitors = [threading.Thread(target=prober.run) for prober in (made.built, made.rolled)]
        for visitor in visitors:
            visitor.start()
        try:
            yield made
        finally:
            made.built.stopping.set()
            made.rolled.stopping.set()
            for visitor in visitors:
                visitor.join()


def at_line(harbor: Harbor, uuid: str, text: str) -> None:
    """Return the moment a line of a deployment's log is seen."""
    with contextlib.closing(harbor.sites.follow(uuid)) as stream:  # type: ignore[type-var]
        assert any(event.name == "log" and event.data["message"].startswith(text) for event in stream)


@pytest.mark.parametrize("line", ["Fetching", "building", "Publishing"])
def test_a_deployment_that_is_cut_off_at_a_step_is_finished_after_the_restart(harbor: Harbor, line: str) -> None:
    uuid = harbor.ask()
    at_line(harbor, uuid, line)

    harbor.kill()
    harbor.restart()
    harbor.settle()

    assert harbor.sites.status(uuid)["status"] == "succeeded"
    assert harbor.live(BUILT) == "succeeded"


def test_a_deployment_that_waits_for_another_is_finished_after_it(harbor: Harbor) -> None:
    first = harbor.ask()
    at_line(harbor, first, "building")
    second = harbor.ask()
    waiting = harbor.sites.status(second)

    harbor.kill()
    harbor.restart()
    harbor.settle()

    assert (waiting["status"], waiting["queuePosition"]) == ("queued", 2)
    assert [harbor.sites.status(uuid)["status"] for uuid in (first, second)] == ["succeeded", "succeeded"]
    assert harbor.sites.deployments(BUILT)[0]["enable"]


def test_what_is_live_before_it_is_called_so_stays_live(harbor: Harbor) -> None:
    gateway = harbor.sites.running.children()["gateway"]
    os.kill(gateway, signal.SIGSTOP)
    rules = threading.Thread(target=set_rules, args=(harbor.sites,))
    rules.start()
    wait_until(lambda: harbor.sites.call("GET", f"/v1/projects/{BUILT}/headers"))
    uuid = harbor.ask()
    # The gateway takes no rules, so nobody is told that the deployment has succeeded; but the store says what is live.
    wait_until(lambda: harbor.sites.deployments(BUILT)[0]["enable"])
    before = harbor.sites.status(uuid)["status"]

    harbor.kill()
    rules.join()
    harbor.restart()
    first = harbor.sites.visit(BUILT)
    harbor.settle()

    assert before == "running"
    assert (first.status, first.header("x-harbor")) == (200, "ruled")
    assert {first.body.decode()} == harbor.built.allowed
    assert harbor.sites.status(uuid)["status"] == "succeeded"


def set_rules(sites: Sites) -> None:
    """Ask for rules, and get no answer."""
    with contextlib.suppress(OSError, HTTPException):
        sites.send("PUT", f"/v1/projects/{BUILT}/headers", RULES, {"Content-Type": "application/json"})


@pytest.mark.parametrize("seed", range(RANDOM_KILLS))
def test_whatever_moment_it_is_everything_ends_and_the_pages_are_right(harbor: Harbor, seed: int) -> None:
    chance = random.Random(seed)
    harbor.rolled.expect(page("one"), page("two"))
    uuid = harbor.ask()
    threading.Event().wait(chance.uniform(0, 0.8))
    back = {"deploymentUuid": harbor.uploads[seed % 2]}
    harbor.asked.append(harbor.sites.call("POST", f"/v1/projects/{ROLLED}/rollback", back)["deploymentUuid"])
    threading.Event().wait(chance.uniform(0, 0.02))

    harbor.kill()
    harbor.restart()
    harbor.settle()

    assert harbor.sites.status(uuid)["terminal"]
    assert (harbor.live(BUILT), harbor.live(ROLLED)) == ("succeeded", "succeeded")
    assert harbor.sites.text(ROLLED) == page(("one", "two")[seed % 2])


def test_after_all_of_it_nothing_is_left_over_and_every_answer_was_right(harbor: Harbor) -> None:
    harbor.settle()

    deployments = [each for name in (BUILT, ROLLED) for each in harbor.sites.deployments(name)]
    assert min(harbor.built.answers, harbor.rolled.answers) > 100
    assert {each["status"] for each in deployments} == {"succeeded"}
    assert harbor.sites.crashes() == []
    assert list((harbor.sites.running.data / "builds").iterdir()) == []


def test_a_disk_that_takes_no_configuration_takes_no_site_down(harbor: Harbor) -> None:
    harbor.rolled.expect(*harbor.rolled.allowed, page("three"))
    with unwritable(harbor.sites.running.data / "run" / "caddy.json"):
        refused = harbor.sites.send(
            "PUT", f"/v1/projects/{ROLLED}/headers", RULES, {"Content-Type": "application/json"}
        )
        harbor.asked.append(harbor.sites.upload(ROLLED, {"index.html": page("three")})["uploadId"])
        wait_until(lambda: harbor.sites.deployments(ROLLED)[0]["status"] != "queued")

    harbor.sites.call("PUT", f"/v1/projects/{ROLLED}/headers", {"headers": []})
    harbor.settle()

    assert refused.status == 500
    assert harbor.live(ROLLED) == "succeeded"


@contextlib.contextmanager
def unwritable(file: Path) -> Iterator[None]:
    """Put a folder in the place of a file, which nothing can be written to then."""
    aside = file.with_name("aside")
    file.rename(aside)
    (file / "in the way").mkdir(parents=True)
    try:
        yield
    finally:
        (file / "in the way").rmdir()
        file.rmdir()
        aside.rename(file)
