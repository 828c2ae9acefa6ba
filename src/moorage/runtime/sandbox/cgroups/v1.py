"""Control groups of version 1: a hierarchy for each controller, so a cell is a folder in several trees.

Most machines of this kind mount version 2 beside it, without controllers. It freezes, kills and counts better than the
old hierarchies do (frozen processes can be killed, and all of a group at once), so a cell has a folder there as well.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups.v2 import Unified
from moorage.runtime.sandbox.usage import process_tree

SHARES = 1024  # what a group of normal weight has
BEHIND = "behind"
MOVES = 10  # Whoever forks while a group is moved leaves children where they were; a few looks find all.
NO_QUOTA = -1
FEWEST_SHARES, MOST_SHARES = 2, 262_144

TRIALS = {
    "memory": ("memory.limit_in_bytes", str(files.TRIAL_BYTES)),
    "cpu": ("cpu.shares", str(SHARES)),
    "pids": ("pids.max", "64"),
    "freezer": ("freezer.state", "THAWED"),
    "cpuacct": ("cpuacct.usage", "0"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where groups are made, by controller; "unified" stands for version 2."""

    bases: Mapping[str, str]
    has_idle: bool
    has_swap: bool  # whether memory and swap can be limited together
    can_kill: bool

    def folder(self, controller: str, name: str) -> str | None:
        base = self.bases.get(controller)
        return None if base is None else f"{base}/{name}"


