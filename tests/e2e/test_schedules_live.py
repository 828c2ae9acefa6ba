"""Scheduled functions on a running platform: what runs is counted once, also when the function gateway dies."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from tests.e2e.functions_support import ANY_LANGUAGE, Answer, Platform, at_once, new_name, wait_until

pytestmark = pytest.mark.group("functions")

# Sleeps as long as its params say, and fails where they say so.
CODE = {
    "python": (
        "import time\n"
        "def main(params):\n"
        "    time.sleep(params.get('sleep', 0))\n"
        "    if params.get('fails'):\n        raise ValueError('as told')\n"
        "    return {'given': params['greeting'], 'method': params['__ow_method']}\n"
    ),
    "nodejs": (
        "exports.main = async ({ sleep = 0, fails, greeting, __ow_method }) => {\n"
        "  await new Promise((done) => setTimeout(done, sleep * 1000));\n"
        "  if (fails) throw new TypeError('as told');\n"
        "  return { given: greeting, method: __ow_method };\n"
        "};\n"
    ),
}


def schedule(platform: Platform, function: str | int, **fields: Any) -> dict[str, Any]:
    """Make a schedule that does not come due while a test runs: once a year."""
    given = {"name": new_name("schedule"), "function": function, "cronSchedule": "0 0 1 1 *", **fields}
    made: dict[str, Any] = platform.api("POST", "/v1/scheduled-functions", given)
    return made


def read(platform: Platform, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = platform.api("GET", f"/v1/scheduled-functions/{made['id']}")
    return found


def run(platform: Platform, made: dict[str, Any]) -> dict[str, Any]:
    outcome: dict[str, Any] = platform.api("POST", f"/v1/scheduled-functions/{made['id']}/run")
    return outcome


def test_a_run_is_given_its_params_and_leaves_the_next_one_alone(platform: Platform, language: str) -> None:
    name = platform.create(new_name("scheduled"), language, CODE[language])
    made = schedule(platform, name, params={"greeting": "ahoy"})

    outcome = run(platform, made)

    after = read(platform, made)
    assert outcome["status"] == "success"
    assert outcome["result"] == {"given": "ahoy", "method": "post"}
    assert (after["totalRuns"], after["lastStatus"], after["lastError"]) == (1, "success", None)
    assert after["nextRunAt"] == made["nextRunAt"]
    record = platform.record_of(name, outcome["activationId"])
    assert (record["door"], record["status"]) == ("schedule", "success")


def test_a_run_that_fails_says_why_and_the_next_one_forgets_it(platform: Platform, language: str) -> None:
    name = platform.create(new_name("scheduled"), language, CODE[language])
    made = schedule(platform, name, params={"greeting": "", "fails": True})

    failed = run(platform, made)
    after_failure = read(platform, made)
    platform.api("PATCH", f"/v1/scheduled-functions/{made['id']}", {"params": {"greeting": ""}})
    run(platform, made)

    after = read(platform, made)
    assert failed["status"] == "error"
    assert "as told" in failed["error"]
    assert (after_failure["lastStatus"], after_failure["lastError"]) == ("error", failed["error"])
    assert (after["totalRuns"], after["lastStatus"], after["lastError"]) == (2, "success", None)


@ANY_LANGUAGE
def test_totals_are_true_under_20_runs_at_once(platform: Platform, language: str) -> None:
    name = platform.create(new_name("scheduled"), language, CODE[language])
    made = schedule(platform, name, params={"greeting": "", "sleep": 0.05})

    outcomes = at_once(20, lambda _: run(platform, made))

    assert Counter(outcome["status"] for outcome in outcomes) == {"success": 20}
    assert read(platform, made)["totalRuns"] == 20
    recorded = [record["activationId"] for record in platform.invocations(name)]
    assert sorted(recorded) == sorted(outcome["activationId"] for outcome in outcomes)


def test_a_run_during_which_the_function_gateway_is_killed_counts_once(platform: Platform) -> None:
    name = platform.create(new_name("scheduled"), "python", CODE["python"], timeout=3000)
    # A warm instance: the run that is killed below has started as soon as it is in flight.
    run(platform, schedule(platform, name, params={"greeting": ""}))
    made = schedule(platform, name, params={"greeting": "", "sleep": 2.9})
    answers: list[Answer] = []
    path = f"/v1/scheduled-functions/{made['id']}/run"
    caller = threading.Thread(target=lambda: answers.append(platform.send("POST", path)))
    caller.start()
    wait_until(lambda: platform.in_flight() == 1)

    platform.kill("edge")
    caller.join()

    assert [(answer.status, answer.json["error"]["code"]) for answer in answers] == [(500, "internal")]
    wait_until(lambda: platform.in_flight() == 0)
    # Whether it ended cannot be known, so it counts as failed once its end cannot come any more.
    wait_until(lambda: read(platform, made)["totalRuns"] == 1, timeout_s=60)
    after = read(platform, made)
    assert (after["lastStatus"], after["lastError"]) == ("error", "the platform restarted during this run")
    platform.api("PATCH", f"/v1/scheduled-functions/{made['id']}", {"params": {"greeting": ""}})
    assert run(platform, made)["status"] == "success"
    assert read(platform, made)["totalRuns"] == 2


def test_a_deleted_function_takes_its_schedules_along(platform: Platform, language: str) -> None:
    name = platform.create(new_name("scheduled"), language, CODE[language])
    made = schedule(platform, name, params={"greeting": ""})
    run(platform, made)

    platform.api("DELETE", f"/v1/functions/{name}")

    assert platform.send("GET", f"/v1/scheduled-functions/{made['id']}").status == 404
    assert platform.send("POST", f"/v1/scheduled-functions/{made['id']}/run").status == 404
