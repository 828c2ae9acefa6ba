"""Proof by fault: whatever ends around an app, its visitors go on, and everything is looked after again by itself.

The control plane is killed at each step of a deployment while visitors keep coming: no request fails, no process of the
app is exchanged without need, and the deployment ends. Only what an app itself needs takes it down, and not for long.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.apps_life_support import GONE_S, Shim, checkout, end_shims, processes_of, shims_of, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import is_alive
from tests.platform.running import free_ports

pytestmark = [pytest.mark.deep, pytest.mark.group("apps-faults")]

STEADY, LOSER, SLEEPER = "steady", "loser", "sleeper"
REPOSITORY = "acme/steady"
EVERY_S = 0.02  # of each of the two visitors
# It says where it is, and takes long enough to be met there.
BUILD = "echo building; sleep 0.3"


@dataclass
class Visitor:
    """Asks an app who it is without a pause, and notes who answered and what was no answer."""

    port: int
    is_kept: bool  # its connection, for the next request
    may_fail: bool = False
    answers: int = 0
    failed: list[str] = field(default_factory=list)
    seen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # processes, by release
    stopping: threading.Event = field(default_factory=threading.Event)
    _connection: HTTPConnection | None = None

    def run(self) -> None:
        while not self.stopping.wait(EVERY_S):
            begun = time.monotonic()
            try:
                self._ask_again() if self._connection is not None else self._ask()
            except (OSError, HTTPException, ValueError, KeyError) as error:
                self._hang_up()
                if not self.may_fail:
                    self.failed.append(f"{error!r} after {time.monotonic() - begun:.3f} s")
        self._hang_up()

    def _ask_again(self) -> None:
        """Use a connection again. One may be closed while nothing is under way on it: any client would open another."""
        try:
            self._ask()
        except (ConnectionError, RemoteDisconnected):
            self._hang_up()
            self._ask()

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Host": f"{STEADY}.localhost:{self.port}", "Connection": "keep-alive" if self.is_kept else "close"}
        self._connection.request("GET", "/who", headers=headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ValueError(f"{response.status} {body[:200]!r}")
        told = json.loads(body)
        self.seen[told["release"]].add(told["boot"])
        self.answers += 1
        if not self.is_kept:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Harbor:
    """A platform whose parts are killed, and the visitors of one of its apps."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.ports = free_ports()
        self.work = checkout(folder / "work", "release-0", mode_txt="late")
        self.visitors = [Visitor(self.ports["gateway"], is_kept=is_kept) for is_kept in (True, False)]
        self._threads = [threading.Thread(target=visitor.run) for visitor in self.visitors]
        self._releases = 0
        self._up = contextlib.ExitStack()

    def start(self) -> None:
        self.apps = self._up.enter_context(started_apps(self.data, self.ports))

    def stop(self) -> None:
        self._up.close()

    def fill(self) -> None:
        self.apps.push(self.work, REPOSITORY)
        given: dict[str, dict[str, Any]] = {STEADY: {"buildCmd": BUILD}, LOSER: {}, SLEEPER: {"tier": {"key": "free"}}}
        # Who has a disk is looked at every other second, and so notices soon that its folder has gone.
        asked = [self.apps.create_app(name, REPOSITORY, disk=1, **fields) for name, fields in given.items()]
        for uuid in asked:
            self.apps.go_live(uuid)
        for thread in self._threads:
            thread.start()

    def dismiss(self) -> None:
        """Let the visitors go."""
        for visitor in self.visitors:
            visitor.stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def deploy(self) -> tuple[str, str]:
        """Ask for a release that was never there; return its name, and the deployment."""
        self._releases += 1
        release = f"release-{self._releases}"
        self.work.commit(release, release_txt=release)
        self.apps.push(self.work, REPOSITORY)
        return release, self.apps.deploy(STEADY)

    @property
    def control(self) -> int:
        return self.apps.running.children()["control"]

    def end_control(self, number: signal.Signals) -> None:
        """End the control process, and return when another one answers."""
        pid = self.control
        os.kill(pid, number)
        wait_until(lambda: not is_alive(pid))
        wait_until(lambda: self.apps.call("GET", f"/v1/projects/{STEADY}"), GONE_S)

    def settle(self) -> None:
        """Return when there is one process of the app again, and no other that nobody knows of."""
        wait_until(lambda: len(self.apps.shims(STEADY)) == 1, GONE_S)
        wait_until(lambda: not self.strays(), GONE_S)

    def strays(self) -> list[Shim]:
        """Return the shims that nobody knows of: each that is known has said so in its folder."""
        folder = self.data / "run" / "shims"
        cards = [json.loads(card.read_text()) for card in folder.glob("*/shim.json")]
        known = {card["pid"] for card in cards}
        return [shim for shim in shims_of(self.data) if shim.pid not in known]

    def failed(self) -> list[str]:
        return [text for visitor in self.visitors for text in visitor.failed]

    def seen(self, release: str) -> set[str]:
        """Return the processes that answered for a release."""
        return set().union(*(visitor.seen[release] for visitor in self.visitors))

    @contextlib.contextmanager
    def forgiving(self) -> Iterator[None]:
        """Let requests fail for a while: something is taken down that they need."""
        for visitor in self.visitors:
            visitor.may_fail = True
        yield
        counts = [visitor.answers for visitor in self.visitors]
        pairs = list(zip(self.visitors, counts, strict=True))
        wait_until(lambda: all(visitor.answers > count + 2 for visitor, count in pairs))
        for visitor in self.visitors:
            visitor.may_fail = False


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    made = Harbor(tmp_path_factory.mktemp("apps-faults"))
    try:
        made.start()
        made.fill()
        yield made
    finally:
        made.dismiss()
        made.stop()
        end_shims(made.data)


