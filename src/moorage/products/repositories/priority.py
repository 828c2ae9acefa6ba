"""Low priority for git: a nice value, and for transfers and gc a cgroup, or all CPUs but one.

A git process works for one tenant and may take a core and gigabytes for minutes, so the API, the gateway and apps have
priority. The limits are those of builds: a CPU and disk weight of 50, where the platform has 1000.
"""

from __future__ import annotations

import contextlib
import os
import time

from moorage.core.kit.processes import cpus
from moorage.core.kit.processes.sessions import set_session_nice
from moorage.runtime.sandbox.cgroups.groups import Cgroups, Group
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.usage import process_tree

NICE = 10
WEIGHT = 50
MAX_MEMORY_MB = 2048
MAX_PIDS = 64
DETECT_INTERVAL_S = 60.0  # The edge prepares cgroups v2 some time after the start.
_HEAVY = frozenset(("receive-pack", "upload-pack", "fetch", "checkout", "gc"))


def is_heavy(words: tuple[str, ...]) -> bool:
    """Return whether a git command handles many objects; others take milliseconds."""
    return not _HEAVY.isdisjoint(words) and "--advertise-refs" not in words


def be_nice(pid: int) -> None:
    """Lower the priority of a process group that has its own session."""
    with contextlib.suppress(OSError):  # It may have ended.
        os.setpriority(os.PRIO_PGRP, pid, NICE)
    set_session_nice(NICE, pid)


class GitGroups:
    """Cgroups of running git processes by process id."""

    def __init__(self) -> None:
        self._cgroups: Cgroups | None = None
        self._detected_at = -DETECT_INTERVAL_S
        self._groups: dict[int, Group] = {}
        self._unremoved: list[Group] = []

    def enter(self, pid: int) -> None:
        """Move a process and its children into a new cgroup; blocks for milliseconds.

        Without CPU weights, they use all CPUs but one.
        """
        cgroups = self._find()
        if cgroups is None or "cpu" not in cgroups.controllers:
            _leave_cpu_free(pid)
        if cgroups is None:
            return
        try:
            group = cgroups.create(f"{run_groups.name()}-{pid}")
        except OSError:
            return
        self._groups[pid] = group
        try:
            group.limit(memory_mb=MAX_MEMORY_MB, pids=MAX_PIDS, weight=WEIGHT)
            run_groups.give_disk_weight(group, WEIGHT)
            _move(group, pid)
        except OSError:  # The process has ended, or the kernel refuses; the nice value still applies.
            self.leave(pid)

    def leave(self, pid: int) -> None:
        """Kill the processes of a cgroup and remove it. Safe to repeat."""
        group = self._groups.pop(pid, None)
        self._unremoved += [group] if group is not None else []
        groups, self._unremoved = self._unremoved, []
        for each in groups:
            try:
                each.kill()
                each.remove()
            except OSError:  # A process has not ended yet; the next call tries again.
                self._unremoved.append(each)

    def has(self, pid: int) -> bool:
        return pid in self._groups

    def _find(self) -> Cgroups | None:
        now = time.monotonic()
        if self._cgroups is None and now - self._detected_at >= DETECT_INTERVAL_S:
            self._detected_at = now
            cgroups = run_groups.find()
            self._cgroups = cgroups if cgroups.kind != "none" else None
        return self._cgroups


def _leave_cpu_free(pid: int) -> None:
    """Let a process, and the children that it started before, use all CPUs but one."""
    while cpus.leave_one_free(process_tree.with_descendants([pid])):
        pass


def _move(group: Group, pid: int) -> None:
    """Attach a process, then the children that it started before."""
    group.attach(pid)
    moved = {pid}
    while late := [each for each in process_tree.with_descendants([pid]) if each not in moved]:
        for each in late:
            moved.add(each)
            with contextlib.suppress(ProcessLookupError):
                group.attach(each)


GROUPS = GitGroups()
