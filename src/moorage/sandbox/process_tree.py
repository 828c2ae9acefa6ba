"""Processes with all that they started, read from /proc: what stands in for control groups where there are none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from moorage.sandbox.cgroup_files import read

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Of /proc/<pid>/stat, counted from the field behind the name, which may hold spaces and brackets itself.
STATE, TIMES, THREADS, STARTED = 0, slice(11, 15), 17, 19
DEAD = "ZX"


def find_stat(pid: int) -> list[str] | None:
    """Return the fields of a living process, None when it has ended.

    A process whose first thread has exited looks like a zombie, but lives as long as another of its threads does.
    """
    try:
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[STATE] in DEAD and int(fields[THREADS]) <= 1 else fields


def started(pid: int) -> int | None:
    """Return when a process started: with its number it names it, for numbers are given anew."""
    fields = find_stat(pid)
    return int(fields[STARTED]) if fields else None


def with_descendants(roots: Iterable[int]) -> list[int]:
    """Return these processes and all below them, each after the one that started it.

    Who is orphaned in a process namespace becomes a child of its first process, so nobody is lost there.
    """
    found = list(roots)
    for pid in found:  # grows while it is walked
        found += children(pid)
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def cpu_us(pids: Iterable[int]) -> int:
    """Add up the processor time of these processes and of the children they have waited for."""
    stats = filter(None, map(find_stat, pids))
    return sum(int(ticks) for fields in stats for ticks in fields[TIMES]) * TICK_US


def memory_bytes(pids: Iterable[int]) -> int:
    """Add up what these processes hold; what several share counts once where we may look that closely."""
    return sum(map(_memory_of, pids))


def set_idle(pids: Iterable[int], on: bool) -> None:
    """Let these run only when nothing else wants to, or as usual again."""
    policy = os.SCHED_IDLE if on else os.SCHED_OTHER
    for pid in pids:
        for thread in threads(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(0))


def _memory_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError):
        return int(read(f"/proc/{pid}/statm").split()[1]) * PAGE
    return 0
