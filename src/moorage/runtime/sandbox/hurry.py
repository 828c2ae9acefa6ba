"""Waiting less for the kernel when it matters.

Moving a process into a control group lets all processors pass a quiet point first, which takes about 7 ms after a
pause, and until then nobody on the machine can fork. The kernel can be asked to see to that at once instead. The switch
is the machine's, so it is on for a millisecond at a time, and only while a process is moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SWITCH = Path("/sys/kernel/rcu_expedited")


@contextlib.contextmanager
def hurry() -> Iterator[None]:
    """Have quiet points reached at once inside the block, where we may ask for it."""
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
