"""CPU time of work that may be endless, such as a regular expression on a hostile text.

Only the CPU time counts, because other processes may keep this one waiting. The work runs in a process of its own: a
regular expression holds the interpreter lock, so nothing else in its process could end it.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from types import FrameType


class _Exceeded(Exception):
    """The work took longer than its limit."""


def limit_process(cpu_s: int) -> None:
    """Let the kernel end this process after a CPU time, should a signal not interrupt the work."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))


def cpu_time(work: Callable[[], object], limit_s: float) -> float:
    """Return the CPU time of some work, at most the limit. Only for the main thread of a process."""
    is_running = False

    def interrupt(_: int, __: FrameType | None) -> None:
        if is_running:
            raise _Exceeded

    before = signal.signal(signal.SIGPROF, interrupt)
    began = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        is_running = True
        work()
        is_running = False
    except _Exceeded:
        return limit_s
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return min(time.process_time() - began, limit_s)
