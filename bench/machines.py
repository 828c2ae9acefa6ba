"""Two machines on one PostgreSQL: nothing is restarted or ended without reason, and apps survive a killed machine.

Both machines are data folders of this one, so they share its CPUs; a real second machine only makes this easier.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.apps_life_support import Apps, checkout
from tests.e2e.machines.fleet import Fleet, kill_machine, started_fleet
from tests.products.repositories.support import Checkout

from bench.figures import Figure, at_most
from bench.function_platform import wait_until

NONE = at_most(0)
ELSEWHERE_BAR = at_most(30)  # seconds
REPOSITORY, JOBS = "acme/shop", "acme/jobs"
RUN_S = 20  # so that runs are open for a third of the time
BUILT_S = 900.0
LOOK_S = 0.1


@dataclass(frozen=True)
class Sizes:
    seconds: int
    apps: int
    cronjobs: int


FULL = Sizes(seconds=600, apps=10, cronjobs=20)
TINY = Sizes(seconds=5, apps=2, cronjobs=1)


@dataclass(frozen=True)
class Process:
    """A process of an app, as it names itself, and the row of its replica."""

    boot: str
    replica: int


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with started_fleet(folder) as fleet, fleet.machine("one") as one, fleet.machine("two") as two:
        names = _make_apps(one, two, fleet, sizes)
        _make_cronjobs(one, fleet, sizes)
        before = {name: _process(one, fleet, name) for name in names}
        failed = _watch(one, two, names, sizes.seconds)
        after = {name: _process(one, fleet, name) for name in names}
        restarted = sum(before[name] != after[name] for name in names)
        figures = _undisturbed(fleet, sizes, restarted, failed)
        return [*figures, _measure_takeover(one, two, fleet, after)]


def _make_apps(one: Apps, two: Apps, fleet: Fleet, sizes: Sizes) -> list[str]:
    """Make apps through both machines; each is placed by the platform."""
    one.push(checkout(fleet.folder / "shop", "first"), REPOSITORY)
    names = [f"shop-{number}" for number in range(sizes.apps)]
    for number, name in enumerate(names):
        via = (one, two)[number % 2]
        via.go_live(via.create_app(name, REPOSITORY))
    return names


def _make_cronjobs(one: Apps, fleet: Fleet, sizes: Sizes) -> None:
    work = Checkout.init(fleet.folder / "jobs")
    work.commit("first", run_py=f"import time\ntime.sleep({RUN_S})\n")
    one.push(work, JOBS)
    names = [f"job-{number}" for number in range(sizes.cronjobs)]
    given = {"repositoryName": JOBS, "language": "python", "cronSchedule": "* * * * *", "command": "python run.py"}
    for name in names:
        one.call("POST", "/v1/cronjobs", {"name": name, **given})

    def are_built() -> bool:
        statuses = dict(fleet.rows("SELECT status, count(*) FROM cronjob GROUP BY status"))
        return bool(statuses.get("running", 0) == len(names))

    wait_until(are_built, "all cronjobs are built", timeout_s=BUILT_S, every_s=1)
    wait_until(lambda: _count(fleet, "status = 'running'") > 0, "a run begins", timeout_s=180, every_s=1)


def _watch(one: Apps, two: Apps, names: list[str], seconds: int) -> int:
    """Visit all apps through both machines for some time; return the number of failed requests."""
    failed, give_up_at = 0, time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        for name in names:
            failed += sum(_boot(apps, name) is None for apps in (one, two))
        time.sleep(1)
    return failed


def _undisturbed(fleet: Fleet, sizes: Sizes, restarted: int, failed: int) -> list[Figure]:
    what = f"machines: two for {sizes.seconds} s, {sizes.apps} apps, {sizes.cronjobs} cronjobs"
    on = dict(fleet.rows("SELECT machine_id, count(*) FROM replica WHERE status = 'ready' GROUP BY machine_id"))
    ran_on = fleet.rows("SELECT DISTINCT machine_id FROM cronjob_execution WHERE status = 'succeeded'")
    return [
        Figure(f"{what}: replicas restarted", restarted, "", bar=NONE),
        Figure(f"{what}: runs falsely ended", _count(fleet, "status = 'failed'"), "", bar=NONE),
        Figure(f"{what}: failed requests through both gateways", failed, "", bar=NONE),
        Figure(f"{what}: runs that succeeded", _count(fleet, "status = 'succeeded'"), ""),
        Figure(f"{what}: machines that run apps, and that ran cronjobs", min(len(on), len(ran_on)), ""),
    ]


def _measure_takeover(one: Apps, two: Apps, fleet: Fleet, before: dict[str, Process]) -> Figure:
    """Kill a machine with all of its apps; return the time until all of these answer through the other one."""
    rows = fleet.rows(
        "SELECT project.name FROM replica JOIN project ON project.id = replica.project_id "
        "JOIN machine ON machine.id = replica.machine_id WHERE machine.name = 'two' AND replica.status = 'ready'"
    )
    lost = [str(name) for (name,) in rows]
    kill_machine(two)
    killed_at = time.monotonic()
    for name in lost:

        def answers(name: str = name) -> bool:
            return _boot(one, name) not in (None, before[name].boot)

        wait_until(answers, f"{name} answers", timeout_s=120, every_s=LOOK_S)
    taken_s = time.monotonic() - killed_at
    return Figure(f"machines: {len(lost)} apps of a killed machine answer elsewhere", taken_s, "s", bar=ELSEWHERE_BAR)


def _process(apps: Apps, fleet: Fleet, name: str) -> Process:
    boot = _boot(apps, name)
    ids = fleet.rows(
        f"SELECT replica.id FROM replica JOIN project ON project.id = replica.project_id WHERE project.name = '{name}'"
    )
    return Process(boot or "", ids[0][0] if len(ids) == 1 else -1)


def _boot(apps: Apps, name: str) -> str | None:
    """Return the process that answers; None for any failure."""
    try:
        answer = apps.visit(name, "/who")
        found: dict[str, Any] = json.loads(answer.body) if answer.status == 200 else {}
    except (OSError, ValueError):
        return None
    return found.get("boot")


def _count(fleet: Fleet, condition: str) -> int:
    return int(fleet.rows(f"SELECT count(*) FROM cronjob_execution WHERE {condition}")[0][0])
