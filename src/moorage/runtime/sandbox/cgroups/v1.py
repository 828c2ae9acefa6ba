"""Cgroup v1: a group has a folder in the hierarchy of each controller.

Most machines with v1 also mount v2 without controllers. v2 is better at freezing, killing and CPU accounting (frozen
processes can be killed, and a whole cgroup at once), so a group has a folder there too.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterable, Mapping

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox.cgroups import files, policies
from moorage.runtime.sandbox.cgroups.v2 import Unified
from moorage.runtime.sandbox.usage import process_tree

SHARES = 1024  # of a group with normal weight
IDLE_PARENT = "behind"  # name of the cgroup that contains all idle groups
HEAVY_WORK = "heavy"  # name of the idle group of low-priority processes
MAX_MOVES = 10  # A process forked during a move stays in the old cgroup, so moving is repeated.
NO_QUOTA = -1
MIN_SHARES, MAX_SHARES = 2, 262_144

TRIALS = {
    "memory": ("memory.limit_in_bytes", str(files.TRIAL_BYTES)),
    "cpu": ("cpu.shares", str(SHARES)),
    "pids": ("pids.max", "64"),
    "freezer": ("freezer.state", "THAWED"),
    "cpuacct": ("cpuacct.usage", "0"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Parent folders of groups by controller ("unified" is v2), and kernel features."""

    bases: Mapping[str, str]
    has_idle: bool
    has_swap: bool  # memory and swap can be limited together
    can_kill: bool

    def folder(self, controller: str, name: str) -> str | None:
        base = self.bases.get(controller)
        return None if base is None else f"{base}/{name}"


