"""A chaos story: every kind of process is killed for minutes under mixed traffic, and then everything is audited.

Nothing that was acknowledged is lost or there twice, nothing is stuck, and nothing is left over: rows, files, mounts,
cgroups and processes. `CHAOS_S` is how long the kills go on, in seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from bench.machine import tree_of
from tests import memory
from tests.e2e import chaos_audit as audit
from tests.e2e.apps_life_support import checkout
from tests.e2e.chaos_audit import Audit
from tests.e2e.chaos_kills import SHIMS, Killer, shims_in
from tests.e2e.chaos_traffic import (
    Calls,
    Deployments,
    Organizations,
    Pushes,
    Source,
    Triggers,
    Uploads,
    Versions,
    Visits,
)
from tests.e2e.databases_support import Databases, Writer
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import NOBODY, is_alive, page
from tests.e2e.test_projects_faults import quiet_ports
from tests.platform.running import running
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.deep, pytest.mark.group("chaos")]

CHAOS_S = float(os.environ.get("CHAOS_S", "300"))
SETTLED_S = 240.0
MINUTE_S = 60
PAUSES_S = (0.5, 4.0)  # between two kills
EVERY_MINUTE, NEVER = "* * * * *", "0 0 1 1 *"
BUILD = "sleep 0.3; mkdir dist; cp index.html dist/"
FUNCTION = "def main(params):\n    return {'statusCode': 200, 'body': 'ran'}\n"
PROGRAM = "import time\nprint('begins', flush=True)\ntime.sleep(1)\nprint('ends', flush=True)\n"
JOBS = ("ticking", "triggered")


class Story:
    """A platform under traffic, whose processes are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.ports = quiet_ports()
        self.killer = Killer(self.data, random.Random(7))
        self.pids: set[int] = set()
        self.stopped_at = 0.0
        self._up = contextlib.ExitStack()
        self.start()
        self.platform = Databases(self.running, self.running.session())
        # A token of one organization: its user will be in many.
        self.platform.token = str(self.platform.call("POST", "/v1/api-tokens", {"name": "chaos"})["token"])

    def start(self) -> None:
        given = {"rate_limit": "1000000", "codehost_url": NOBODY, "log_format": "json"}
        env = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
        self.running = self._up.enter_context(running(self.data, ports=self.ports, env=env))

    def stop(self) -> None:
        self._up.close()

    def fill(self) -> None:
        """Make one of everything that the traffic goes to."""
        speaker, works = self.platform, self.folder / "works"
        speaker.make("ledger")
        for name in ("calls", "versions", "ticks"):
            speaker.create(name, "python", FUNCTION)
        self.works = {name: Checkout.init(works / name) for name in ("deployed", "pushed", "nightly")}
        for name in ("deployed", "pushed"):
            self.works[name].commit("first", index_html=page(f"{name} 0"))
            speaker.push(self.works[name], f"acme/{name}")
        self.works["nightly"].commit("first", run_py=PROGRAM)
        speaker.push(self.works["nightly"], "acme/nightly")
        speaker.push(checkout(works / "app", "one"), "acme/app")
        first = [
            speaker.create_project("deployed", "acme/deployed", buildCmd=BUILD),
            speaker.create_project("pushed", "acme/pushed", buildCmd=BUILD, autoDeploy=True),
            speaker.create_project("app", "acme/app", "container", language="nodejs"),
        ]
        speaker.publish("uploaded", {"index.html": page("uploaded 0")})
        for uuid in first:
            speaker.live(uuid)
        for name, schedule in zip(JOBS, (EVERY_MINUTE, NEVER), strict=True):
            job = {"name": name, "cronSchedule": schedule, "repositoryName": "acme/nightly", "language": "python"}
            speaker.call("POST", "/v1/cronjobs", {**job, "command": "python run.py"})
        for name in JOBS:
            wait_until(lambda name=name: speaker.call("GET", f"/v1/cronjobs/{name}")["status"] == "running", 60)  # type: ignore[misc]
        tick = {"name": "ticks", "function": "ticks", "cronSchedule": EVERY_MINUTE}
        self.schedule = speaker.call("POST", "/v1/scheduled-functions", tick)
        health = {"name": "self", "url": f"http://127.0.0.1:{self.ports['gateway']}/", "interval": 30}
        self.monitor = speaker.call("POST", "/v1/monitors", {**health, "statusCodes": ["100-599"]})
        speaker.fill("ledger")

    def sources(self) -> list[Source]:
        speaker = self.platform
        return [
            Organizations(speaker, 0.3),
            Versions(speaker, 1.5),
            Calls(speaker, 0.05),
            Calls(speaker, 0.05),
            Deployments(speaker, 0.5, work=self.works["deployed"]),
            Pushes(speaker, 4.0, work=self.works["pushed"]),
            Uploads(speaker, 1.0),
            Triggers(speaker, 2.0),
            Visits(speaker, 0.1),
        ]

    # Kills.

    def kill_for(self, seconds: float) -> None:
        """Kill a process of each kind in turn, in an order that differs each time, until the time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            kinds = [*self.killer.kinds(), "supervisor"]
            self.killer.chance.shuffle(kinds)
            for kind in kinds:
                if time.monotonic() >= deadline:
                    break
                self.pids.update(audit.processes_of(self.data))
                if kind == "supervisor":
                    self.cut_power()
                else:
                    self.killer.kill(kind, self.running)
                time.sleep(self.killer.chance.uniform(*PAUSES_S))

    def cut_power(self) -> None:
        """Kill the supervisor, with which all of its children die, and start the platform again."""
        supervisor = self.running.process
        children = list(self.running.children().values())
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait(30)
        wait_until(lambda: not any(map(is_alive, children)), 30)
        self._up.close()
        self.start()
        self.platform.running = self.running
        self.killer.killed["supervisor"] += 1

    # Ends.

    def settle(self) -> list[str]:
        """Wait until nothing is under way any more; return what still is."""
        deadline = time.monotonic() + SETTLED_S
        left = ["nothing was looked at"]
        while left and time.monotonic() < deadline:
            time.sleep(0.5)
            left = audit.unfinished(self.data)
        return left

    def end_shims(self) -> None:
        """End the apps and databases, which outlive the platform."""
        shims = [pid for folder in SHIMS.values() for pid in shims_in(self.data, folder)]
        doomed = [each for pid in shims for each in tree_of(pid)]
        for pid in shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(is_alive, doomed)), 60)


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with memory.folder("moorage-chaos-") as folder:
        made = Story(folder)
        try:
            made.fill()
            yield made
        finally:
            made.stop()
            made.end_shims()


def test_nothing_is_lost_doubled_stuck_or_leaked_whatever_is_killed(story: Story) -> None:
    sources, found = story.sources(), Audit()
    threads = [threading.Thread(target=source.run) for source in sources]
    writer = Writer(story.platform.client("ledger"), 1_000)

    with writer.at_work():
        for thread in threads:
            thread.start()
        story.kill_for(CHAOS_S)
        for source in sources:
            source.stopping.set()
        for thread in threads:
            thread.join()
        writer.wait_for_more()
    stop_ticks(story)
    found.stuck += story.settle()
    check_traffic(story, sources, found)
    check_ledger(story, writer, found)
    check_ticks(story, found)
    check_leaks(story, found)

    print(f"killed {sum(story.killer.killed.values())}: {dict(story.killer.killed)}")
    turns = [(type(source).__name__, source.turns) for source in sources]
    print(turns, f"{len(writer.acknowledged)} rows")
    print(found.figures())
    wrong = [text for source in sources for text in source.wrong]
    assert found.report(wrong) == ""


def stop_ticks(story: Story) -> None:
    """Stop what runs every minute, well away from a tick, so that it is known how many there were."""
    while not 15 <= time.time() % MINUTE_S <= 45:
        time.sleep(1)
    story.stopped_at = time.time()
    speaker = story.platform
    path = f"/v1/scheduled-functions/{story.schedule['id']}"
    wait_until(lambda: speaker.call("PATCH", path, {"enabled": False}), 60)
    wait_until(lambda: speaker.call("POST", "/v1/cronjobs/ticking/pause"), 60)


def check_traffic(story: Story, sources: list[Source], found: Audit) -> None:
    data, speaker = story.data, story.platform
    for source in sources:
        found.stuck += source.stuck
    organizations, versions, first, second, deployed, pushed, uploaded, triggered, _ = sources
    assert isinstance(organizations, Organizations)
    assert isinstance(versions, Versions)
    assert isinstance(deployed, Deployments)
    assert isinstance(pushed, Pushes)
    assert isinstance(uploaded, Uploads)
    assert isinstance(triggered, Triggers)
    names = audit.rows(data, "SELECT name, id FROM organization WHERE name LIKE 'chaos-%'")
    found.compare("organization", organizations.acknowledged, [name for name, _ in names])
    found.compare("organization id", map(int, organizations.acknowledged.values()), [number for _, number in names])
    told = audit.rows(data, "SELECT org_id FROM notification WHERE kind = 'organization.welcome'")
    wanted = map(int, organizations.acknowledged.values())
    found.compare("welcome", wanted, [number for (number,) in told], exactly=False)
    numbers = [each["version"] for each in speaker.call("GET", "/v1/functions/versions/versions")]
    found.compare("version", range(1, versions.acknowledged + 2), numbers)
    answered = [each for source in (first, second) if isinstance(source, Calls) for each in source.acknowledged]
    found.compare("call", answered, [each["activationId"] for each in speaker.all_invocations("calls")], exactly=False)
    check_releases(story, found, deployed, pushed, uploaded)
    runs = executions(speaker, "triggered")
    found.compare("execution", triggered.acknowledged, [each["executionUuid"] for each in runs])
    found.lost += audit.failed_jobs(data)


def check_releases(story: Story, found: Audit, deployed: Deployments, pushed: Pushes, uploaded: Uploads) -> None:
    """Compare deployments with what was asked for, and the pages with the newest release."""
    # The first deployment of each was there before the story began.
    found.compare("deployment", deployed.acknowledged, [uuid for uuid, _ in sorted_by_age(story, "deployed")[1:]])
    found.compare("upload", uploaded.acknowledged, [uuid for uuid, _ in sorted_by_age(story, "uploaded")[1:]])
    commits = [sha for _, sha in sorted_by_age(story, "pushed")[1:]]
    found.compare("pushed commit", pushed.acknowledged, commits, exactly=False)
    for source in (deployed, pushed, uploaded):
        if source.text and source.text != story.platform.text(source.project):
            found.lost.append(f"the newest release of {source.project}")


def sorted_by_age(story: Story, name: str) -> list[tuple[Any, ...]]:
    query = (
        "SELECT d.uuid, d.commit_sha FROM deployment d JOIN project p ON p.id = d.project_id WHERE p.name = ?"
        " ORDER BY d.id"
    )
    return audit.rows(story.data, query, name)


def check_ledger(story: Story, writer: Writer, found: Audit) -> None:
    story.platform.up("ledger")
    found.compare("ledger row", writer.acknowledged, story.platform.client("ledger").numbers(), exactly=False)


def executions(speaker: Databases, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = speaker.call("GET", f"/v1/cronjobs/{name}/executions?pageSize=100")["items"]
    return items


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def check_ticks(story: Story, found: Audit) -> None:
    """Compare what runs every minute with the minutes that there were."""
    speaker = story.platform
    schedule = speaker.call("GET", f"/v1/scheduled-functions/{story.schedule['id']}")
    first = int(epoch(story.schedule["nextRunAt"]))
    expected = list(range(first, int(story.stopped_at) + 1, MINUTE_S))
    if schedule["totalRuns"] < len(expected):
        found.lost.append(f"{len(expected) - schedule['totalRuns']} of {len(expected)} ticks of the schedule")
    if schedule["totalRuns"] > len(expected):
        found.doubled.append(f"{schedule['totalRuns']} runs for {len(expected)} ticks of the schedule")
    ran = [int(epoch(each["scheduledFor"])) for each in executions(speaker, "ticking") if each["scheduledFor"]]
    skipped = speaker.call("GET", "/v1/cronjobs/ticking")["runStats"]["skippedRuns"]
    ticks = [moment for moment in expected if moment >= min(ran, default=first)]
    found.doubled += [f"tick {moment} of the cronjob" for moment in set(ran) if ran.count(moment) > 1]
    if len(set(ran)) + skipped < len(ticks):
        found.lost.append(f"{len(ticks) - len(set(ran)) - skipped} of {len(ticks)} ticks of the cronjob")
    beats = speaker.call("GET", f"/v1/monitors/{story.monitor['id']}/heartbeats?limit=1000")
    if len({beat["time"] for beat in beats}) < len(beats):
        found.doubled.append("heartbeats of one moment")
    if not beats or time.time() - epoch(beats[0]["time"]) > 3 * MINUTE_S:
        found.stuck.append("the monitor")


def check_leaks(story: Story, found: Audit) -> None:
    """Look for what is left while the platform runs, and then for what is left when it has ended."""
    audit.sweep_transfers(story.data)
    found.leaked += [f"file {name}" for name in audit.leftover_files(story.data)]
    known = {each for root in (story.running.process.pid, *all_shims(story)) for each in tree_of(root)}
    strays = {pid: why for pid, why in audit.processes_of(story.data).items() if pid not in known and is_alive(pid)}
    found.leaked += [f"process {pid} ({why})" for pid, why in strays.items()]
    story.pids.update(audit.processes_of(story.data))
    assert story.running.stop() == 0
    story.end_shims()
    left = audit.processes_of(story.data)
    found.leaked += [f"process {pid} ({why}) after the end" for pid, why in left.items() if is_alive(pid)]
    found.leaked += [f"mount {line}" for line in audit.mounts_of(story.data)]
    found.leaked += [f"cgroup {path}" for path in audit.cgroups_of(story.data)]
    found.leaked += [f"cgroup {path}" for path in audit.run_cgroups_of(story.pids)]


def all_shims(story: Story) -> list[int]:
    return [pid for folder in SHIMS.values() for pid in shims_in(story.data, folder)]
