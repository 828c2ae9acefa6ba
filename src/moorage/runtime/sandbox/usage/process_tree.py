"""Process trees, read from /proc: a substitute for cgroups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups.files import read

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Indices in /proc/<pid>/stat, counted after the name, which may contain spaces and brackets.
STATE, TIMES, THREADS, STARTED = 0, slice(11, 15), 17, 19
DEAD = "ZX"
SHARED_MEMORY = ("/dev/zero (deleted)", "/memfd:", "/SYSV")  # names of shared memory in /proc/<pid>/maps


def find_stat(pid: int) -> list[str] | None:
    """Return the stat fields of a running process, None if it has ended.

    A process whose main thread has exited looks like a zombie, but runs until its last thread exits.
    """
    try:
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[STATE] in DEAD and int(fields[THREADS]) <= 1 else fields


def started(pid: int) -> int | None:
    """Return the start time in clock ticks since boot; with it, a PID is unique."""
    fields = find_stat(pid)
    return int(fields[STARTED]) if fields else None


def with_descendants(roots: Iterable[int]) -> list[int]:
    """Return these processes and all their descendants, parents first.

    An orphan in a PID namespace becomes a child of the namespace's process 1, so none is missed there.
    """
    pids = list(roots)
    for pid in pids:  # grows during the iteration
        pids += children(pid)
    return pids


def children(pid: int) -> list[int]:
    pids: list[int] = []
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            pids += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return pids


def threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def cpu_us(pids: Iterable[int]) -> int:
    """Return the CPU time of these processes and of their reaped children."""
    stats = filter(None, map(find_stat, pids))
    return sum(int(ticks) for fields in stats for ticks in fields[TIMES]) * TICK_US


def use_more_than(pids: Iterable[int], limit_bytes: int) -> bool:
    """Whether these processes use more memory; their address spaces, an upper bound, are much faster to read."""
    pids = list(pids)
    return sum(map(_address_space, pids)) > limit_bytes and memory_bytes(pids) > limit_bytes


def _address_space(pid: int) -> int:
    """Return the size of a process's address space; an exited main thread has none."""
    with contextlib.suppress(OSError):
        return int(read(f"{thread_folder(pid)}/statm").split()[0]) * PAGE
    return 0


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the memory of these processes; shared memory counts once if possible.

    Shared memory counts by the length of its mapping: the kernel keeps pages of it that are in no page table (after
    MADV_DONTNEED), and does not report their number.
    """
    shared: dict[str, int] = {}
    own = sum(_memory_of(pid, shared) for pid in pids)
    return own + sum(shared.values())


def _memory_of(pid: int, shared: dict[str, int]) -> int:
    """Return a process's private memory; add its shared memory to `shared`, by inode."""
    folder = thread_folder(pid)
    with contextlib.suppress(OSError):
        lines = (line.split() for line in read(f"{folder}/smaps_rollup").splitlines()[1:])
        sizes = {words[0]: int(words[1]) * 1024 for words in lines}
        if "Pss:" in sizes:
            mapped = _shared_mappings(folder)
            for inode, length in mapped.items():
                shared[inode] = max(shared.get(inode, 0), length)
            # Mapped files in /tmp are shared memory too; they have names, and count for the process.
            return sizes["Pss:"] - (sizes.get("Pss_Shmem:", 0) if mapped else 0)
    with contextlib.suppress(OSError):
        return int(read(f"{folder}/statm").split()[1]) * PAGE
    return 0


def _shared_mappings(folder: str) -> dict[str, int]:
    """Return the lengths of mappings of shared memory without a file, by inode."""
    lengths: dict[str, int] = {}
    text = read(f"{folder}/maps")
    for line in text.splitlines() if any(mark in text for mark in SHARED_MEMORY) else ():
        words = line.split(None, 5)
        if len(words) == 6 and words[5].startswith(SHARED_MEMORY):
            start, _, end = words[0].partition("-")
            lengths[words[4]] = lengths.get(words[4], 0) + int(end, 16) - int(start, 16)
    return lengths


def thread_folder(pid: int) -> str:
    """Return the /proc folder of a running thread: an exited main one has no memory."""
    fields = find_stat(pid)
    if fields is None or fields[STATE] not in DEAD:
        return f"/proc/{pid}"
    others = [thread for thread in threads(pid) if thread != pid]
    return f"/proc/{pid}/task/{others[0]}" if others else f"/proc/{pid}"
