"""A thousand schedules on one minute: how late they run, and that each runs once though processes are killed meanwhile.

The function prints which schedule it runs for and when, so the evidence is its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import function_platform
from bench.figures import Figure, at_most, percentile
from bench.function_platform import Platform, in_parallel, wait_until
from moorage.runtime.edge import spool

LAG_BAR = at_most(1_000)
NONE = at_most(0)
MINUTE_S = 60
TIMEOUT_MS = 2_000
SPOOL_BYTES = 4 * spool.MB  # more than the records of all runs
CODE = """import time
def main(params):
    print(params["number"], time.time())
    return {}
"""
SHOWN = 3
NEVER = "0 0 29 2 *"  # the next one is years away, or a day that this does not run on


@dataclass(frozen=True)
class Sizes:
    schedules: int
    functions: int  # that share them
    lead_s: float  # at least so long before the minute everything is in place
    on_the_minute: bool  # else each is triggered by the benchmark, without the wait for a minute
    look_s: float  # between two polls of the results
    settle_s: float


FULL = Sizes(1_000, 10, lead_s=5, on_the_minute=True, look_s=2, settle_s=120)
TINY = Sizes(4, 2, lead_s=0, on_the_minute=False, look_s=0.1, settle_s=20)


@dataclass(frozen=True)
class Seen:
    """Results in the records of the functions and in the schedules."""

    ran_at: dict[int, list[float]]  # by schedule, the printed times of its runs
    totals: list[int]  # how often each schedule says that it ran
    failed: int  # schedules that say their run failed


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    # Nothing is compared here: the platform has the whole machine, as its users' would.
    with function_platform.running(folder / "lag", pinned=False) as platform:
        due, seen = _fire(platform, sizes, lambda: None)
    lags = [(at - due) * 1000 for times in seen.ran_at.values() for at in times]
    killed: list[float] = []
    with function_platform.running(folder / "crash", pinned=False) as platform:
        _, after_crash = _fire(platform, sizes, lambda: killed.append(_kill_in_the_middle(platform, sizes)))
    early = sum(at < killed[0] for times in after_crash.ran_at.values() for at in times)
    title = f"functions schedules, {sizes.schedules} at once"
    return [
        Figure(f"{title}: p50 of the lag", percentile(lags, 0.5), "ms"),
        Figure(f"{title}: p99 of the lag", percentile(lags, 0.99), "ms", bar=LAG_BAR),
        Figure(f"{title}: not exactly once", not_once(seen, sizes.schedules), "", bar=NONE),
        Figure(f"{title}, kill -9: not exactly once", not_once(after_crash, sizes.schedules), "", bar=NONE),
        Figure(f"{title}, kill -9: ran before it", early, ""),
        Figure(f"{title}, kill -9: cut short by it", after_crash.failed, ""),
    ]


def _fire(platform: Platform, sizes: Sizes, interfere: Callable[[], None]) -> tuple[float, Seen]:
    """Create the schedules, wait for the tick, interfere; return due time and results."""
    names = [f"tick-{number}" for number in range(sizes.functions)]
    # A run that was cut short is known to be over when its time is.
    platform.create_many(names, "python", CODE, timeout=TIMEOUT_MS)
    # Far enough ahead that all of them are made by then.
    due = (time.time() + sizes.lead_s + sizes.schedules / 50) // MINUTE_S * MINUTE_S + MINUTE_S
    cron = time.strftime("%M %H * * *", time.gmtime(due)) if sizes.on_the_minute else NEVER
    ids = in_parallel(lambda number: _schedule(platform, number, names, cron), range(sizes.schedules))
    if sizes.on_the_minute:
        if time.time() > due - 1:
            raise function_platform.Refused("making the schedules took until they were due")
        time.sleep(due - time.time())
    else:
        due = time.time()
        in_parallel(lambda each: platform.call("POST", f"/v1/scheduled-functions/{each}/run"), ids)
    interfere()
    # Looking costs the platform time that the runs need, so it is done seldom, and not at once.
    time.sleep(sizes.look_s)
    wait_until(
        lambda: all(each["totalRuns"] for each in _all(platform)),
        "every schedule has run",
        sizes.settle_s,
        sizes.look_s,
    )
    time.sleep(sizes.look_s)  # One that runs twice may take a moment longer.
    return due, _see(platform, names)


def _schedule(platform: Platform, number: int, names: list[str], cron: str) -> int:
    function = names[number % len(names)]
    body: dict[str, Any] = {"name": f"at-{number}", "function": function, "cronSchedule": cron}
    made = platform.call("POST", "/v1/scheduled-functions", {**body, "params": {"number": number}})
    return int(made["id"])


def _kill_in_the_middle(platform: Platform, sizes: Sizes) -> float:
    """Kill control and edge after a quarter of the runs, and return the time."""
    pids = [platform.process(role) for role in ("control", "edge")]
    enough = sizes.schedules / 4
    wait_until(lambda: _ended(platform.data / "spool") >= enough, "a quarter has run", sizes.settle_s, 0.005)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return time.time()


def _ended(folder: Path) -> int:
    """Count the ended runs in the spool: the API would answer after all of them."""
    ended = 0
    for path in folder.glob(f"*{spool.SUFFIX}"):
        with path.open("rb") as file:
            written = file.read(SPOOL_BYTES)
        at = 0
        while (glance := spool.glance_at(written, at))[0]:
            ended += glance[1] == spool.END
            at += spool.LENGTH_SIZE + glance[0]
    return ended


def _all(platform: Platform) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.call("GET", "/v1/scheduled-functions")
    return found


def _see(platform: Platform, names: list[str]) -> Seen:
    ran_at: dict[int, list[float]] = {}
    for name in names:
        for invocation in platform.invocations(name):
            for line in invocation["stdout"].splitlines():
                number, at = line.split()
                ran_at.setdefault(int(number), []).append(float(at))
    schedules = _all(platform)
    failed = [each for each in schedules if each["lastStatus"] == "error"]
    for each in failed[:SHOWN]:
        print(f"functions schedules: {each['name']} says: {each['lastError']}", flush=True)
    return Seen(ran_at, [each["totalRuns"] for each in schedules], len(failed))


def not_once(seen: Seen, schedules: int) -> int:
    """Count the schedules that ran twice, or whose count and output disagree.

    The output of a killed run is lost, but its schedule shows the failure.
    """
    twice = {number for number, times in seen.ran_at.items() if len(times) > 1}
    counted = Counter(seen.totals)
    silent = max(0, schedules - len(seen.ran_at) - seen.failed)
    return len(twice) + schedules - counted[1] + silent
