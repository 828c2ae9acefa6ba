"""Expedited RCU grace periods while a process moves into a cgroup.

The move waits for an RCU grace period, about 7 ms after an idle phase, and no process on the machine can fork during
it. An expedited grace period is much shorter. The switch affects the whole machine, so it is on for about a millisecond
at a time, only while a process is moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SWITCH = Path("/sys/kernel/rcu_expedited")


@contextlib.contextmanager
def expedited_rcu() -> Iterator[None]:
    """Expedite RCU grace periods inside the block, if this process may."""
    try:
        before = SWITCH.read_text()
        SWITCH.write_text("1")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            SWITCH.write_text(before)
