"""Groups of processes with limits: what the invoker puts each cell into, and what keeps one from starving the rest.

`find` gives the best that this machine lets us have: control groups of version 2 or 1, or plain lists of processes.
Which limits hold is found out by trying, and can be asked for: a name in `controllers` is one that really works.
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
    """The processes of one cell. Where a limit cannot be had, setting it does nothing."""

    def limit(self, *, memory_mb: int, pids: int, weight: int, cpu: float | None = None) -> None:
        """Set the limits; a weight of 100 is normal, and `cpu` is how many processors it may use, None for all.

        Safe to repeat: what is in force already costs nothing.
        """

    def attach(self, pid: int) -> None:
        """Move a process in, with all its threads. Raises ProcessLookupError when it has ended.

        The kernel lets all processors pass a quiet point before the first move after a pause: that takes about 10 ms.
        """

    def freeze(self) -> None:
        """Stop everybody in it; they are about to stop when this returns. They can still be killed."""

    def thaw(self) -> None: ...

    def idle(self, on: bool) -> None:
        """Let it run only when nobody beside it wants to, or with its weight again. Safe to repeat."""

    def cpu_us(self) -> int:
        """Return the processor time used so far by all that are or were in it."""

    def memory_bytes(self) -> int:
        """Return what it holds now, without the file cache that the kernel takes back when it needs to."""

    def oom_kills(self) -> int:
        """Return how often something in it was killed because it reached its limit of memory."""

    def processes(self) -> list[int]: ...

    def kill(self) -> None:
        """End everybody in it, frozen ones too: all are doomed when this returns, though some may take a moment.

        The group is to be removed afterwards, and not used again.
        """

    def remove(self) -> None:
        """Take the group away, waiting up to half a second for those about to end. Safe to repeat.

        Raises OSError (EBUSY) when somebody in it has not ended by then: try again later.
        """


class Cgroups(Protocol):
    @property
    def kind(self) -> str:
        """Return "v1", "v2" or "none"."""

    @property
    def controllers(self) -> frozenset[str]:
        """Return which of memory, cpu, pids, freezer, idle and cpuacct work here."""

    def create(self, name: str) -> Group:
        """Make a group, such as "cell-17". Raises OSError; nothing is left behind then."""

    def platform(self, pids: Iterable[int]) -> None:
        """Give these processes of the platform ten times the weight of a cell. Safe to repeat."""

    def sweep(self) -> int:
        """Kill and remove the groups of earlier runs with this token; return how many. Those made here stay."""

    def close(self) -> None:
        """Move the platform's processes back to where they came from, and remove their group."""


def find(token: str) -> Cgroups:
    """Return the groups this process may make; they are called moorage-<token>-<name>.

    With version 2, the processes beside this one move into the platform's group: only then can cells have limits.
    """
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (found := open_v2(token, tree)):
            return found
    return open_v1(token, trees) or NoCgroups()


def look() -> tuple[str, frozenset[str]]:
    """Return the kind and the controllers that `find` would give, without moving any process."""
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (controllers := could_open_v2(tree)):
            return "v2", controllers
    found = open_v1("look", trees) or NoCgroups()
    return found.kind, found.controllers
