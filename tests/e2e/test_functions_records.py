"""Whatever crashes, each call that was answered is recorded exactly once, and functions answer again within seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.functions_support import (
    ANY_LANGUAGE,
    ECHO,
    LANGUAGES,
    MB,
    Answer,
    Platform,
    at_once,
    new_name,
    started,
    wait_until,
)

pytestmark = pytest.mark.group("functions")

PAUSE_S = 0.01  # between two calls of a client: fewer calls than are kept of one function, however fast the machine
BACK_S = 15
CRASHES = 2  # of each process: the second meets what was started again. With more of them it is started ever later.


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform of its own: after several crashes its processes take longer and longer to be started again."""
    data = tmp_path_factory.mktemp("victim") / "data"
    with started(data) as platform:
        yield platform


class Seen(NamedTuple):
    """An invocation that a client was told about."""

    name: str
    status: int
    activation: str
    outcome: str


class Clients:
    """Clients at both doors that go on whatever happens, and keep what every answer says."""

    def __init__(self, platform: Platform, names: list[str]) -> None:
        self.seen: list[Seen] = []
        self._platform = platform
        self._stop = threading.Event()
        doors = (self._fetch, self._fetch, self._invoke)
        self._threads = [threading.Thread(target=self._run, args=(door, name)) for door in doors for name in names]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, door: Callable[[str], Seen | None], name: str) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, HTTPException):
                seen = door(name)
                if seen is not None:
                    self.seen.append(seen)
            time.sleep(PAUSE_S)

    def _fetch(self, name: str) -> Seen:
        answer = self._platform.fetch(name)
        outcome = "success" if answer.status == 200 else "error"
        return Seen(name, answer.status, answer.header("x-openwhisk-activation-id") or "", outcome)

    def _invoke(self, name: str) -> Seen | None:
        """Call at the API, which says so where it does not know what became of a call."""
        answer = self._platform.send("POST", f"/v1/functions/{name}/invoke")
        if answer.status == 500:
            return None
        data = answer.json["data"]
        return Seen(name, answer.status, data["activationId"], data["status"])

    def wait_for_more(self, names: list[str]) -> None:
        """Return when every function has answered again."""
        before = len(self.seen)
        wait_until(lambda: set(names) <= {seen.name for seen in self.seen[before:] if seen.status == 200}, BACK_S)


def assert_recorded_once(platform: Platform, name: str, seen: list[Seen]) -> None:
    """Check that each invocation that was seen has one record that agrees, and that no record is there twice."""
    recorded = platform.all_invocations(name)
    outcomes = {record["activationId"]: record["status"] for record in recorded}
    assert len(outcomes) == len(recorded)
    expected = {each.activation: each.outcome for each in seen}
    assert len(expected) == len(seen)
    assert {activation: outcomes.get(activation) for activation in expected} == expected


@pytest.mark.deep
def test_answered_calls_are_recorded_exactly_once_over_many_crashes(victim: Platform) -> None:
    names = [victim.create(new_name("survives"), language, ECHO[language]) for language in LANGUAGES]
    assert [victim.fetch(name).status for name in names] == [200, 200]

    with Clients(victim, names) as clients:
        for child in ("edge", "control", "invoker") * CRASHES:
            victim.kill(child)
            clients.wait_for_more(names)

    wait_until(lambda: victim.api("GET", "/v1/functions"))
    assert {each.status for each in clients.seen} <= {200, 502}
    for name in names:
        assert_recorded_once(victim, name, [each for each in clients.seen if each.name == name])


PRINTS_4_MB = (
    "import random\n"
    "def main(params):\n"
    "    print(random.randbytes(2 * 2**20).hex())\n"
    "    return {'statusCode': 200, 'body': 'printed'}\n"
)


