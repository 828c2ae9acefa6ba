"""Memory pressure of the machine, and memory limits where no cgroup enforces them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.workers.sandbox import FunctionSandbox, SandboxState

RESERVE_SHARE = 0.08  # of all memory stays free for the platform and the system
RESERVE_MB = 256
CHECK_INTERVAL_S = 0.5
SANDBOX_CHECK_INTERVAL_S = 0.25


class MemoryMonitor:
    """Reports low memory; with `watches_sandboxes` also enforces their limits."""

    def __init__(self, on_change: Callable[[bool], None], *, watches_sandboxes: bool) -> None:
        self._on_change = on_change
        self._watches_sandboxes = watches_sandboxes
        self.is_low = False
        total, _ = read_meminfo()
        self._reserve_mb = max(RESERVE_MB, int(total * RESERVE_SHARE))
        self._checked_at = 0.0
        self._sandboxes_checked_at = 0.0

    def check(self, sandboxes: Iterable[FunctionSandbox]) -> None:
        now = time.monotonic()
        if self._watches_sandboxes and now - self._sandboxes_checked_at >= SANDBOX_CHECK_INTERVAL_S:
            self._sandboxes_checked_at = now
            self._kill_oversized(sandboxes)
        if now - self._checked_at < CHECK_INTERVAL_S:
            return
        self._checked_at = now
        _, available = read_meminfo()
        # Hysteresis: the sandboxes that start after a recovery would make memory low again.
        is_low = available < self._reserve_mb * (1.25 if self.is_low else 1)
        if is_low != self.is_low:
            self.is_low = is_low
            self._on_change(is_low)

    def _kill_oversized(self, sandboxes: Iterable[FunctionSandbox]) -> None:
        sandboxes = list(sandboxes)
        # Forks are child processes of their snapshot, so its measured memory includes theirs.
        bases = {sandbox.snapshot.sandbox for sandbox in sandboxes if sandbox.snapshot is not None}
        for sandbox in sandboxes:
            is_running = sandbox.state is SandboxState.TAKEN and not sandbox.is_frozen and sandbox.group is not None
            if not is_running or sandbox in bases:
                continue
            if process_tree.use_more_than(sandbox.group.processes(), sandbox.memory_mb << 20):
                sandbox.oom = True
                sandbox.kill()


def read_meminfo() -> tuple[int, int]:
    """Return total and available memory of the machine in MB."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            values[name] = int(rest.split()[0]) // 1024
    return values["MemTotal"], values["MemAvailable"]


def oom_kills(group: Any) -> int:
    try:
        return int(group.oom_kills())
    except OSError:
        return 0
