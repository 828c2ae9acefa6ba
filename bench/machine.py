"""Kernel figures of this machine and its processes."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_CORES = sorted(os.sched_getaffinity(0))
# Server and client get a core each, so that neither takes time from the other. On one core they have to share it.
SERVER_CORE = _CORES[0]
CLIENT_CORE = _CORES[1 % len(_CORES)]
IN_MEMORY = ("tmpfs", "ramfs")


def describe(folder: Path) -> str:
    """Name the machine in one line, so that a printed table says where it comes from."""
    load = os.getloadavg()[0]
    return (
        f"{len(_CORES)} cores, {platform.system()} {platform.release()} {platform.machine()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"data on {filesystem_of(folder)}, load {load:.2f}"
    )


def filesystem_of(folder: Path) -> str:
    """Return the type of the file system a folder is on, such as `ext4`."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(len(point), kind) for _, point, kind, *_ in mounts if folder.resolve().is_relative_to(point)]
    return max(inside)[1] if inside else "unknown"


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin this thread and its children to one core for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def idle_seconds() -> float:
    """Return the idle time of all cores together since the start of the machine."""
    return float(Path("/proc/uptime").read_text().split()[1])


def stolen_seconds() -> float:
    """Return the time that the host of a virtual machine took from all cores together while they had work."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, all of its threads, user and system, to the nanosecond.

    This is clock_getcpuclockid(3). /proc/PID/stat has the same figure, rounded to 10 ms.
    """
    return time.clock_gettime(((~pid) << 3) | 2)


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all its descendants that are alive."""
    return sum(tree_cpu_times(pid).values())


def tree_cpu_times(pid: int) -> dict[int, float]:
    """Return the CPU time of a process and of each of its descendants that are alive, in seconds by id."""
    used = {}
    for each in tree_of(pid):
        with suppress(OSError):  # It ended since it was found.
            used[each] = cpu_seconds(each)
    return used


def cpu_between(before: dict[int, float], after: dict[int, float]) -> float:
    """Return the seconds that the processes of `after` used since `before`; those that ended meanwhile do not count."""
    return sum(seconds - before.get(pid, 0) for pid, seconds in after.items())


def voluntary_switches(pid: int) -> int:
    """Return how often the threads of a process have waited: about once per wake-up."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # The thread has ended since it was found.
            lines = (task / "status").read_text().splitlines()
            count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return count


@dataclass(frozen=True)
class Memory:
    rss_mb: float  # resident memory, with shared pages counted in every process
    pss_mb: float  # the same, with shared pages split among those that share them


def memory_of(pids: list[int]) -> Memory:
    rss = pss = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "Rss":
                rss += int(rest.split()[0])
            elif name == "Pss":
                pss += int(rest.split()[0])
    return Memory(rss / 1024, pss / 1024)


def own_memory_mb(pid: int) -> float:
    """Return the anonymous and shared memory of a process, without pages of files, which the kernel can drop.

    Pages of programs are shared with other platforms on the machine, so PSS changes with those.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024


def memory_of_tree(pid: int) -> Memory:
    """Return the memory of a process and of all its descendants that are alive."""
    rss = pss = 0.0
    for each in tree_of(pid):
        with suppress(OSError):  # It ended since it was found.
            found = memory_of([each])
            rss, pss = rss + found.rss_mb, pss + found.pss_mb
    return Memory(rss, pss)


def tree_of(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent_of(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def _parent_of(process: Path) -> int | None:
    try:
        # The name in brackets may contain brackets: the fields follow the last one.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None
