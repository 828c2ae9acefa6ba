"""The machine's disk reserve, as a shim keeps it: workloads that grow stop writing before the others have no room.

Every shim decides for its own workload, without a word to the others. The more a workload has grown lately, the sooner
it stops: the largest writer goes first, and the space that it gives back spares the others. Growth is what the volume
holds more, or what its processes have written: that finds files which nobody can see.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.shim.storage.volume import MB, free_bytes

WINDOW_S = 30.0
NEAR = 4  # With less than so many reserves free, volumes are looked at more often.
COUNTED = 16  # With more than so many reserves free, nothing is counted: no workload uses that up between two looks.
ROOMY = 1.1  # Writing is allowed again with so many reserves free.
# How long a workload waits, by the part of the reserve that it has grown by.
WAITS: tuple[tuple[float, float], ...] = ((1 / 4, 0.0), (1 / 16, 2.0), (1 / 64, 6.0))
HIDDEN_WAIT_S = 10.0  # more, where it has written much and does not seem to hold it: it may have overwritten files


class Reserve:
    """Tells one workload when to stop writing."""

    def __init__(self, folder: str, reserve_mb: int) -> None:
        self._folder = folder
        self._reserve = reserve_mb * MB
        self._used: deque[tuple[float, int]] = deque()
        self._wrote: deque[tuple[float, int]] = deque()
        self._counters: dict[int, int] = {}  # by process
        self._written = 0
        self._low_since: float | None = None
        self._began = time.monotonic()
        self.is_near = self.is_counted = False
        self.is_exhausted = False  # This workload may not write.

    @property
    def step(self) -> int | None:
        """Return the growth that matters; None while there is plenty of room."""
        return int(self._reserve * WAITS[-1][0]) if self.is_near else None

    def measure(self) -> None:
        """Look at the free space."""
        if not self._reserve:
            return
        free, now = free_bytes(self._folder), time.monotonic()
        self.is_near, self.is_counted = free < NEAR * self._reserve, free < COUNTED * self._reserve
        if not self.is_counted:
            self._wrote.clear()
            self._counters.clear()
        if free >= ROOMY * self._reserve:
            self.is_exhausted = False
        if free >= self._reserve:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = now

    def note(self, used: int, looked_at: float) -> None:
        """Take note of what the workload held at a moment."""
        if not self._used or self._used[-1][0] != looked_at:
            self._used.append((looked_at, used))
        _drop_old(self._used)

    def look(self, pids: Iterable[int]) -> None:
        """Decide whether the workload has to stop, by what was noted and what its processes have written."""
        now = time.monotonic()
        self._count_written(pids)
        if not self._wrote:  # What the processes wrote before counts only if they are new.
            self._wrote.append((now, 0 if now - self._began < WINDOW_S else self._written))
        self._wrote.append((now, self._written))
        _drop_old(self._wrote)
        if self._low_since is None:
            return
        low_s = now - self._low_since
        waits = (self._wait(_growth(self._used)), self._wait(_growth(self._wrote), HIDDEN_WAIT_S))
        self.is_exhausted |= any(wait is not None and low_s >= wait for wait in waits)

    def is_sprinting(self) -> bool:
        """Tell whether the reserve is touched, and the volume has grown by much of it lately."""
        return self._low_since is not None and _growth(self._used) >= WAITS[0][0] * self._reserve

    def restart(self) -> None:
        """Forget the growth of a run that has ended."""
        self._used.clear()
        self._wrote.clear()
        self._counters.clear()
        self._written, self._began = 0, time.monotonic()

    def _wait(self, growth: int, more_s: float = 0.0) -> float | None:
        return next((wait + more_s for share, wait in WAITS if growth >= share * self._reserve), None)

    def _count_written(self, pids: Iterable[int]) -> None:
        counters = {pid: _written_bytes(pid) for pid in pids}
        # What a new process has written before it was first seen counts from its start.
        self._written += sum(max(now - self._counters.get(pid, 0), 0) for pid, now in counters.items())
        self._counters = counters


def _drop_old(samples: deque[tuple[float, int]]) -> None:
    while samples and samples[0][0] < time.monotonic() - WINDOW_S:
        samples.popleft()


def _growth(samples: deque[tuple[float, int]]) -> int:
    return samples[-1][1] - min(value for _, value in samples) if samples else 0


def _written_bytes(pid: int) -> int:
    """Return what a process has sent to the disk so far, without what was deleted before it got there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (line.split(": ") for line in read(f"/proc/{pid}/io").splitlines())
        counted = {name: int(value) for name, value in lines}
        return max(counted["write_bytes"] - counted["cancelled_write_bytes"], 0)
    return 0
