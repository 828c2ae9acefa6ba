"""Facts about this machine and the processes of the platform, read from /proc."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

import moorage
from moorage.core import disk
from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox.usage import process_tree
from moorage.settings import Settings

PROCESSES_FILE = "processes.json"  # in `run`, written by the supervisor at each start of a process
_KB = 1024


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    cpu_count: int
    load: tuple[float, float, float]  # averages of 1, 5 and 15 minutes
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    uptime_s: int
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    pid: int
    memory_bytes: int
    cpu_ms: int  # since its start
    age_ms: int
    restarts: int
    is_running: bool


def look(settings: Settings) -> Machine:
    memory = _memory()
    return Machine(
        name=platform.node(),
        cpu_count=len(os.sched_getaffinity(0)),
        load=os.getloadavg(),
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        disk_bytes=disk.total_bytes(settings.data),
        disk_free_bytes=disk.free_bytes(settings.data),
        uptime_s=int(time.clock_gettime(time.CLOCK_BOOTTIME)),
        versions={
            "moorage": moorage.__version__,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "store": "postgresql" if settings.uses_postgres else f"sqlite {sqlite3.sqlite_version}",
        },
    )


def _memory() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: int(rest.split()[0]) * _KB for name, _, rest in (line.partition(":") for line in lines)}


def processes(settings: Settings) -> list[Process]:
    """Return the supervisor and its processes; only this process if it has no supervisor."""
    try:
        plan = json.loads((settings.folder("run") / PROCESSES_FILE).read_bytes())
    except (OSError, ValueError):
        plan = {}
    # The file of an earlier run names other processes.
    known = [each for each in plan.get("processes", ()) if isinstance(each, dict)]
    if not any(each.get("pid") == os.getpid() for each in known):
        known = [{"name": "control", "pid": os.getpid(), "restarts": 0}]
    return [_process(str(each["name"]), int(each["pid"]), int(each["restarts"])) for each in known]


def _process(name: str, pid: int, restarts: int) -> Process:
    fields = process_tree.find_stat(pid)
    if fields is None:
        return Process(name, pid, 0, 0, 0, restarts, is_running=False)
    started_us = int(fields[process_tree.STARTED]) * process_tree.TICK_US
    age_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - started_us
    user, system = (int(ticks) for ticks in fields[process_tree.TIMES][:2])  # without its children
    memory = 0
    with contextlib.suppress(OSError, IndexError, ValueError):
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * process_tree.PAGE
    return Process(
        name=name,
        pid=pid,
        memory_bytes=memory,
        cpu_ms=(user + system) * process_tree.TICK_US // 1000,
        age_ms=age_us // 1000,
        restarts=restarts,
        is_running=True,
    )
