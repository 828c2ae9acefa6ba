"""Memory: cells are admitted by what is really free, and ended when they pass their own limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from moorage.runtime.workers.sandbox import Cell, CellState

RESERVE_SHARE = 0.08  # of all memory stays free for the platform and the system
RESERVE_MB = 256
EVERY_S = 0.5
WATCH_S = 0.25  # how often cells are measured where the kernel does not limit them


class Memory:
    """Tells when memory runs low and when it no longer does."""

    def __init__(self, tell: Callable[[bool], None], *, watches_cells: bool) -> None:
        self._tell = tell
        self._watches_cells = watches_cells
        self.is_low = False
        total, _ = measure()
        self._reserve_mb = max(RESERVE_MB, int(total * RESERVE_SHARE))
        self._looked_at = 0.0
        self._watched_at = 0.0

    def look(self, cells: Iterable[Cell]) -> None:
        now = time.monotonic()
        if self._watches_cells and now - self._watched_at >= WATCH_S:
            self._watched_at = now
            self._watch(cells)
        if now - self._looked_at < EVERY_S:
            return
        self._looked_at = now
        _, available = measure()
        # What was low must be clearly better before it counts as good: cells that come back would make it low again.
        is_low = available < self._reserve_mb * (1.25 if self.is_low else 1)
        if is_low != self.is_low:
            self.is_low = is_low
            self._tell(is_low)

    def _watch(self, cells: Iterable[Cell]) -> None:
        cells = list(cells)
        # Forks are children of their template, so what is counted for it would be theirs.
        forked_off = {cell.template.cell for cell in cells if cell.template is not None}
        for cell in cells:
            is_running = cell.state is CellState.TAKEN and not cell.is_frozen and cell.group is not None
            if is_running and cell not in forked_off and cell.group.memory_bytes() > cell.memory_mb << 20:
                cell.oom = True
                cell.kill()


def measure() -> tuple[int, int]:
    """Return all memory and what is available of it, in MB; a control group's limit counts like the machine's."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            values[name] = int(rest.split()[0]) // 1024
    return values["MemTotal"], values["MemAvailable"]
