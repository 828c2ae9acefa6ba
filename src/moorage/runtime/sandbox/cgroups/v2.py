"""Cgroup v2: one hierarchy, in which only leaf cgroups may contain processes.

A cgroup can delegate controllers to its children only if it contains no process itself. So the platform's processes
move into a child cgroup, beside those of the workloads. See "No Internal Process Constraint" in the kernel's
cgroup-v2 documentation.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups import files, policies
from moorage.runtime.sandbox.usage import process_tree

DELEGATED = ("memory", "cpu", "pids")
UNIT_ENDINGS = (".service", ".scope")
IDLE_SINCE = (5, 15)  # kernel version with cpu.idle
NO_QUOTA = f"max {files.PERIOD_US}"
MAX_MOVES = 5  # A process forked while its cgroup is emptied stays there, so moving is repeated.


class Unified:
    """Operations of every v2 cgroup, even without controllers."""

    __slots__ = ("can_kill", "folder")

    def __init__(self, folder: str, *, can_kill: bool) -> None:
        self.folder = folder
        self.can_kill = can_kill

    def freeze(self, on: bool) -> None:
        files.write(f"{self.folder}/cgroup.freeze", "1" if on else "0")

    def kill(self) -> None:
        """Kill all processes, also frozen ones and those forked in the meantime."""
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
        if not self._is_idle:  # The kernel refuses a weight for an idle cgroup.
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
        if "cpu" not in self._cgroups.controllers:
            policies.set_idle(self.processes, on)
        if "idle" in self._cgroups.controllers:
            files.write(f"{self.folder}/cpu.idle", str(int(on)))
            self._written.pop("cpu.weight", None)  # Leaving the idle class resets the weight.
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
        stat = files.numbers(f"{self.folder}/memory.stat")
        return stat["anon"] + stat["shmem"]

    def oom_kills(self) -> int:
        if "memory" not in self._cgroups.controllers:
            return 0
        events = files.numbers(f"{self.folder}/memory.events")
        # All processes are killed together; `oom_kill` counts the first of them twice.
        return events.get("oom_group_kill") or events["oom_kill"]

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
        if files.can_write(f"{self.folder}/cpu.max", quota):  # Some kernels have no CPU quotas.
            self._quota = quota

    def _ensure(self, name: str, value: str) -> None:
        if self._written.get(name) != value:
            files.write(f"{self.folder}/{name}", value)
            self._written[name] = value


class V2Cgroups:
    kind = "v2"

    def __init__(self, token: str, mount: str, origin: str, base: str, controllers: frozenset[str]) -> None:
        self.controllers = controllers
        self.base = base
        self.live: set[str] = set()
        self.can_kill = False
        self._token = token
        self._mount = mount
        self._origin = origin  # the cgroup to which `close` moves the platform's processes back
        self._platform = f"{base}/{files.platform_name(token)}"
        self._has_swap = False

    def create(self, name: str) -> V2Group:
        group = V2Group(self, files.prefix_of(self._token) + name)
        files.make([group.folder])
        if self._has_swap:
            files.can_write(f"{group.folder}/memory.swap.max", "0")
        if "memory" in self.controllers:
            # A function is useless after one of its processes was killed, so kill all of them.
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
        """Restore the base cgroup, unless it still contains other moorage cgroups."""
        is_root = self.base == self._mount
        others = {name for name in os.listdir(self.base) if name.startswith("moorage-")}
        if others - {os.path.basename(self._platform)} and not is_root:
            return
        for name in () if is_root else DELEGATED:
            files.can_write(f"{self.base}/cgroup.subtree_control", f"-{name}")
        files.move(files.processes(self._platform), self._origin)
        files.remove([self._platform])
        if os.path.basename(self.base) == f"moorage-{self._token}":
            files.remove([self.base])

    def detect_controllers(self) -> None:
        """Set `controllers` to those that work for a trial cgroup and process."""
        working: set[str] = set()
        with files.TrialProcess(self._token) as trial:
            folder = trial.enter(self.base)
            if folder is not None:
                for name, (file, *values) in TRIALS.items():
                    if files.can_write(f"{folder}/{file}", *values):
                        working.add(name)
                working |= {"cpuacct"} if "usage_usec" in files.words(f"{folder}/cpu.stat") else set()
                self._has_swap = files.can_write(f"{folder}/memory.swap.max", "0")
                self.can_kill = files.can_write(f"{folder}/cgroup.kill", "1")
        self.controllers = frozenset(working)


TRIALS = {
    "memory": ("memory.max", str(files.TRIAL_BYTES)),
    "cpu": ("cpu.weight", "100"),
    "pids": ("pids.max", "64"),
    "idle": ("cpu.idle", "1", "0"),
    "freezer": ("cgroup.freeze", "1", "0"),
}


def open_v2(token: str, tree: files.Hierarchy) -> V2Cgroups | None:
    """Prepare the base cgroup; None, with nothing changed, if no limit works."""
    origin = files.parent_of_platform(tree.folder)
    base = origin
    if belongs_to_systemd(origin):
        base = f"{tree.mount}/moorage-{token}"
        if not _make_base(tree.mount, base):
            return None
    cgroups = V2Cgroups(token, tree.mount, origin, base, frozenset())
    if _delegate(base, f"{base}/{files.platform_name(token)}"):
        cgroups.detect_controllers()
    if not cgroups.controllers.intersection(DELEGATED):
        with contextlib.suppress(OSError):
            cgroups.close()
        return None
    return cgroups


def could_open_v2(tree: files.Hierarchy) -> frozenset[str]:
    """Return the controllers that `open_v2` would have, without moving any process."""
    origin = files.parent_of_platform(tree.folder)
    base = tree.mount if belongs_to_systemd(origin) else origin
    available = frozenset(files.words(f"{base}/cgroup.controllers")).intersection(DELEGATED)
    if not available or not os.access(f"{base}/cgroup.subtree_control", os.W_OK):
        return frozenset()
    cgroups = V2Cgroups("trial", tree.mount, tree.folder, base, frozenset())
    cgroups.detect_controllers()
    if not cgroups.controllers:
        return frozenset()
    idle = {"idle"} if "cpu" in available and files.kernel() >= IDLE_SINCE else set()
    return cgroups.controllers | available | idle


def belongs_to_systemd(folder: str) -> bool:
    """Whether systemd manages this cgroup and has not delegated it (Delegate=yes).

    An unprivileged user can use no other cgroup than its own, which may be delegated without the mark.
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
    """Create a base cgroup below the root, beside systemd's slices."""
    for name in DELEGATED:
        files.can_write(f"{mount}/cgroup.subtree_control", f"+{name}")
    try:
        os.makedirs(base, 0o755, exist_ok=True)
    except OSError:
        return False
    return True


def _delegate(base: str, platform: str) -> bool:
    """Delegate controllers to children of `base`, moving its processes if necessary.

    Memory comes first, and requires that the cgroup is empty: with processes in it, the kernel would delegate the other
    controllers, but then its children could only be threaded cgroups.
    """
    control = f"{base}/cgroup.subtree_control"
    available, delegated = files.words(f"{base}/cgroup.controllers"), files.words(control)
    is_root = not os.path.exists(f"{base}/cgroup.type")  # The root cgroup may have processes and delegate.
    for name in DELEGATED:
        for _ in range(MAX_MOVES if name in available and name not in delegated else 0):
            if not is_root and not _empty(base, platform):
                return False
            if files.can_write(control, f"+{name}"):
                break
    return bool(set(files.words(control)).intersection(DELEGATED))


def _empty(base: str, platform: str) -> bool:
    try:
        os.makedirs(platform, 0o755, exist_ok=True)
        files.move(files.processes(base), platform)
    except OSError:
        return False
    return True
