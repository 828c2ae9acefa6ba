"""Kills of every kind of process that a platform runs, each found by what the kernel knows of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import tree_of
from tests.platform.running import Running

CHILDREN = ("control", "invoker", "edge", "gateway")
SHIMS = {"app shim": "shims", "database shim": "databases", "cronjob shim": "cronjobs"}


def argv_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def is_in_own_namespace(pid: int) -> bool:
    """Tell whether a process is in a PID namespace of its own, as every cell and sandbox is."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return len(line.split()) > 2
    return False


def shims_in(data: Path, folder: str) -> list[int]:
    """Return the shims of one kind. A process that a shim has just forked looks like it, and is left out."""
    found = []
    for pid in all_pids():
        argv = argv_of(pid)
        if (
            "moorage.runtime.shim" in argv
            and Path(argv[argv.index("moorage.runtime.shim") + 1].strip()).parent == data / "run" / folder
        ):
            found.append(pid)
    return [pid for pid in found if parent_of(pid) not in found]


def sandboxed_below(pids: list[int]) -> list[int]:
    """Return the processes of users' code below some processes."""
    return [each for pid in pids for each in tree_of(pid) if each != pid and is_in_own_namespace(each)]


@dataclass
class Killer:
    """Kills one process of a kind at a time, and counts them."""

    data: Path
    chance: random.Random
    killed: Counter[str] = field(default_factory=Counter)

    def kinds(self) -> dict[str, Callable[[Running], list[int]]]:
        found: dict[str, Callable[[Running], list[int]]] = {
            name: lambda running, name=name: _child(running, name)  # type: ignore[misc]
            for name in CHILDREN
        }
        for name, folder in SHIMS.items():
            found[name] = lambda running, folder=folder: shims_in(self.data, folder)  # type: ignore[misc]
        return {
            **found,
            "zygote": self._zygotes,
            "cell": lambda running: sandboxed_below(_child(running, "invoker")),
            "network daemon": lambda running: _below(running, "invoker", "moorage.runtime.sandbox.network.supervisor"),
            "app": lambda running: sandboxed_below(shims_in(self.data, "shims")),
            "database server": lambda running: sandboxed_below(shims_in(self.data, "databases")),
        }

    def _zygotes(self, running: Running) -> list[int]:
        found = [pid for parent in _child(running, "invoker") for pid in tree_of(parent)]
        return [
            pid for pid in found if any("zygote.py" in word for word in argv_of(pid)) and not is_in_own_namespace(pid)
        ]

    def kill(self, kind: str, running: Running) -> bool:
        """Kill a process of a kind; False where there is none at the moment."""
        found = self.kinds()[kind](running)
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.chance.choice(found), signal.SIGKILL)
            self.killed[kind] += 1
            return True
        return False


def _child(running: Running, name: str) -> list[int]:
    return [pid for child, pid in running.children().items() if child == name]


def _below(running: Running, child: str, module: str) -> list[int]:
    return [pid for parent in _child(running, child) for pid in tree_of(parent) if module in argv_of(pid)]
