"""Deploying, rolling back and deleting while calls come in."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import pytest
from tests.e2e.functions_support import (
    ANY_LANGUAGE,
    Answer,
    Platform,
    at_once,
    form,
    held,
    new_name,
    read_answer,
    wait_until,
    zip_of,
)

pytestmark = pytest.mark.group("functions")


def says(language: str, text: str) -> str:
    """Return a function that answers with a text of its own version, after as long as it is told to sleep."""
    if language == "python":
        return (
            "import time\n"
            "def main(params):\n"
            "    time.sleep(float(params.get('sleep', 0)))\n"
            f"    return {{'statusCode': 200, 'body': '{text}'}}\n"
        )
    return (
        "exports.main = async ({ sleep = 0 }) => {\n"
        "  if (sleep) await new Promise((done) => setTimeout(done, Number(sleep) * 1000));\n"
        f"  return {{ statusCode: 200, body: '{text}' }};\n"
        "};\n"
    )


class Switches:
    """When each version was in force: from before its switch was asked for, until after the next one was answered."""

    def __init__(self, first: str) -> None:
        self._asked = [(0.0, first)]
        self._answered = [(0.0, first)]

    @contextmanager
    def to(self, text: str) -> Iterator[None]:
        self._asked.append((time.monotonic(), text))
        yield
        self._answered.append((time.monotonic(), text))

    def possible(self, began: float, ended: float) -> set[str]:
        """Return what may have been in force at some moment between two."""
        certain = [text for at, text in self._answered if at <= began][-1]
        switched = zip(self._asked, self._answered, strict=True)
        return {certain} | {text for (asked, text), (answered, _) in switched if asked <= ended and answered >= began}


class Load:
    """Clients that call without a pause and keep what they saw."""

    def __init__(self, platform: Platform, name: str, clients: int) -> None:
        self.seen: list[tuple[float, float, Answer]] = []
        self._platform, self._name = platform, name
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, text: str) -> None:
        """Return when some more calls were answered, the last of them with this text."""
        before = len(self.seen)
        wait_until(lambda: len(self.seen) > before + 20 and self.seen[-1][2].body == text.encode())

    def _run(self) -> None:
        connection = self._platform.connect()
        while not self._stop.is_set():
            began = time.monotonic()
            connection.request("GET", self._platform.path(self._name))
            answer = read_answer(connection.getresponse())
            self.seen.append((began, time.monotonic(), answer))
        connection.close()


@ANY_LANGUAGE
def test_deploys_and_rollbacks_switch_at_once_under_load(platform: Platform, language: str) -> None:
    name = platform.create(new_name("switch"), language, says(language, "v1"))
    switches = Switches("v1")

    with Load(platform, name, clients=4) as load:
        for version in (2, 3):
            with switches.to(f"v{version}"):
                platform.deploy(name, language, says(language, f"v{version}"))
            load.wait_for(f"v{version}")
        for version in (1, 3, 2):
            with switches.to(f"v{version}"):
                platform.api("POST", f"/v1/functions/{name}/rollback", {"version": version})
            load.wait_for(f"v{version}")

    assert {answer.status for _, _, answer in load.seen} == {200}
    wrong = [
        (answer.body, switches.possible(began, ended))
        for began, ended, answer in load.seen
        if answer.body.decode() not in switches.possible(began, ended)
    ]
    assert wrong == []
    assert load.seen[-1][2].body == b"v2"


@ANY_LANGUAGE
def test_the_record_names_the_version_that_answered(platform: Platform, language: str) -> None:
    name = platform.create(new_name("recorded"), language, says(language, "1"))
    with Load(platform, name, clients=2) as load:
        for version in (2, 3):
            platform.deploy(name, language, says(language, str(version)))
            load.wait_for(str(version))

    recorded = {record["activationId"]: record["version"] for record in platform.all_invocations(name)}

    assert len(recorded) == len(load.seen)
    assert all(recorded[answer.activation] == int(answer.body) for _, _, answer in load.seen)


@ANY_LANGUAGE
def test_calls_in_flight_finish_on_the_version_they_started_on(platform: Platform, language: str) -> None:
    name = platform.create(new_name("flight"), language, says(language, "old"))
    # Two instances that are there already: whatever is sent to them starts at once.
    at_once(2, lambda _: platform.fetch(name, "?sleep=0.5"))

    with held(platform, *[platform.path(name, "?sleep=1")] * 2) as answers:
        platform.deploy(name, language, says(language, "new"))
        after = platform.fetch(name)

    assert [answer.body for answer in answers] == [b"old"] * 2
    assert after.body == b"new"


@pytest.mark.parametrize("door", ["edge", "invoke"])
@ANY_LANGUAGE
def test_changed_settings_count_for_the_next_call(platform: Platform, language: str, door: str) -> None:
    code = {
        "python": (
            "import os, time\n"
            "def main(params):\n"
            "    left = int(params['__OW_DEADLINE']) - time.time() * 1000\n"
            "    return {'statusCode': 200, 'body': [os.environ.get('A'), params.get('B'), left]}\n"
        ),
        "nodejs": (
            "exports.main = (params) => {\n"
            "  const left = Number(params.__OW_DEADLINE) - Date.now();\n"
            "  return { statusCode: 200,\n"
            "    body: [process.env.A ?? null, params.B ?? null, left] };\n"
            "};\n"
        ),
    }
    env = '[{"name": "A", "value": "1"}]'
    name = platform.create(new_name("settings"), language, code[language], env=env, timeout=5000)

    def call() -> tuple[str | None, str | None, float]:
        own, other, left_ms = platform.fetch(name).json if door == "edge" else platform.invoke(name)["result"]["body"]
        return own, other, left_ms

    before = call()
    changes = {"env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}], "timeout": 600_000}
    platform.api("PATCH", f"/v1/functions/{name}", changes)
    changed = call()
    platform.api("PATCH", f"/v1/functions/{name}", {"env": []})

    assert (before[:2], changed[:2], call()[:2]) == (("1", None), ("2", "3"), (None, None))
    assert 0 < before[2] <= 5000
    assert 5000 < changed[2] <= 600_000


def test_a_deleted_function_is_gone_at_once_with_its_code(platform: Platform, language: str) -> None:
    code_folder = platform.running.data / "code"
    before = {path.name for path in code_folder.iterdir()}
    name = platform.create(new_name("deleted"), language, says(language, new_name("unlike-any-other")))
    platform.deploy(name, language, says(language, new_name("unlike-any-other")))
    assert platform.fetch(name).status == 200
    made = {path.name for path in code_folder.iterdir()} - before

    answer = platform.send("DELETE", f"/v1/functions/{name}")
    gone = platform.fetch(name)

    assert (answer.status, answer.json) == (200, {"success": True})
    assert (gone.status, gone.error["code"]) == (404, "not_found")
    assert platform.send("POST", f"/v1/functions/{name}/invoke").status == 404
    assert len(made) == 2
    assert made.isdisjoint(path.name for path in code_folder.iterdir())


def test_code_that_another_function_runs_too_stays_when_one_is_deleted(platform: Platform, language: str) -> None:
    code = says(language, new_name("shared"))
    first, second = (platform.create(new_name("shares"), language, code) for _ in range(2))

    platform.api("DELETE", f"/v1/functions/{first}")

    assert platform.fetch(first).status == 404
    assert platform.fetch(second).status == 200


@ANY_LANGUAGE
def test_a_function_that_is_made_again_under_its_name_starts_anew(platform: Platform, language: str) -> None:
    name = platform.create(new_name("again"), language, says(language, "old"))
    assert platform.fetch(name).body == b"old"
    platform.api("DELETE", f"/v1/functions/{name}")

    platform.create(name, language, says(language, "new"))
    answer = platform.fetch(name)

    assert answer.body == b"new"
    assert [record["activationId"] for record in platform.invocations(name)] == [answer.activation]


@ANY_LANGUAGE
def test_calls_in_flight_of_a_deleted_function_finish(platform: Platform, language: str) -> None:
    name = platform.create(new_name("flight"), language, says(language, "done"))
    assert platform.fetch(name).status == 200

    with held(platform, platform.path(name, "?sleep=0.8")) as answers:
        platform.api("DELETE", f"/v1/functions/{name}")

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"done")]


def test_a_kill_between_the_commit_and_the_answer_leaves_one_version_and_its_answer(platform: Platform) -> None:
    """The function gateway is held, so that the control process has committed and cannot answer yet."""
    name = platform.create(new_name("killed"), "python", says("python", "one"))
    body, headers = form(zip_of({"main.py": says("python", "two")}))
    keyed = {**headers, "Idempotency-Key": new_name("deploy")}
    path, edge = f"/v1/functions/{name}/deploy", platform.children()["edge"]

    os.kill(edge, signal.SIGSTOP)
    try:
        lost = threading.Thread(target=lambda: swallow(platform, path, body, keyed))
        lost.start()
        wait_until(lambda: len(platform.api("GET", f"/v1/functions/{name}/versions")) == 2)
        killed = platform.kill("control")
    finally:
        os.kill(edge, signal.SIGCONT)
    lost.join()
    wait_until(
        lambda: platform.children().get("control", killed) != killed and platform.send("GET", "/health").status == 200,
        60,
    )
    again = platform.send("POST", path, body, keyed)

    assert (again.status, again.header("idempotency-replayed")) == (200, "true")
    assert again.json["data"]["currentVersion"] == 2
    assert len(platform.api("GET", f"/v1/functions/{name}/versions")) == 2
    wait_until(lambda: platform.fetch(name).body == b"two")


def swallow(platform: Platform, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Send a request whose answer never comes."""
    with contextlib.suppress(OSError, HTTPException):
        platform.send("POST", path, body, headers)
