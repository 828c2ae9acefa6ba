"""Cgroups of runs, created without moving processes of the platform.

In cgroup v2, a cgroup can have child cgroups with controllers only if it contains no process. The invoker of functions
prepares this for the whole platform at its start. A run uses the cgroup as it is, and falls back to resource limits per
process (rlimits): emptying the cgroup here would move the platform's processes while they work.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time

from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.cgroups import v2 as cgroups_v2
from moorage.runtime.sandbox.cgroups.none import NoCgroups
from moorage.runtime.sandbox.cgroups.v1 import open_v1
from moorage.runtime.sandbox.cgroups.v2 import DELEGATED, V2Cgroups, V2Group
from moorage.runtime.sandbox.usage import process_tree

OWNER = "run"
TREE = f"moorage-{OWNER}-"
DAY_S = 86_400.0  # A folder may belong to a container that shares /tmp but has its own PIDs.
_LEFTOVER = re.compile(r"moorage-run-(?:run-|trial-)?(\d+)(?:-\w+)?")


def find() -> cgroups.Cgroups:
    """Return the best cgroups for runs, without moving other processes."""
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (v2 := open_v2(tree)):
            return v2
    return open_v1(OWNER, trees) or NoCgroups()


def have_cpu_weights() -> bool:
    """Whether cgroups of runs have a CPU weight."""
    return "cpu" in find().controllers


def name() -> str:
    return f"run-{os.getpid()}"


def give_disk_weight(group: cgroups.Group, weight: int) -> None:
    """Set the disk I/O weight of a run, if the io controller is available."""
    if isinstance(group, V2Group):
        files.can_write(f"{group.folder}/io.weight", str(weight))


def sweep() -> None:
    """Remove empty cgroups and folders of killed runs."""
    for tree in files.own_hierarchies():
        for folder in (files.parent_of_platform(tree.folder), f"{tree.mount}/moorage-{OWNER}"):
            _remove_leftovers(folder, older_than_s=0)
    _remove_leftovers(tempfile.gettempdir(), older_than_s=DAY_S)


def open_v2(tree: files.Hierarchy) -> V2Cgroups | None:
    """Return v2 cgroups for runs; None if they require moving a process."""
    base = files.parent_of_platform(tree.folder)
    if cgroups_v2.belongs_to_systemd(base):
        # This creates a cgroup beside systemd's slices, which contains no process.
        return cgroups_v2.open_v2(OWNER, tree)
    if not set(files.words(f"{base}/cgroup.subtree_control")).intersection(DELEGATED):
        return None
    v2 = V2Cgroups(OWNER, tree.mount, base, base, frozenset())
    v2.detect_controllers()
    return v2 if v2.controllers.intersection(DELEGATED) else None


def _remove_leftovers(folder: str, *, older_than_s: float) -> None:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = _LEFTOVER.fullmatch(name)
        if match is None or process_tree.find_stat(int(match[1])):
            continue
        with contextlib.suppress(OSError):  # A folder that is not empty is in use, or belongs to another program.
            if time.time() - os.stat(f"{folder}/{name}").st_mtime >= older_than_s:
                os.rmdir(f"{folder}/{name}")
