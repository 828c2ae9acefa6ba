"""Short time slices (Linux 6.12 and later; elsewhere without effect).

A task that wakes up preempts one with a longer slice, where both have the normal policy.
"""

from __future__ import annotations

import contextlib
import os
import struct

from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.usage import process_tree

SLICE_NS = 100_000  # the shortest one that the kernel accepts
_ATTRIBUTES = struct.Struct("IIQiIQQQ")  # struct sched_attr: size, policy, flags, nice, priority, runtime, and others
_RESET_ON_FORK = 1  # Threads and processes that it starts get a slice of normal length.


def shorten(pid: int, *, is_inherited: bool = False) -> None:
    """Shorten the slices of all threads of a process that have the normal policy; also those of its children if set."""
    for thread in process_tree.threads(pid):
        with contextlib.suppress(OSError):  # It may have ended.
            if os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER:
                nice = os.getpriority(os.PRIO_PROCESS, thread)
                flags = 0 if is_inherited else _RESET_ON_FORK
                attributes = (_ATTRIBUTES.size, os.SCHED_OTHER, flags, nice, 0, SLICE_NS, 0, 0)
                syscalls.sched_setattr(thread, _ATTRIBUTES.pack(*attributes))