def is_said(harbor: Harbor, uuid: str, text: str) -> None:
    """Return the moment a line of a deployment's log is seen."""
    with contextlib.closing(harbor.apps.follow(uuid)) as stream:  # type: ignore[type-var]
        assert any(event.name == "log" and event.data["message"].startswith(text) for event in stream)


def is_built(harbor: Harbor, release: str, uuid: str) -> None:
    is_said(harbor, uuid, "building")


def is_started(harbor: Harbor, release: str, uuid: str) -> None:
    """Return when a shim is there that has not told anybody about itself yet."""
    folder = harbor.data / "run" / "shims"
    is_said(harbor, uuid, "Publishing")
    while all((each / "shim.json").exists() for each in folder.iterdir()):
        assert not harbor.apps.running.process.poll()


def is_ready(harbor: Harbor, release: str, uuid: str) -> None:
    wait_until(lambda: f"release {release} listens" in harbor.apps.messages(STEADY, search=release))


def is_live(harbor: Harbor, release: str, uuid: str) -> None:
    wait_until(lambda: harbor.apps.deployments(STEADY)[0]["enable"])


def is_drained(harbor: Harbor, release: str, uuid: str) -> None:
    harbor.apps.go_live(uuid)
    assert len(harbor.apps.shims(STEADY)) > 1


Step = Callable[[Harbor, str, str], None]


def check_control_can_go(harbor: Harbor, step: Step, number: signal.Signals) -> None:
    """End the control process at a step of a deployment: nobody notices, and the deployment ends."""
    before = harbor.apps.boot(STEADY)
    release, uuid = harbor.deploy()
    step(harbor, release, uuid)

    harbor.end_control(number)
    ended = harbor.apps.ended(uuid)

    assert harbor.failed() == []
    assert (ended["status"], ended["reason"]) == ("succeeded", None)
    assert harbor.apps.text(STEADY) == release
    # Each release was one process from its first answer to its last: both were adopted.
    assert harbor.seen(release) == {harbor.apps.boot(STEADY)}
    assert all(len(boots) == 1 for visitor in harbor.visitors for boots in visitor.seen.values())
    assert before not in harbor.seen(release)


@pytest.mark.parametrize("step", [is_built, is_ready])
def test_a_control_process_that_is_killed_before_a_swap_is_missed_by_nobody(harbor: Harbor, step: Step) -> None:
    check_control_can_go(harbor, step, signal.SIGKILL)


def _send(shims: list[Shim], number: signal.Signals) -> None:
    for shim in shims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shim.pid, number)


def test_a_shim_that_comes_up_after_another_has_taken_its_place_ends_and_leaves_that_one_alone(harbor: Harbor) -> None:
    release, uuid = harbor.deploy()
    is_started(harbor, release, uuid)
    late = harbor.strays()  # The process that was started, and the one that it leaves behind.
    assert late
    _send(late, signal.SIGSTOP)
    harbor.end_control(signal.SIGKILL)
    ended = harbor.apps.ended(uuid)

    _send(late, signal.SIGCONT)
    wait_until(lambda: not any(each.is_alive for each in late), GONE_S)
    harbor.settle()

    (shim,) = harbor.apps.shims(STEADY)
    assert ended["status"] == "succeeded"
    assert (harbor.data / "run" / "shims" / shim.key / "shim.json").exists()
    assert harbor.seen(release) == {harbor.apps.boot(STEADY)}
    assert harbor.failed() == []


