"""Functions that `test_heavy.py` runs in another process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from moorage.core.kit.processes import sessions
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.heavy import Refused


def describe() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "nice": os.nice(0),
        "is idle class": _is_idle_class(),
        "secrets": [name for name in os.environ if name.startswith("MOORAGE_")],
    }


def refuse(why: str) -> None:
    raise Refused(why)


def crash() -> float:
    return 1 / 0


def wait_for(file: str, note: str = "") -> None:
    if note:
        Path(note).write_text(str(os.getpid()))
    while not os.path.exists(file):
        time.sleep(0.02)


def burn(cpu_s: str) -> dict[str, Any]:
    began = time.process_time()
    while time.process_time() - began < float(cpu_s):
        pass
    return describe()


def _is_idle_class() -> bool:
    """Whether the policy, the session, or the CPU cgroup or its parent is of the idle class."""
    if os.sched_getscheduler(0) == os.SCHED_IDLE or _has_lowest_session():
        return True
    folders = [tree.folder for tree in files.own_hierarchies() if "cpu" in tree.controllers]
    paths = [f"{each}/cpu.idle" for folder in folders for each in (folder, os.path.dirname(folder))]
    return any(files.words(path) == ["1"] for path in paths)


def _has_lowest_session() -> bool:
    session = Path("/proc/self/autogroup")
    return session.exists() and f"nice {sessions.LOWEST_PRIORITY}" in session.read_text()
