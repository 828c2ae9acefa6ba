"""Control groups of version 2: one hierarchy, in which processes may only stand in groups that have none below them.

Handing controllers on to the cells' groups is therefore possible only when our own group holds no process itself: ours
move into a group beside the cells', the platform's. See "No Internal Process Constraint" in the kernel's cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.usage import process_tree

HANDED_ON = ("memory", "cpu", "pids")
UNIT_ENDINGS = (".service", ".scope")
IDLE_SINCE = (5, 15)
NO_QUOTA = f"max {files.PERIOD_US}"
MOVES = 5  # A process that forks while its group is emptied leaves its child behind: then once more.


class Unified:
    """What every group of version 2 can do, whatever controllers it has: freeze, kill and count time."""

    __slots__ = ("can_kill", "folder")

    def __init__(self, folder: str, *, can_kill: bool) -> None:
        self.folder = folder
        self.can_kill = can_kill

    def freeze(self, on: bool) -> None:
        files.write(f"{self.folder}/cgroup.freeze", "1" if on else "0")

    def kill(self) -> None:
        """End everybody, frozen or not; those that are forked meanwhile as well."""
        if self.can_kill:
            files.write(f"{self.folder}/cgroup.kill", "1")
        else:  # before Linux 5.14
            files.kill(self.folder)

    def cpu_us(self) -> int:
        return files.numbers(f"{self.folder}/cpu.stat")["usage_usec"]


class V2Group:
    __slots__ = ("_cgroups", "_is_idle", "_quota", "_unified", "_weight", "_written", "folder")

    def __init__(self, cgroups: V2Cgroups, name: str) -> None:
        self._cgroups = cgroups
        self.folder = f"{cgroups.base}/{name}"
        self._unified = Unified(self.folder, can_kill=cgroups.can_kill)
        self._is_idle = False
        self._weight = files.NORMAL_WEIGHT
        self._quota = NO_QUOTA
        self._written: dict[str, str] = {}

    def limit(self, *, memory_mb: int, pids: int, weight: int, cpu: float | None = None) -> None:
        if "memory" in self._cgroups.controllers:
            self._ensure("memory.max", str(memory_mb * files.MB))
        if "pids" in self._cgroups.controllers:
            self._ensure("pids.max", str(pids))
        self._weight = weight
        if not self._is_idle:  # The kernel refuses a weight for an idle group.
            self._ensure_weight(weight)
        self._limit_cpu(cpu)

    def attach(self, pid: int) -> None:
        files.write(f"{self.folder}/cgroup.procs", str(pid))

    def freeze(self) -> None:
        self._unified.freeze(True)

    def thaw(self) -> None:
        self._unified.freeze(False)

    def idle(self, on: bool) -> None:
        if on == self._is_idle:
            return
        if "idle" in self._cgroups.controllers:
            files.write(f"{self.folder}/cpu.idle", str(int(on)))
            self._written.pop("cpu.weight", None)  # Leaving idleness gives every group the same weight.
        self._is_idle = on
        if not on:
            self._ensure_weight(self._weight)
        elif "idle" not in self._cgroups.controllers:
            self._ensure_weight(1)

    def cpu_us(self) -> int:
        return self._unified.cpu_us()

    def memory_bytes(self) -> int:
        if "memory" not in self._cgroups.controllers:
            return process_tree.memory_bytes(self.processes())
        counted = files.numbers(f"{self.folder}/memory.stat")
        return counted["anon"] + counted["shmem"]

    def oom_kills(self) -> int:
        if "memory" not in self._cgroups.controllers:
            return 0
        counted = files.numbers(f"{self.folder}/memory.events")
        # The processes are killed together, and the first of them is counted twice.
        return counted.get("oom_group_kill") or counted["oom_kill"]

    def processes(self) -> list[int]:
        return files.processes(self.folder)

    def kill(self) -> None:
        self._unified.kill()

    def remove(self) -> None:
        files.remove([self.folder])
        self._cgroups.live.discard(os.path.basename(self.folder))

    def _ensure_weight(self, weight: int) -> None:
        if "cpu" in self._cgroups.controllers:
            self._ensure("cpu.weight", str(min(max(weight, 1), 10_000)))

    def _limit_cpu(self, cpu: float | None) -> None:
        quota = NO_QUOTA if cpu is None else f"{files.quota_us(cpu)} {files.PERIOD_US}"
        if "cpu" not in self._cgroups.controllers or quota == self._quota:
            return
        if files.can_write(f"{self.folder}/cpu.max", quota):  # Not every kernel can do this.
            self._quota = quota

    def _ensure(self, name: str, value: str) -> None:
        if self._written.get(name) != value:
            files.write(f"{self.folder}/{name}", value)
            self._written[name] = value


class V2Cgroups:
    kind = "v2"

    def __init__(self, token: str, mount: str, home: str, base: str, controllers: frozenset[str]) -> None:
        self.controllers = controllers
        self.base = base
        self.live: set[str] = set()
        self.can_kill = False
        self._token = token
        self._mount = mount
        self._home = home
        self._platform = f"{base}/{files.platform_name(token)}"
        self._has_swap = False

    def create(self, name: str) -> V2Group:
        group = V2Group(self, files.prefix_of(self._token) + name)
        files.make([group.folder])
        if self._has_swap:
            files.can_write(f"{group.folder}/memory.swap.max", "0")
        if "memory" in self.controllers:
            # What is left of a function after one of its processes was killed is of no use to anybody.
            files.can_write(f"{group.folder}/memory.oom.group", "1")
        self.live.add(os.path.basename(group.folder))
        return group

    def platform(self, pids: Iterable[int]) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._platform, 0o755)
        if "cpu" in self.controllers:
            files.write(f"{self._platform}/cpu.weight", str(files.PLATFORM_WEIGHT))
        files.move(pids, self._platform)

    def sweep(self) -> int:
        return files.sweep([self._mount], self._token, self.live)

    def close(self) -> None:
        """Give our group back as it was found. Cells that still live, and other platforms, keep it from that."""
        is_top = self.base == self._mount
        others = {name for name in os.listdir(self.base) if name.startswith("moorage-")}
        if others - {os.path.basename(self._platform)} and not is_top:
            return
        for name in () if is_top else HANDED_ON:
            files.can_write(f"{self.base}/cgroup.subtree_control", f"-{name}")
        files.move(files.processes(self._platform), self._home)
        files.remove([self._platform])
        if os.path.basename(self.base) == f"moorage-{self._token}":
            files.remove([self.base])

    def try_out(self) -> None:
        """Find out by a group and a process of ours which controllers really work."""
        works: set[str] = set()
        with files.Trial(self._token) as trial:
            folder = trial.enter(self.base)
            if folder is not None:
                for name, (file, *values) in TRIALS.items():
                    if files.can_write(f"{folder}/{file}", *values):
                        works.add(name)
                works |= {"cpuacct"} if "usage_usec" in files.words(f"{folder}/cpu.stat") else set()
                self._has_swap = files.can_write(f"{folder}/memory.swap.max", "0")
                self.can_kill = files.can_write(f"{folder}/cgroup.kill", "1")
        self.controllers = frozenset(works)


TRIALS = {
    "memory": ("memory.max", str(files.TRIAL_BYTES)),
    "cpu": ("cpu.weight", "100"),
    "pids": ("pids.max", "64"),
    "idle": ("cpu.idle", "1", "0"),
    "freezer": ("cgroup.freeze", "1", "0"),
}


def open_v2(token: str, tree: files.Hierarchy) -> V2Cgroups | None:
    """Make our group ready to have cells below it; None where that is not possible, and nothing has changed then."""
    home = files.level(tree.folder)
    base = home
    if belongs_to_systemd(home):
        base = f"{tree.mount}/moorage-{token}"
        if not _make_base(tree.mount, base):
            return None
    found = V2Cgroups(token, tree.mount, home, base, frozenset())
    if _hand_on(base, f"{base}/{files.platform_name(token)}"):
        found.try_out()
    if not found.controllers.intersection(HANDED_ON):
        with contextlib.suppress(OSError):
            found.close()
        return None
    return found


def could_open_v2(tree: files.Hierarchy) -> frozenset[str]:
    """Say which controllers `open_v2` would find, without moving anybody: for those that only want to know."""
    home = files.level(tree.folder)
    base = tree.mount if belongs_to_systemd(home) else home
    handed = frozenset(files.words(f"{base}/cgroup.controllers")).intersection(HANDED_ON)
    if not handed or not os.access(f"{base}/cgroup.subtree_control", os.W_OK):
        return frozenset()
    found = V2Cgroups("trial", tree.mount, tree.folder, base, frozenset())
    found.try_out()
    if not found.controllers:
        return frozenset()
    idle = {"idle"} if "cpu" in handed and files.kernel() >= IDLE_SINCE else set()
    return found.controllers | handed | idle


def belongs_to_systemd(folder: str) -> bool:
    """Tell whether systemd keeps this group for itself; it marks those it leaves to us (Delegate=yes).

    An ordinary user has no other place, and may have been given this one.
    """
    if not folder.endswith(UNIT_ENDINGS) or os.geteuid() != 0:
        return False
    return not any(_has_mark(folder, name) for name in ("trusted.delegate", "user.delegate"))


def _has_mark(folder: str, name: str) -> bool:
    try:
        return os.getxattr(folder, name) == b"1"
    except OSError:
        return False


def _make_base(mount: str, base: str) -> bool:
    """Make a group of our own at the top, beside systemd's slices."""
    for name in HANDED_ON:
        files.can_write(f"{mount}/cgroup.subtree_control", f"+{name}")
    try:
        os.makedirs(base, 0o755, exist_ok=True)
    except OSError:
        return False
    return True


def _hand_on(base: str, platform: str) -> bool:
    """Let groups below `base` have controllers; the processes in it move to the platform's group, if they have to.

    Memory goes first, and nobody may be in the group then: the kernel lets a group with processes hand on the others,
    but such a group can have threads below it only.
    """
    control = f"{base}/cgroup.subtree_control"
    available, handed_on = files.words(f"{base}/cgroup.controllers"), files.words(control)
    is_top = not os.path.exists(f"{base}/cgroup.type")  # The topmost group may do both.
    for name in HANDED_ON:
        for _ in range(MOVES if name in available and name not in handed_on else 0):
            if not is_top and not _empty(base, platform):
                return False
            if files.can_write(control, f"+{name}"):
                break
    return bool(set(files.words(control)).intersection(HANDED_ON))


def _empty(base: str, platform: str) -> bool:
    try:
        os.makedirs(platform, 0o755, exist_ok=True)
        files.move(files.processes(base), platform)
    except OSError:
        return False
    return True