@pytest.mark.boundary(
    "code-to-host", "While records wait, the spool stays within its bound and drops logs before records."
)
def test_while_the_recorder_stands_still_the_spool_drops_text_and_every_call_is_recorded(small: Platform) -> None:
    name = small.create(new_name("flood"), "python", PRINTS_4_MB)
    store, before = small.running.data / "store", size_of(small.running.data / "store")
    control = small.children()["control"]
    os.kill(control, signal.SIGSTOP)
    try:
        answers = [small.fetch(name) for _ in range(12)]
        waiting = size_of(small.running.data / "spool")
    finally:
        os.kill(control, signal.SIGCONT)

    wait_until(lambda: len(small.invocations(name)) == 12, 60)
    first, last = (small.record_of(name, answers[number].activation) for number in (0, -1))
    assert {answer.status for answer in answers} == {200}
    assert waiting <= 64 * MB
    assert (last["stdout"], last["logsDropped"]) == ("", True)
    assert "was dropped: too many records wait to be stored" in last["stderr"]
    assert (len(first["stdout"]), first["logsDropped"]) == (4 * MB + 1, False)
    assert size_of(store) - before < MB
    assert 4 * MB < size_of(small.running.data / "logs" / "functions") <= 17 * MB


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_functions_are_served_while_the_control_process_is_down(platform: Platform, echoes: dict[str, str]) -> None:
    assert [platform.fetch(name).status for name in echoes.values()] == [200, 200]
    served: list[tuple[str, Answer]] = []

    killed = platform.kill("control")
    while platform.children().get("control", killed) == killed or not is_listening(platform):
        served += [(name, platform.fetch(name)) for name in echoes.values()]

    assert len(served) >= 2
    assert {answer.status for _, answer in served} == {200}
    wait_until(lambda: platform.api("GET", "/v1/functions"))
    for called in echoes.values():
        records = {record["activationId"] for record in platform.all_invocations(called)}
        assert {answer.activation for name, answer in served if name == called} <= records


def is_listening(platform: Platform) -> bool:
    try:
        return platform.send("GET", "/health").status == 200
    except OSError:
        return False


@ANY_LANGUAGE
def test_calls_that_run_when_the_invoker_dies_fail_and_the_next_ones_do_not(platform: Platform, language: str) -> None:
    code = {
        "python": (
            "import time\n"
            "def main(params):\n"
            "    time.sleep(float(params.get('sleep', 0)))\n"
            "    return {'statusCode': 200, 'body': 'done'}\n"
        ),
        "nodejs": (
            "exports.main = async ({ sleep = 0 }) => {\n"
            "  await new Promise((done) => setTimeout(done, Number(sleep) * 1000));\n"
            "  return { statusCode: 200, body: 'done' };\n"
            "};\n"
        ),
    }
    name = platform.create(new_name("orphan"), language, code[language])
    assert platform.fetch(name).status == 200

    def kill_when_it_runs() -> Answer | None:
        wait_until(lambda: platform.in_flight() == 1)
        platform.kill("invoker")
        return None

    actions = (lambda: platform.fetch(name, "?sleep=30"), kill_when_it_runs)
    broken = at_once(2, lambda at: actions[at]())[0]
    after = platform.fetch(name)

    assert isinstance(broken, Answer)
    assert broken.status == 502
    assert "the function's process" in broken.error["message"]
    assert (after.status, after.body) == (200, b"done")
    statuses = {record["activationId"]: record["status"] for record in platform.invocations(name)}
    assert (statuses[broken.activation], statuses[after.activation]) == ("error", "success")


@ANY_LANGUAGE
def test_metrics_count_what_was_recorded(platform: Platform, language: str) -> None:
    code = {
        "python": "def main(params):\n    return {'statusCode': 200 if 'ok' in params else 0}\n",
        "nodejs": "exports.main = (params) => ({ statusCode: 'ok' in params ? 200 : 0 });\n",
    }
    name = platform.create(new_name("metrics"), language, code[language])
    answers = [platform.fetch(name, "?ok=1" if turn % 3 else "") for turn in range(12)]

    metrics = platform.api("GET", f"/v1/functions/{name}/metrics")

    assert Counter(answer.status for answer in answers) == {200: 8, 502: 4}
    assert sum(metrics["invocations"]) == 12
    assert sum(metrics["errors"]) == 4
