"""CPU shares of sessions.

With autogroup scheduling, which is usual on Linux, all processes of a session share one weight, and nice values and
scheduling policies count only within the session. A session has a nice value of its own. It has no effect in a cgroup
with a weight.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

LOWEST_PRIORITY = 19
_SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")


def have_weights() -> bool:
    """Whether the kernel gives each session a CPU weight."""
    try:
        return _SWITCH.read_text().strip() == "1"
    except OSError:
        return False


def set_session_nice(nice: int, pid: int | str = "self") -> None:
    """Set the nice value of the session of a process; without effect if the kernel has no autogroups."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
