"""Process groups with resource limits, one for each function sandbox, app or run.

`find` returns the best implementation of this machine: cgroup v2, cgroup v1, or plain lists of processes. It tests
which limits work: a name in `controllers` is a limit that is really enforced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups.none import NoCgroups
from moorage.runtime.sandbox.cgroups.v1 import V1Cgroups, open_v1
from moorage.runtime.sandbox.cgroups.v2 import V2Cgroups, could_open_v2, open_v2

__all__ = ["Cgroups", "Group", "NoCgroups", "V1Cgroups", "V2Cgroups", "find", "look"]


class Group(Protocol):
    """The processes of one workload. Unsupported limits have no effect."""

    def limit(self, *, memory_mb: int, pids: int, weight: int, cpu: float | None = None) -> None:
        """Set the limits: weight (100 is normal), and `cpu` in cores, None for all.

        Safe to repeat: unchanged values are not written.
        """

    def attach(self, pid: int) -> None:
        """Move a process with its threads; raises ProcessLookupError if it has ended.

        The first move after an idle phase waits for an RCU grace period, about 10 ms.
        """

    def freeze(self) -> None:
        """Suspend all processes, which may run a moment longer and can be killed."""

    def thaw(self) -> None: ...

    def idle(self, on: bool) -> None:
        """Put the group into the idle class, or back to its weight. Safe to repeat."""

    def cpu_us(self) -> int:
        """Return the CPU time of all processes that are or were in the group."""

    def memory_bytes(self) -> int:
        """Return the memory in use, without the page cache."""

    def oom_kills(self) -> int:
        """Return the number of kills at the memory limit."""

    def processes(self) -> list[int]: ...

    def kill(self) -> None:
        """Kill all processes, also frozen ones; some may exit a moment later.

        Afterwards the group may only be removed.
        """

    def remove(self) -> None:
        """Remove the group; wait up to 0.5 s for exiting processes. Safe to repeat.

        Raises OSError (EBUSY) if a process remains: try again later.
        """


class Cgroups(Protocol):
    @property
    def kind(self) -> str:
        """Return "v1", "v2" or "none"."""

    @property
    def controllers(self) -> frozenset[str]:
        """Return the working ones of memory, cpu, pids, freezer, idle and cpuacct."""

    def create(self, name: str) -> Group:
        """Create a group, such as "cell-17". Raises OSError and leaves nothing behind."""

    def platform(self, pids: Iterable[int]) -> None:
        """Give these platform processes ten times the normal weight. Safe to repeat."""

    def sweep(self) -> int:
        """Kill and remove groups of earlier processes with this token; return the number."""

    def close(self) -> None:
        """Move the platform's processes back, and remove its cgroup."""


def find(token: str) -> Cgroups:
    """Return the groups that this process can create, named moorage-<token>-<name>.

    In cgroup v2, the processes of this cgroup move into the platform's group: only then can its siblings have limits.
    """
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (v2 := open_v2(token, tree)):
            return v2
    return open_v1(token, trees) or NoCgroups()


def look() -> tuple[str, frozenset[str]]:
    """Return the kind and the controllers of `find`, without moving any process."""
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (controllers := could_open_v2(tree)):
            return "v2", controllers
    cgroups = open_v1("look", trees) or NoCgroups()
    return cgroups.kind, cgroups.controllers
