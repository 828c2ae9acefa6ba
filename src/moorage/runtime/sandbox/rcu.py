"""Expedited RCU grace periods while a process moves into a cgroup.

The move waits for an RCU grace period, about 7 ms after an idle phase, and no process on the machine can fork during
it. An expedited grace period is much shorter. The switch affects the whole machine, so it is on for about a millisecond
at a time, only while a process is moved.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

SWITCH = Path("/sys/kernel/rcu_expedited")


@contextlib.contextmanager
def expedited_rcu() -> Iterator[None]:
    """Expedite RCU grace periods inside the block, if this process may.

    One process at a time: a second one would read the switched value as the one to restore, and leave it on.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            switch = stack.enter_context(SWITCH.open("rb"))
            fcntl.flock(switch, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before = switch.read()
            SWITCH.write_bytes(b"1")
            stack.callback(_restore, before)
        yield


def _restore(before: bytes) -> None:
    with contextlib.suppress(OSError):
        SWITCH.write_bytes(before)
