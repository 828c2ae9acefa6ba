"""Processes with all that they started, read from /proc: what stands in for control groups where there are none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups.files import read

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Of /proc/<pid>/stat, counted from the field behind the name, which may hold spaces and brackets itself.
STATE, TIMES, THREADS, STARTED = 0, slice(11, 15), 17, 19
DEAD = "ZX"
SHARED_MEMORY = ("/dev/zero (deleted)", "/memfd:", "/SYSV")  # what the kernel calls it in a list of mappings


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
    """Add up what these processes hold; what several share counts once where we may look that closely.

    Shared memory counts by the length of its mapping: the kernel keeps pages of it that no process has in its page
    tables (after MADV_DONTNEED), and shows their number to nobody.
    """
    shared: dict[str, int] = {}
    own = sum(_memory_of(pid, shared) for pid in pids)
    return own + sum(shared.values())


def set_idle(pids: Iterable[int], on: bool) -> None:
    """Let these run only when nothing else wants to, or as usual again."""
    policy = os.SCHED_IDLE if on else os.SCHED_OTHER
    for pid in pids:
        for thread in threads(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(0))


def _memory_of(pid: int, shared: dict[str, int]) -> int:
    """Return what is a process's own, and add the shared memory that it has mapped to `shared`, by inode."""
    place = living_thread(pid)
    with contextlib.suppress(OSError):
        lines = (line.split() for line in read(f"{place}/smaps_rollup").splitlines()[1:])
        sizes = {words[0]: int(words[1]) * 1024 for words in lines}
        if "Pss:" in sizes:
            mapped = _shared_mappings(place)
            for inode, length in mapped.items():
                shared[inode] = max(shared.get(inode, 0), length)
            # Files in /tmp are shared memory as well; they have names, and stay with the process that maps them.
            return sizes["Pss:"] - (sizes.get("Pss_Shmem:", 0) if mapped else 0)
    with contextlib.suppress(OSError):
        return int(read(f"{place}/statm").split()[1]) * PAGE
    return 0


def _shared_mappings(place: str) -> dict[str, int]:
    """Return the lengths of the shared memory without a file that a process has mapped, by inode."""
    found: dict[str, int] = {}
    text = read(f"{place}/maps")
    for line in text.splitlines() if any(mark in text for mark in SHARED_MEMORY) else ():
        words = line.split(None, 5)
        if len(words) == 6 and words[5].startswith(SHARED_MEMORY):
            start, _, end = words[0].partition("-")
            found[words[4]] = found.get(words[4], 0) + int(end, 16) - int(start, 16)
    return found


def living_thread(pid: int) -> str:
    """Return the folder of a thread that still runs: the first one may have exited, and then shows no memory."""
    fields = find_stat(pid)
    if fields is None or fields[STATE] not in DEAD:
        return f"/proc/{pid}"
    others = [thread for thread in threads(pid) if thread != pid]
    return f"/proc/{pid}/task/{others[0]}" if others else f"/proc/{pid}"
