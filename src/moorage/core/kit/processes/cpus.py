"""The CPU that work of low priority leaves free, where no cgroup has a CPU weight.

A process with the lowest weight still keeps a CPU for up to 4 ms when it is its turn. If such processes run on all
CPUs, each request waits for them. So they use all CPUs but one. A user may take this back, unlike the idle class.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

_ALL = frozenset(os.sched_getaffinity(0))
_BACKGROUND = _ALL - {min(_ALL)}


def can_leave_one_free() -> bool:
    """Whether this process may use several CPUs."""
    return bool(_BACKGROUND)


def leave_one_free(threads: Iterable[int], *, on: bool = True) -> bool:
    """Let threads, and those that they start later, use all CPUs but one, or all again; return whether one changed."""
    cpus, has_changed = (_BACKGROUND if on else _ALL), False
    for thread in threads if _BACKGROUND else ():
        with contextlib.suppress(OSError):  # It may have ended.
            if os.sched_getaffinity(thread) != cpus:
                os.sched_setaffinity(thread, cpus)
                has_changed = True
    return has_changed
