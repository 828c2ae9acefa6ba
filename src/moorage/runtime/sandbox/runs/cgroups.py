"""The control groups of runs: made beside those of the platform, without ever moving one of its processes.

With version 2, a group can have limited ones below it only once nobody stands in it. Whoever keeps the cells brings
that about for the whole platform when it starts; a run takes what it finds, and has the limits of single processes
(rlimits) where it finds nothing. Emptying the group itself would move the platform about while it works.
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
from moorage.runtime.sandbox.cgroups.v2 import HANDED_ON, V2Cgroups, V2Group
from moorage.runtime.sandbox.usage import process_tree

OWNER = "run"
TREE = f"moorage-{OWNER}-"
DAY_S = 86_400.0  # A folder may be one of a container that shares /tmp and has its own process numbers.
_LEFT = re.compile(r"moorage-run-(?:run-|trial-)?(\d+)(?:-\w+)?")


def find() -> cgroups.Cgroups:
    """Return the groups that a run can have here; nobody but the run itself is moved."""
    trees = files.own_hierarchies()
    for tree in trees:
        if tree.is_v2 and (found := open_v2(tree)):
            return found
    return open_v1(OWNER, trees) or NoCgroups()


def name() -> str:
    return f"run-{os.getpid()}"


def give_disk_weight(group: cgroups.Group, weight: int) -> None:
    """Let a run wait for the disk while others use it, where the kernel hands that on."""
    if isinstance(group, V2Group):
        files.can_write(f"{group.folder}/io.weight", str(weight))


def sweep() -> None:
    """Remove the empty groups and folders of runs that were killed; those of living ones are left alone."""
    for tree in files.own_hierarchies():
        for folder in (files.level(tree.folder), f"{tree.mount}/moorage-{OWNER}"):
            _remove_left(folder, older_than_s=0)
    _remove_left(tempfile.gettempdir(), older_than_s=DAY_S)


def open_v2(tree: files.Hierarchy) -> V2Cgroups | None:
    """Return what a run can have of version 2; None where a process would have to be moved for that."""
    base = files.level(tree.folder)
    if cgroups_v2.belongs_to_systemd(base):
        # A group of our own, beside systemd's slices: nobody stands in it.
        return cgroups_v2.open_v2(OWNER, tree)
    if not set(files.words(f"{base}/cgroup.subtree_control")).intersection(HANDED_ON):
        return None
    found = V2Cgroups(OWNER, tree.mount, base, base, frozenset())
    found.try_out()
    return found if found.controllers.intersection(HANDED_ON) else None


def _remove_left(folder: str, *, older_than_s: float) -> None:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = _LEFT.fullmatch(name)
        if match is None or process_tree.find_stat(int(match[1])):
            continue
        with contextlib.suppress(OSError):  # Whatever is not empty is in use, or not ours.
            if time.time() - os.stat(f"{folder}/{name}").st_mtime >= older_than_s:
                os.rmdir(f"{folder}/{name}")