class V1Group:
    __slots__ = (
        *("_behind", "_bytes", "_cpu", "_cpuacct", "_folders", "_freezer", "_is_idle", "_layout", "_live", "_memory"),
        *("_name", "_pids", "_quota", "_shares", "_unified", "_written"),
    )

    def __init__(self, layout: Layout, name: str, live: set[str], behind: str | None = None) -> None:
        self._layout = layout
        self._name = name
        self._live = live
        self._memory = layout.folder("memory", name)
        self._cpu = layout.folder("cpu", name)
        self._pids = layout.folder("pids", name)
        self._freezer = layout.folder("freezer", name)
        self._cpuacct = layout.folder("cpuacct", name)
        unified = layout.folder("unified", name)
        self._unified = Unified(unified, can_kill=layout.can_kill) if unified else None
        # Controllers that are mounted together share a folder.
        self._folders = list(dict.fromkeys(f"{base}/{name}" for base in layout.bases.values()))
        self._is_idle = False
        self._behind = f"{behind}/{name}" if behind else None  # where its processes are weighed while it is idle
        self._shares = SHARES
        self._bytes = math.inf
        self._quota = NO_QUOTA
        self._written: dict[str, int] = {}

    def make(self) -> None:
        files.make(self._folders)
        self._live.add(self._name)
        if self._memory and not self._layout.has_swap:
            files.can_write(f"{self._memory}/memory.swappiness", "0")

    def limit(self, *, memory_mb: int, pids: int, weight: int, cpu: float | None = None) -> None:
        self._limit_memory(memory_mb * files.MB)
        if self._pids:
            self._ensure(f"{self._pids}/pids.max", pids)
        self._shares = min(max(weight * SHARES // files.NORMAL_WEIGHT, FEWEST_SHARES), MOST_SHARES)
        if self._cpu and not self._is_idle:  # The kernel refuses shares for an idle group.
            self._ensure(f"{self._cpu}/cpu.shares", self._shares)
        self._limit_cpu(cpu)

    def attach(self, pid: int) -> None:
        for folder in self._folders:
            files.write(f"{folder}/cgroup.procs", str(pid))

    def freeze(self) -> None:
        if self._unified:
            self._unified.freeze(True)
        elif self._freezer:
            files.write(f"{self._freezer}/freezer.state", "FROZEN")
        else:
            files.send(self.processes(), signal.SIGSTOP)

    def thaw(self) -> None:
        if self._unified:
            self._unified.freeze(False)
        elif self._freezer:
            files.write(f"{self._freezer}/freezer.state", "THAWED")
        else:
            files.send(self.processes(), signal.SIGCONT)

    def idle(self, on: bool) -> None:
        if not self._cpu or on == self._is_idle:
            return
        if self._behind:
            self._go(self._cpu, self._behind) if on else self._go(self._behind, self._cpu)
        elif self._layout.has_idle:
            files.write(f"{self._cpu}/cpu.idle", str(int(on)))
            self._written.pop(f"{self._cpu}/cpu.shares", None)  # Leaving idleness gives every group the same shares.
        self._is_idle = on
        if not on or not self._layout.has_idle:
            self._ensure(f"{self._cpu}/cpu.shares", FEWEST_SHARES if on else self._shares)

    def _go(self, place: str, to: str) -> None:
        """Have the processes weighed elsewhere.

        All idle groups are inside one that is idle. Side by side with everybody else each of them would be due for a
        turn of its own once in a while, and a process that wakes just then waits for it to end.
        """
        if to == self._behind:
            parent = os.path.dirname(to)
            os.makedirs(to, 0o755, exist_ok=True)
            files.write(f"{parent}/cpu.idle", "1")
            files.write(f"{to}/cpu.shares", str(self._shares))
        for _ in range(MOVES):
            if not (pids := files.processes(place)):
                break
            files.move(pids, to)
        if place == self._behind:
            with contextlib.suppress(OSError):  # It goes with the rest.
                os.rmdir(place)

    def cpu_us(self) -> int:
        if self._unified:
            return self._unified.cpu_us()
        if self._cpuacct:
            return int(files.read(f"{self._cpuacct}/cpuacct.usage")) // 1000
        return process_tree.cpu_us(self.processes())

    def memory_bytes(self) -> int:
        if not self._memory:
            return process_tree.memory_bytes(self.processes())
        counted = files.numbers(f"{self._memory}/memory.stat")
        return counted["total_rss"] + counted.get("total_shmem", 0)

    def oom_kills(self) -> int:
        return files.numbers(f"{self._memory}/memory.oom_control").get("oom_kill", 0) if self._memory else 0

    def processes(self) -> list[int]:
        return files.processes(self._unified.folder if self._unified else self._folders[-1])

    def kill(self) -> None:
        if self._unified:
            self._unified.kill()
            return
        if self._pids:
            # From here on nobody in it can fork, so the next look finds all.
            self._written.pop(f"{self._pids}/pids.max", None)
            files.write(f"{self._pids}/pids.max", "0")
        files.kill(self._folders[-1], self._freezer)

    def remove(self) -> None:
        files.remove([*([self._behind] if self._behind else []), *self._folders])
        self._live.discard(self._name)

    def _limit_memory(self, limit: int) -> None:
        if not self._memory or limit == self._bytes:
            return
        names = ["memory.limit_in_bytes"]
        if self._layout.has_swap:
            # Both together may never be lower than memory alone: that decides which goes first.
            names.insert(1 if limit < self._bytes else 0, "memory.memsw.limit_in_bytes")
        for name in names:
            files.write(f"{self._memory}/{name}", str(limit))
        self._bytes = limit

    def _limit_cpu(self, cpu: float | None) -> None:
        quota = NO_QUOTA if cpu is None else files.quota_us(cpu)
        # Not every kernel can do this, so the files may not be there.
        if self._cpu and quota != self._quota and files.can_write(f"{self._cpu}/cpu.cfs_quota_us", str(quota)):
            self._quota = quota

    def _ensure(self, path: str, value: int) -> None:
        if self._written.get(path) != value:
            files.write(path, str(value))
            self._written[path] = value


class V1Cgroups:
    kind = "v1"

    def __init__(self, token: str, layout: Layout, mounts: list[str]) -> None:
        self.controllers = _held(layout)
        self._token = token
        self._layout = layout
        self._mounts = mounts
        # Only where something else tells who belongs to a group and what it used, its processes may be elsewhere.
        can_nest = layout.has_idle and "unified" in layout.bases
        self._behind = layout.folder("cpu", files.prefix_of(token) + BEHIND) if can_nest else None
        self._live: set[str] = {files.prefix_of(token) + BEHIND}

    def create(self, name: str) -> V1Group:
        group = V1Group(self._layout, files.prefix_of(self._token) + name, self._live, self._behind)
        group.make()
        return group

    def platform(self, pids: Iterable[int]) -> None:
        folder = self._layout.folder("cpu", files.platform_name(self._token))
        if folder is None:
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755)
        files.write(f"{folder}/cpu.shares", str(SHARES * files.PLATFORM_WEIGHT // files.NORMAL_WEIGHT))
        files.move(pids, folder)

    def sweep(self) -> int:
        return files.sweep(self._mounts, self._token, self._live)

    def close(self) -> None:
        if self._behind is not None:
            with contextlib.suppress(OSError):  # It may never have been made, or others still are in it.
                os.rmdir(self._behind)
        folder = self._layout.folder("cpu", files.platform_name(self._token))
        if folder is not None and os.path.isdir(folder):
            files.move(files.processes(folder), self._layout.bases["cpu"])
            files.remove([folder])


def open_v1(token: str, trees: list[files.Hierarchy]) -> V1Cgroups | None:
    """Try every hierarchy with a group and a process of ours; None where none of the limits can be had."""
    with files.Trial(token) as trial:
        layout = _find_layout(trees, trial)
    if not {"memory", "cpu", "pids"}.intersection(layout.bases):
        return None
    return V1Cgroups(token, layout, [tree.mount for tree in trees])


def _find_layout(trees: list[files.Hierarchy], trial: files.Trial) -> Layout:
    bases: dict[str, str] = {}
    has_idle = has_swap = can_kill = False
    for tree in trees:
        base = files.level(tree.folder)
        wanted = {"unified"} if tree.is_v2 else tree.controllers.intersection(TRIALS)
        if not wanted or (folder := trial.enter(base)) is None:
            continue
        if tree.is_v2:
            if files.can_write(f"{folder}/cgroup.freeze", "1", "0"):
                bases["unified"] = base
                can_kill = os.path.exists(f"{folder}/cgroup.kill")
            continue
        for name in wanted:
            file, *values = TRIALS[name]
            if files.can_write(f"{folder}/{file}", *values):
                bases[name] = base
        has_idle |= "cpu" in wanted and files.can_write(f"{folder}/cpu.idle", "1", "0")
        has_swap |= "memory" in wanted and files.can_write(
            f"{folder}/memory.memsw.limit_in_bytes", str(files.TRIAL_BYTES)
        )
    if "unified" in bases:  # It does what these do, and each further hierarchy costs every cell time.
        bases.pop("freezer", None)
        bases.pop("cpuacct", None)
    return Layout(bases, has_idle, has_swap, can_kill)


def _held(layout: Layout) -> frozenset[str]:
    held = {name for name in layout.bases if name != "unified"} | ({"idle"} if layout.has_idle else set())
    return frozenset(held | ({"freezer", "cpuacct"} if "unified" in layout.bases else set()))
