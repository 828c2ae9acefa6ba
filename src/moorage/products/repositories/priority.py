"""Low priority for git: a nice value for each process, and a cgroup for those that transfer or pack.

Git works for one tenant at a time and may take a core and gigabytes for minutes. The API, the gateway and apps run
before it. Limits are those of builds: a CPU and disk weight of 50, where the platform's own is 1000.
"""

from __future__ import annotations

import contextlib
import os
import time

from moorage.runtime.sandbox.cgroups.groups import Cgroups, Group
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.usage import process_tree

NICE = 10
WEIGHT = 50
MEMORY_MB = 2048
PIDS = 64
LOOK_AGAIN_S = 60.0  # The function gateway prepares cgroups of version 2 some time after the start.
_HEAVY = frozenset(("receive-pack", "upload-pack", "fetch", "checkout", "gc"))


def is_heavy(words: tuple[str, ...]) -> bool:
    """Return whether a git command reads or writes many objects; others end within milliseconds."""
    return not _HEAVY.isdisjoint(words) and "--advertise-refs" not in words


def be_nice(pid: int) -> None:
    """Lower the priority of a process group, which has a session of its own."""
    with contextlib.suppress(OSError):  # It may have ended.
        os.setpriority(os.PRIO_PGRP, pid, NICE)
    # Where the kernel groups tasks by session, nice values count within a session only.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as autogroup:
        autogroup.write(str(NICE))


class GitGroups:
    """Cgroups of running git processes, by process id. Where there are no cgroups, it does nothing."""

    def __init__(self) -> None:
        self._cgroups: Cgroups | None = None
        self._looked_at = -LOOK_AGAIN_S
        self._groups: dict[int, Group] = {}
        self._leaving: list[Group] = []

    def enter(self, pid: int) -> None:
        """Move a process and all that it started into a cgroup of its own. It blocks for some milliseconds."""
        cgroups = self._find()
        if cgroups is None:
            return
        try:
            group = cgroups.create(f"{run_groups.name()}-{pid}")
        except OSError:
            return
        self._groups[pid] = group
        try:
            group.limit(memory_mb=MEMORY_MB, pids=PIDS, weight=WEIGHT)
            run_groups.give_disk_weight(group, WEIGHT)
            _move(group, pid)
        except OSError:  # The process has ended, or the kernel does not allow it: the nice value is what remains.
            self.leave(pid)

    def leave(self, pid: int) -> None:
        """Kill what is left of a process and remove its cgroup. Safe to repeat."""
        group = self._groups.pop(pid, None)
        self._leaving += [group] if group is not None else []
        waiting, self._leaving = self._leaving, []
        for each in waiting:
            try:
                each.kill()
                each.remove()
            except OSError:  # A process in it has not ended yet: the next call tries again.
                self._leaving.append(each)

    def has(self, pid: int) -> bool:
        return pid in self._groups

    def _find(self) -> Cgroups | None:
        now = time.monotonic()
        if self._cgroups is None and now - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = now
            found = run_groups.find()
            self._cgroups = found if found.kind != "none" else None
        return self._cgroups


def _move(group: Group, pid: int) -> None:
    """Attach a process, then those that it started before it was attached."""
    group.attach(pid)
    moved = {pid}
    while late := [each for each in process_tree.with_descendants([pid]) if each not in moved]:
        for each in late:
            moved.add(each)
            with contextlib.suppress(ProcessLookupError):
                group.attach(each)


GROUPS = GitGroups()
