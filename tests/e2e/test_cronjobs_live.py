"""Cronjobs on a running platform that is killed around their ticks and during their runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.e2e.apps_life_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.deep, pytest.mark.group("cronjobs")]

NEVER = "0 0 1 1 *"
ENDED_S = 60.0
ENDS = ("succeeded", "failed")
MINUTE_S = 60
# Runs until somebody pushes it along, and says so at both ends.
PROGRAM = """
import os, sys, time
print("begins", os.environ["MOORAGE_EXECUTION_ID"], flush=True)
time.sleep(float(sys.argv[1]))
print("ends", os.environ["MOORAGE_SCHEDULED_AT"], flush=True)
"""


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apps]:
    folder = tmp_path_factory.mktemp("cronjobs")
    work = Checkout.init(folder / "work")
    work.commit("first", run_py=PROGRAM)
    with started_apps(folder / "data") as platform:
        platform.push(work, "acme/nightly")
        yield platform
        for each in platform.call("GET", "/v1/cronjobs")["items"]:
            assert platform.send("DELETE", f"/v1/cronjobs/{each['name']}").status == 200
        wait_until(lambda: platform.call("GET", "/v1/cronjobs")["total"] == 0, ENDED_S)


@pytest.fixture(scope="module", autouse=True)
def ticking(harbor: Apps) -> Iterator[Future[int]]:
    """A cronjob whose tick comes while the platform is killed and started again; the other tests go on meanwhile."""
    make(harbor, "ticking", 0, cronSchedule="* * * * *")

    def kill_around_a_tick() -> int:
        tick = (int(time.time() + 1) // MINUTE_S + 1) * MINUTE_S
        time.sleep(tick - time.time() - 0.3)
        harbor.crash_control()
        harbor.crash_control()
        return tick

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(kill_around_a_tick)


def make(harbor: Apps, name: str, seconds: float, **fields: Any) -> str:
    """Make a cronjob that takes so long, and return its name once it is built."""
    given = {"name": name, "cronSchedule": NEVER, "repositoryName": "acme/nightly", "language": "python", **fields}
    harbor.call("POST", "/v1/cronjobs", {**given, "command": f"python run.py {seconds}"})
    wait_until(lambda: harbor.call("GET", f"/v1/cronjobs/{name}")["status"] == "running", ENDED_S)
    return name


def trigger(harbor: Apps, name: str) -> str:
    """Run a cronjob now, and return the run once its program has begun."""
    uuid = str(harbor.call("POST", f"/v1/cronjobs/{name}/trigger")["executionUuid"])
    wait_until(lambda: "begins" in logs(harbor, uuid), ENDED_S)
    return uuid


def logs(harbor: Apps, uuid: str) -> str:
    return str(harbor.call("GET", f"/v1/cronjobs/executions/{uuid}/logs")["logs"])


def runs(harbor: Apps, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = harbor.call("GET", f"/v1/cronjobs/{name}/executions")["items"]
    return items


def ended(harbor: Apps, name: str) -> dict[str, Any]:
    """Return the only run of a cronjob, once it has ended."""
    wait_until(lambda: runs(harbor, name)[0]["status"] in ENDS, ENDED_S)
    (run,) = runs(harbor, name)
    return run


def kill_shims(harbor: Apps) -> None:
    for card in (harbor.running.data / "run" / "cronjobs").glob("*/shim.json"):
        with contextlib.suppress(OSError):
            os.kill(json.loads(card.read_bytes())["pid"], signal.SIGKILL)


def test_each_tick_runs_once_though_the_platform_is_killed_around_it(harbor: Apps, ticking: Future[int]) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:00.000Z", time.gmtime(ticking.result()))

    wait_until(lambda: moment in [run["scheduledFor"] for run in runs(harbor, "ticking")], ENDED_S)
    harbor.call("POST", "/v1/cronjobs/ticking/pause")
    wait_until(lambda: all(run["status"] in ENDS for run in runs(harbor, "ticking")), ENDED_S)

    (run,) = [run for run in runs(harbor, "ticking") if run["scheduledFor"] == moment]
    printed = logs(harbor, run["executionUuid"]).split()
    # One that was begun and did not come to its end is not begun again: nobody knows what it has done.
    assert printed.count("begins") <= 1
    assert (run["status"] == "succeeded" and "ends" in printed) or "the platform restarted" in run["errorMessage"]


def test_a_run_goes_on_though_the_platform_is_killed(harbor: Apps, ticking: Future[int]) -> None:
    ticking.result()
    uuid = trigger(harbor, make(harbor, "patient", 4))

    harbor.crash_control()

    run = ended(harbor, "patient")
    assert (run["executionUuid"], run["status"], run["exitCode"]) == (uuid, "succeeded", 0)
    words = [line.split()[0] for line in logs(harbor, uuid).splitlines()]
    assert [word for word in words if word in ("begins", "ends")] == ["begins", "ends"]
    assert harbor.call("GET", "/v1/cronjobs/patient")["runStats"]["successfulRuns"] == 1


def test_a_run_that_did_not_survive_says_so(harbor: Apps, ticking: Future[int]) -> None:
    ticking.result()
    trigger(harbor, make(harbor, "doomed", 600))
    control = harbor.children()["control"]
    os.kill(control, signal.SIGSTOP)

    kill_shims(harbor)
    harbor.crash_control()

    run = ended(harbor, "doomed")
    assert run["status"] == "failed"
    assert "the platform restarted" in run["errorMessage"]