class V1Group:
    __slots__ = (
        *("_bytes", "_cpu", "_cpuacct", "_folders", "_freezer", "_idle_folder", "_is_idle", "_layout", "_live"),
        *("_memory", "_name", "_pids", "_quota", "_shares", "_unified", "_written"),
    )

    def __init__(self, layout: Layout, name: str, live: set[str], idle_parent: str | None = None) -> None:
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
        self._idle_folder = f"{idle_parent}/{name}" if idle_parent else None  # the group's CPU cgroup while idle
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
        self._shares = min(max(weight * SHARES // files.NORMAL_WEIGHT, MIN_SHARES), MAX_SHARES)
        if self._cpu and not self._is_idle:  # The kernel refuses shares for an idle cgroup.
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
        if on == self._is_idle:
            return
        if not self._cpu:
            policies.set_idle(self.processes, on)
        elif self._idle_folder:
            source, target = (self._cpu, self._idle_folder) if on else (self._idle_folder, self._cpu)
            self._move_cpu_cgroup(source, target)
        elif self._layout.has_idle:
            files.write(f"{self._cpu}/cpu.idle", str(int(on)))
            self._written.pop(f"{self._cpu}/cpu.shares", None)  # Leaving the idle class resets the shares.
        self._is_idle = on
        if self._cpu and (not on or not self._layout.has_idle):
            self._ensure(f"{self._cpu}/cpu.shares", MIN_SHARES if on else self._shares)

    def _move_cpu_cgroup(self, source: str, target: str) -> None:
        """Move the processes to another CPU cgroup.

        All idle groups have one idle parent. As siblings of the other groups, each of them would get a time slice of
        its own once in a while, for which a process that wakes up has to wait.
        """
        if target == self._idle_folder:
            parent = os.path.dirname(target)
            os.makedirs(target, 0o755, exist_ok=True)
            files.write(f"{parent}/cpu.idle", "1")
            files.write(f"{target}/cpu.shares", str(self._shares))
        for _ in range(MAX_MOVES):
            if not (pids := files.processes(source)):
                break
            files.move(pids, target)
        if source == self._idle_folder:
            with contextlib.suppress(OSError):  # `remove` tries again.
                os.rmdir(source)

    def cpu_us(self) -> int:
        if self._unified:
            return self._unified.cpu_us()
        if self._cpuacct:
            return int(files.read(f"{self._cpuacct}/cpuacct.usage")) // 1000
        return process_tree.cpu_us(self.processes())

    def memory_bytes(self) -> int:
        if not self._memory:
            return process_tree.memory_bytes(self.processes())
        stat = files.numbers(f"{self._memory}/memory.stat")
        return stat["total_rss"] + stat.get("total_shmem", 0)

    def oom_kills(self) -> int:
        return files.numbers(f"{self._memory}/memory.oom_control").get("oom_kill", 0) if self._memory else 0

    def processes(self) -> list[int]:
        return files.processes(self._unified.folder if self._unified else self._folders[-1])

    def kill(self) -> None:
        if self._unified:
            self._unified.kill()
            return
        if self._pids:
            # No process in the group can fork from here on, so listing finds all of them.
            self._written.pop(f"{self._pids}/pids.max", None)
            files.write(f"{self._pids}/pids.max", "0")
        files.kill(self._folders[-1], self._freezer)

    def remove(self) -> None:
        files.remove([*([self._idle_folder] if self._idle_folder else []), *self._folders])
        self._live.discard(self._name)

    def _limit_memory(self, limit: int) -> None:
        if not self._memory or limit == self._bytes:
            return
        names = ["memory.limit_in_bytes"]
        if self._layout.has_swap:
            # The limit of memory and swap must never be below that of memory, which decides the order.
            names.insert(1 if limit < self._bytes else 0, "memory.memsw.limit_in_bytes")
        for name in names:
            files.write(f"{self._memory}/{name}", str(limit))
        self._bytes = limit

    def _limit_cpu(self, cpu: float | None) -> None:
        quota = NO_QUOTA if cpu is None else files.quota_us(cpu)
        # Kernels without CFS bandwidth control do not have the file.
        if self._cpu and quota != self._quota and files.can_write(f"{self._cpu}/cpu.cfs_quota_us", str(quota)):
            self._quota = quota

    def _ensure(self, path: str, value: int) -> None:
        if self._written.get(path) != value:
            files.write(path, str(value))
            self._written[path] = value


class V1Cgroups:
    kind = "v1"

    def __init__(self, token: str, layout: Layout, mounts: list[str]) -> None:
        self.controllers = _controllers(layout)
        self._token = token
        self._layout = layout
        self._mounts = mounts
        # Processes may leave the group's CPU cgroup only if v2 lists them and accounts for their CPU time.
        can_move = layout.has_idle and "unified" in layout.bases
        self._idle_parent = layout.folder("cpu", files.prefix_of(token) + IDLE_PARENT) if can_move else None
        self._live: set[str] = {files.prefix_of(token) + IDLE_PARENT}

    def create(self, name: str) -> V1Group:
        group = V1Group(self._layout, files.prefix_of(self._token) + name, self._live, self._idle_parent)
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
        if self._idle_parent is not None:
            for path in (f"{self._idle_parent}/{HEAVY_WORK}", self._idle_parent):
                with contextlib.suppress(OSError):  # It may not exist, or may still contain processes or groups.
                    os.rmdir(path)
        folder = self._layout.folder("cpu", files.platform_name(self._token))
        if folder is not None and os.path.isdir(folder):
            files.move(files.processes(folder), self._layout.bases["cpu"])
            files.remove([folder])


def enter_idle_parent() -> bool:
    """Move this process from the platform's CPU cgroup to that of its idle groups; False if that is not possible.

    Only one idle entity is beside the other cgroups then. With two or more, each gets a time slice once in a while, and
    a process that wakes up waits for the next tick of the scheduler.
    """
    for tree in files.own_hierarchies():
        platform = files.PLATFORM.fullmatch(os.path.basename(tree.folder))
        if tree.is_v2 or "cpu" not in tree.controllers or platform is None:
            continue
        parent = f"{os.path.dirname(tree.folder)}/{platform[1]}{IDLE_PARENT}"
        with contextlib.suppress(OSError):
            os.makedirs(f"{parent}/{HEAVY_WORK}", 0o755, exist_ok=True)
            files.write(f"{parent}/cpu.idle", "1")
            files.write(f"{parent}/{HEAVY_WORK}/cgroup.procs", str(os.getpid()))
            return True
    return False


def open_v1(token: str, trees: list[files.Hierarchy]) -> V1Cgroups | None:
    """Test every hierarchy with a trial cgroup and process; None if no limit works."""
    with files.TrialProcess(token) as trial:
        layout = _find_layout(trees, trial)
    if not {"memory", "cpu", "pids"}.intersection(layout.bases):
        return None
    return V1Cgroups(token, layout, [tree.mount for tree in trees])


def _find_layout(trees: list[files.Hierarchy], trial: files.TrialProcess) -> Layout:
    bases: dict[str, str] = {}
    has_idle = has_swap = can_kill = False
    for tree in trees:
        base = files.parent_of_platform(tree.folder)
        candidates = {"unified"} if tree.is_v2 else tree.controllers.intersection(TRIALS)
        if not candidates or (folder := trial.enter(base)) is None:
            continue
        if tree.is_v2:
            if files.can_write(f"{folder}/cgroup.freeze", "1", "0"):
                bases["unified"] = base
                can_kill = os.path.exists(f"{folder}/cgroup.kill")
            continue
        for name in candidates:
            file, *values = TRIALS[name]
            if files.can_write(f"{folder}/{file}", *values):
                bases[name] = base
        has_idle |= "cpu" in candidates and files.can_write(f"{folder}/cpu.idle", "1", "0")
        has_swap |= "memory" in candidates and files.can_write(
            f"{folder}/memory.memsw.limit_in_bytes", str(files.TRIAL_BYTES)
        )
    if "unified" in bases:  # v2 replaces these, and each further hierarchy makes every group slower.
        bases.pop("freezer", None)
        bases.pop("cpuacct", None)
    return Layout(bases, has_idle, has_swap, can_kill)


def _controllers(layout: Layout) -> frozenset[str]:
    names = {name for name in layout.bases if name != "unified"} | ({"idle"} if layout.has_idle else set())
    return frozenset(names | ({"freezer", "cpuacct"} if "unified" in layout.bases else set()))
