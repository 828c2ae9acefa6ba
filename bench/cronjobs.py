"""Cronjobs: how late runs begin when a thousand are due in one minute, and how quickly the next ticks are known.

The runs are of one small program, built once each from the same commit. What they may be late by is what the limit of
runs at once makes of them: so each start is compared with the moment at which a place became free for it.
"""

from __future__ import annotations

import contextlib
import heapq
import sqlite3
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import apps_platform, processes
from bench.apps_platform import Port, Work
from bench.figures import Figure, at_most, percentile
from bench.function_platform import in_parallel, wait_until
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.cron import Cron

LATE_BAR = at_most(1)
NONE = at_most(0)
NEXT_BAR = at_most(1)
EXPRESSIONS = ("*/5 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 1 JAN,JUL *", "15 */3 * * *", "@hourly", "7 4 * * 0")
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")
SEATS = 12  # A plan has room for a hundred.
AHEAD_MS = 20_000  # A tick that is closer is not the one that is measured.


@dataclass(frozen=True)
class Sizes:
    cronjobs: int
    at_once: int
    ticks: int


FULL = Sizes(cronjobs=1000, at_once=8, ticks=10_000)
TINY = Sizes(cronjobs=3, at_once=2, ticks=50)


@dataclass(frozen=True)
class Ran:
    due: int
    started: int
    ended: int


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder, seats=SEATS, cronjob_runs=sizes.at_once, workers=8) as port:
        return [*_one_minute(port, sizes), _next_ticks(sizes)]


def _one_minute(port: Port, sizes: Sizes) -> list[Figure]:
    works = [Work(port, port.folder / f"tick-{seat}", seat) for seat in range(SEATS)]
    for work in works:
        work.push({"server.js": ""})  # Nothing has to be installed for it.
    tick = _make(port, [work.repository for work in works], sizes)
    wait_until(lambda: _built(port) == sizes.cronjobs, "all are built", timeout_s=1800, every_s=1)
    wait_until(lambda: _open(port, tick) == 0, "all have run", timeout_s=1800, every_s=1)
    runs = _runs(port, tick)
    late = [max(0, ran.started - begins) / 1000 for ran, begins in zip(runs, _begins(runs, sizes.at_once), strict=True)]
    name = f"cronjobs: {sizes.cronjobs} due in one minute, {sizes.at_once} at once"
    doubled = len(runs) - sizes.cronjobs
    return [
        Figure(f"{name}: late, beyond the limit, p99", percentile(late, 0.99), "s", bar=LATE_BAR),
        Figure(f"{name}: lost or doubled", abs(doubled), "runs", bar=NONE),
        Figure(f"{name}: first start to last", (runs[-1].started - runs[0].started) / 1000, "s"),
    ]


def _make(port: Port, repositories: list[str], sizes: Sizes) -> int:
    """Make cronjobs that are all due at one moment, far enough ahead that they are built by then; return it."""
    minutes = 2 + sizes.cronjobs // 500
    tick = (int(time.time() * 1000) + AHEAD_MS) // MINUTE_MS * MINUTE_MS + minutes * MINUTE_MS
    moment = datetime.fromtimestamp(tick / 1000, UTC)
    cron = f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"

    def make(number: int) -> None:
        seat = number % SEATS
        source = {"repositoryName": repositories[seat], "command": "true"}
        port.call("POST", "/v1/cronjobs", {"name": f"job-{number}", "cronSchedule": cron, **source}, seat=seat)

    in_parallel(make, range(sizes.cronjobs))
    return tick


def _begins(runs: list[Ran], at_once: int) -> list[int]:
    """Return the earliest start of each run: its due time, or the end of the run that freed its slot."""
    free: list[int] = []
    moments = []
    for ran in runs:
        begins = ran.due if len(free) < at_once else max(ran.due, heapq.heappop(free))
        moments.append(begins)
        heapq.heappush(free, ran.ended)
    return moments


def _built(port: Port) -> int:
    counts = dict(_rows(port, "SELECT status, count(*) FROM cronjob GROUP BY status"))
    if failed := counts.get("failed"):
        raise processes.NotReady(f"{failed} cronjobs could not be built")
    return int(counts.get("running", 0))


def _open(port: Port, tick: int) -> int:
    if time.time() * 1000 < tick + 2_000:
        return 1
    query = "SELECT count(*) FROM cronjob_execution WHERE scheduled_for = ? AND status IN ('queued', 'running')"
    return int(_rows(port, query, tick)[0][0])


def _runs(port: Port, tick: int) -> list[Ran]:
    query = "SELECT scheduled_for, started_at, completed_at FROM cronjob_execution WHERE scheduled_for = ? ORDER BY 2"
    return [Ran(*row) for row in _rows(port, query, tick)]


def _rows(port: Port, query: str, *given: int) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{port.data}/store/moorage.db?mode=ro", uri=True)) as store:
        return store.execute(query, given).fetchall()


def _next_ticks(sizes: Sizes) -> Figure:
    """Compute many next ticks, of expressions and zones as people have them."""
    crons = [Cron.parse(EXPRESSIONS[n % len(EXPRESSIONS)], ZONES[n % len(ZONES)]) for n in range(sizes.ticks)]
    now = int(time.time() * 1000)
    begun = time.process_time()
    for cron in crons:
        cron.next_after(now)
    return Figure(f"cronjobs: {sizes.ticks} next ticks", time.process_time() - begun, "s CPU", bar=NEXT_BAR)
