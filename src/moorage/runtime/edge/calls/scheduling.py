"""Scheduling class of the edge, by the rate of calls."""

from __future__ import annotations

import contextlib
import os

BATCH_RATE = 4000  # calls a second


class Scheduling:
    """Uses SCHED_BATCH while many calls arrive, so that the edge does not preempt instances at each reply.

    A process of this class does not preempt others when it wakes up, so beside other work each call waits for slices of
    that work, twice. At lower rates the edge is in the normal class. The thread that calls `update` is changed.
    """

    def __init__(self) -> None:
        self._policy = os.SCHED_OTHER
        self._calls, self._at = 0, 0.0

    def update(self, calls: int, now: float) -> None:
        """Choose the class by the number of calls since the last update."""
        rate = (calls - self._calls) / max(now - self._at, 1e-6)
        self._calls, self._at = calls, now
        policy = os.SCHED_BATCH if rate >= BATCH_RATE else os.SCHED_OTHER
        if policy == self._policy:
            return
        self._policy = policy
        with contextlib.suppress(OSError):
            # An unprivileged process cannot take this flag back, which the rescheduler may have set.
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_param(0))
