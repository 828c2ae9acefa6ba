"""Groups without cgroups: lists of processes, signals and scheduling policies.

They limit neither memory nor the number of processes: only resource limits per process (rlimits) apply, and the
supervisor of a workload polls `memory_bytes`.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups import files, policies
from moorage.runtime.sandbox.usage import process_tree

KILL_TIMEOUT_S = 0.5
KILL_RETRY_INTERVAL_S = 0.001
MAX_SIGNAL_ROUNDS = 5  # A process forked during a round gets the signal in the next one.


class ProcessGroup:
    __slots__ = ("_cpu_us", "_roots")

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}
        self._cpu_us = 0

    def limit(self, *, memory_mb: int, pids: int, weight: int, cpu: float | None = None) -> None:
        """Limits are not supported."""

    def attach(self, pid: int) -> None:
        since = process_tree.started(pid)
        if since is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        self._roots[pid] = since

    def freeze(self) -> None:
        self._send_to_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send_to_all(signal.SIGCONT)

    def idle(self, on: bool) -> None:
        policies.set_idle(self.processes, on)

    def cpu_us(self) -> int:
        # The times of ended processes are lost; the returned total never decreases.
        self._cpu_us = max(self._cpu_us, process_tree.cpu_us(self.processes()))
        return self._cpu_us

    def memory_bytes(self) -> int:
        return process_tree.memory_bytes(self.processes())

    def oom_kills(self) -> int:
        return 0

    def processes(self) -> list[int]:
        roots = [pid for pid, since in self._roots.items() if process_tree.started(pid) == since]
        return [pid for pid in process_tree.with_descendants(roots) if process_tree.find_stat(pid)]

    def kill(self) -> None:
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while (pids := self.processes()) and time.monotonic() < deadline:
            # Process 1 of a PID namespace takes all others with it; without a namespace, processes may fork meanwhile.
            files.send(pids, signal.SIGKILL)
            time.sleep(KILL_RETRY_INTERVAL_S)

    def remove(self) -> None:
        self._roots.clear()

    def _send_to_all(self, number: signal.Signals) -> None:
        reached: set[int] = set()
        for _ in range(MAX_SIGNAL_ROUNDS):
            new = [pid for pid in self.processes() if pid not in reached]
            if not new:
                return
            files.send(new, number)
            reached.update(new)


class NoCgroups:
    kind = "none"

    def __init__(self) -> None:
        self.controllers = frozenset({"freezer", "cpuacct", "idle"})

    def create(self, name: str) -> ProcessGroup:
        return ProcessGroup()

    def platform(self, pids: Iterable[int]) -> None:
        """Weights are not supported."""

    def sweep(self) -> int:
        return 0

    def close(self) -> None:
        """No cgroup was created."""