@dataclass(frozen=True)
class Restarted:
    """What was there before a platform was stopped, and what while it was down."""

    boots: dict[str, str]
    shims: dict[str, Shim]
    alone: str  # what the app itself said meanwhile


@pytest.fixture(scope="module")
def restarted(harbor: Harbor) -> Restarted:
    """A platform that was stopped and started again. Meanwhile a row was lost, and an app put to sleep."""
    harbor.settle()
    apps = harbor.apps
    names = (STEADY, LOSER, SLEEPER)
    boots = {name: apps.boot(name) for name in names}
    shims = {name: apps.shims(name)[0] for name in names}
    port = int(apps.env(STEADY)["PORT"])
    with harbor.forgiving():
        harbor.stop()
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=10)) as direct:
            direct.request("GET", "/who")
            alone = json.loads(direct.getresponse().read())["boot"]
        change_store(harbor.data)
        harbor.start()
    return Restarted(boots, shims, alone)


def change_store(data: Path) -> None:
    """Change what nobody holds open, as others would have: by hand, and after half an hour without a visitor."""
    with contextlib.closing(sqlite3.connect(data / "store" / "moorage.db")) as store, store:
        gone = "DELETE FROM replica WHERE project_id = (SELECT id FROM project WHERE name = ?)"
        assert store.execute(gone, (LOSER,)).rowcount == 1
        assert store.execute("UPDATE project SET asleep = 1 WHERE name = ?", (SLEEPER,)).rowcount == 1


def test_an_app_outlives_the_platform_and_the_next_one_takes_it_over(harbor: Harbor, restarted: Restarted) -> None:
    before = restarted.boots[STEADY]

    assert restarted.alone == before
    assert harbor.apps.boot(STEADY) == before
    assert harbor.apps.shims(STEADY) == [restarted.shims[STEADY]]


def test_what_runs_without_a_row_is_ended_and_not_guessed_about(harbor: Harbor, restarted: Restarted) -> None:
    wait_until(lambda: not restarted.shims[LOSER].is_alive, GONE_S)

    assert harbor.apps.boot(LOSER) != restarted.boots[LOSER]
    assert restarted.shims[LOSER] not in harbor.apps.shims(LOSER)


def test_an_app_that_sleeps_has_no_process_until_somebody_asks_for_it(harbor: Harbor, restarted: Restarted) -> None:
    wait_until(lambda: not restarted.shims[SLEEPER].is_alive, GONE_S)
    wait_until(lambda: harbor.apps.shims(SLEEPER) == [], GONE_S)

    woken = harbor.apps.boot(SLEEPER)

    assert woken != restarted.boots[SLEEPER]
    assert len(harbor.apps.shims(SLEEPER)) == 1


@pytest.mark.parametrize("step", [is_live, is_drained])
def test_a_control_process_that_is_killed_after_a_swap_is_missed_by_nobody(harbor: Harbor, step: Step) -> None:
    check_control_can_go(harbor, step, signal.SIGKILL)


def test_a_control_process_that_is_told_to_end_is_missed_by_nobody(harbor: Harbor) -> None:
    check_control_can_go(harbor, is_started, signal.SIGTERM)


def test_after_all_of_it_there_is_one_process_of_the_app_and_nothing_that_nobody_knows_of(harbor: Harbor) -> None:
    harbor.settle()

    assert harbor.failed() == []
    assert {each["status"] for each in harbor.apps.deployments(STEADY)} == {"succeeded"}
    assert harbor.apps.crashes() == []


def test_an_app_whose_shim_is_killed_is_back_by_itself(harbor: Harbor) -> None:
    before, (shim,) = harbor.apps.boot(LOSER), harbor.apps.shims(LOSER)
    processes = processes_of([shim])

    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: harbor.apps.boot(LOSER) != before)

    assert not any(map(is_alive, processes))
    assert len(harbor.apps.shims(LOSER)) == 1
    assert harbor.failed() == []


def test_all_ways_are_back_after_the_gateway_was_killed(harbor: Harbor) -> None:
    before = harbor.apps.boot(STEADY)

    with harbor.forgiving():
        os.kill(harbor.apps.running.children()["gateway"], signal.SIGKILL)

    assert harbor.apps.boot(STEADY) == before
    assert harbor.failed() == []


def test_apps_whose_data_folder_vanishes_end_by_themselves(harbor: Harbor) -> None:
    answers = [visitor.answers for visitor in harbor.visitors]
    harbor.dismiss()
    shims = harbor.apps.shims()
    processes = processes_of(shims)
    harbor.stop()

    shutil.rmtree(harbor.data)
    wait_until(lambda: not any(map(is_alive, processes)), GONE_S)

    assert len(shims) == 3
    assert min(answers) > 200
