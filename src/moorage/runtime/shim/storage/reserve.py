"""Disk reserve: growing workloads become read-only before the disk is full.

Every shim decides for its own workload, without communication. The more a workload grew lately, the sooner it becomes
read-only: the largest writer is first, and the space that it frees spares the others. Growth is measured on the
volume's size and on the bytes that its processes wrote, which includes deleted and hidden files.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable

from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.shim.storage.volume import MB, free_bytes

WINDOW_S = 30.0
# Thresholds of free space, as multiples of the reserve:
NEAR = 4  # Below this, volumes are measured more often.
COUNTED = 16  # Above this, nothing is counted: no workload writes that much between two checks.
ROOMY = 1.1  # From this on, writing is allowed again.
# (growth as a share of the reserve, seconds for which the reserve must have been touched)
WAITS: tuple[tuple[float, float], ...] = ((1 / 4, 0.0), (1 / 16, 2.0), (1 / 64, 6.0))
HIDDEN_WAIT_S = 10.0  # added for bytes written without growth of the volume: the workload may have overwritten files


class DiskReserve:
    """Decides when one workload has to become read-only."""

    def __init__(self, folder: str, reserve_mb: int) -> None:
        self._folder = folder
        self._reserve = reserve_mb * MB
        self._used: deque[tuple[float, int]] = deque()
        self._wrote: deque[tuple[float, int]] = deque()
        self._counters: dict[int, int] = {}  # bytes written, by PID
        self._written = 0
        self._low_since: float | None = None
        self._began = time.monotonic()
        self.is_near = self.is_counted = False
        self.is_exhausted = False  # This workload may not write.

    @property
    def step(self) -> int | None:
        """Smallest relevant growth in bytes; None while there is enough free space."""
        return int(self._reserve * WAITS[-1][0]) if self.is_near else None

    def measure(self) -> None:
        """Update the thresholds from the free space of the disk."""
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

    def add_sample(self, used: int, measured_at: float) -> None:
        """Record the size of the volume."""
        if not self._used or self._used[-1][0] != measured_at:
            self._used.append((measured_at, used))
        _drop_old(self._used)

    def decide(self, pids: Iterable[int]) -> None:
        """Set `is_exhausted` from the growth of the volume and the bytes written."""
        now = time.monotonic()
        self._count_written(pids)
        if not self._wrote:  # Bytes written before the first sample count only if the run is new.
            self._wrote.append((now, 0 if now - self._began < WINDOW_S else self._written))
        self._wrote.append((now, self._written))
        _drop_old(self._wrote)
        if self._low_since is None:
            return
        low_s = now - self._low_since
        waits = (self._wait(_growth(self._used)), self._wait(_growth(self._wrote), HIDDEN_WAIT_S))
        self.is_exhausted |= any(wait is not None and low_s >= wait for wait in waits)

    def is_sprinting(self) -> bool:
        """Whether the reserve is touched and the volume grew by a large part of it lately."""
        return self._low_since is not None and _growth(self._used) >= WAITS[0][0] * self._reserve

    def restart(self) -> None:
        """Forget the growth of a run that has ended."""
        self._used.clear()
        self._wrote.clear()
        self._counters.clear()
        self._written, self._began = 0, time.monotonic()

    def _wait(self, growth: int, extra_s: float = 0.0) -> float | None:
        return next((wait + extra_s for share, wait in WAITS if growth >= share * self._reserve), None)

    def _count_written(self, pids: Iterable[int]) -> None:
        counters = {pid: _written_bytes(pid) for pid in pids}
        # A new process counts from its start, with the bytes that it wrote before it was first seen.
        self._written += sum(max(now - self._counters.get(pid, 0), 0) for pid, now in counters.items())
        self._counters = counters


def _drop_old(samples: deque[tuple[float, int]]) -> None:
    while samples and samples[0][0] < time.monotonic() - WINDOW_S:
        samples.popleft()


def _growth(samples: deque[tuple[float, int]]) -> int:
    return samples[-1][1] - min(value for _, value in samples) if samples else 0


def _written_bytes(pid: int) -> int:
    """Return the bytes that a process wrote to disk, without deleted dirty pages."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (line.split(": ") for line in read(f"/proc/{pid}/io").splitlines())
        counters = {name: int(value) for name, value in lines}
        return max(counters["write_bytes"] - counters["cancelled_write_bytes"], 0)
    return 0
