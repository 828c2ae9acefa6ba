"""Short wake-ups on each CPU while function sandboxes compute in the idle class.

A task that wakes up preempts an idle-class task at once, but the scheduler (EEVDF, Linux 6.6 and later) may pick the
idle-class task again: the other one has used slightly more than its exact share. It then waits for the next scheduler
tick, up to 4 ms with 250 Hz. Each wake-up of this process makes the scheduler of one CPU pick again. Decision 76 has
the measurements.

Where no cgroup has a CPU weight, the process also gives the platform's processes short time slices (decision 89): one
that wakes up then preempts a task with a longer slice.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time

from moorage.runtime.sandbox.cgroups import files as cgroup_files
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.workers.cpu import slices

INTERVAL_S = 0.001
MAX_WAKEUPS_PER_S = 16_000  # of all CPUs: they share one interpreter
LINGER_S = 5.0  # An organization may leave the idle class and return to it.
REALTIME_PRIORITY = 1
SLICES_INTERVAL_S = 0.5  # Threads that a process starts have a slice of normal length.


class Rescheduler:
    """The process of the wake-ups, which exists while it is needed."""

    def __init__(self, supervisor: int | None = None) -> None:
        """With the PID of a supervisor, it and its children get short time slices."""
        self._arguments = [] if supervisor is None else [str(supervisor)]
        self.process: subprocess.Popen[bytes] | None = None
        self._needed_at = 0.0

    def update(self, is_needed: bool, now: float) -> None:
        if is_needed:
            self._needed_at = now
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "moorage.runtime.workers.cpu.rescheduler", *self._arguments],
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # With autogroup scheduling, a session has a share of its own.
                )
        elif self.process is not None and now - self._needed_at > LINGER_S:
            self.stop()

    def stop(self) -> None:
        """End the process: it exits when its standard input closes."""
        process, self.process = self.process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.poll()


def main() -> None:
    # The platform's cgroup has no realtime budget on kernels with realtime groups.
    with contextlib.suppress(OSError):
        cgroup_files.leave_platform()
    cpus = os.sched_getaffinity(0)
    interval_s = max(INTERVAL_S, len(cpus) / MAX_WAKEUPS_PER_S)
    for cpu in cpus:
        threading.Thread(target=wake_up, args=(cpu, interval_s), daemon=True).start()
    for supervisor in sys.argv[1:]:
        threading.Thread(target=shorten_slices, args=(int(supervisor),), daemon=True).start()
    sys.stdin.buffer.read()


def wake_up(cpu: int, interval_s: float) -> None:
    """Wake up on one CPU forever; with the realtime policy if this user may have it."""
    os.sched_setaffinity(0, {cpu})
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    while True:
        time.sleep(interval_s)


def shorten_slices(supervisor: int) -> None:
    """Keep the slices of the platform's processes and of this one short, forever."""
    while True:
        for pid in (os.getpid(), supervisor, *process_tree.children(supervisor)):
            slices.shorten(pid)
        time.sleep(SLICES_INTERVAL_S)


if __name__ == "__main__":
    main()
