"""Head start of the control process: it imports its modules while `moorage up` reads and checks the settings.

The imports take three quarters of its start. Without settings they have no effect, and if the settings are wrong, the
process ends with `moorage up`. Only the standard library is imported here.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from moorage.core.kit.records import dataclass

ARGV = [sys.executable, "-m", "moorage.platform.control_start"]
# With several malloc arenas, threads that allocate in turns use a third more memory under load, without a gain.
TUNING = {"MALLOC_ARENA_MAX": "1"}
PR_SET_PDEATHSIG = 1


@dataclass
class HeadStart:
    pid: int
    environment: int  # descriptor to write the environment to
    ready: int  # descriptor that reports readiness
    ready_there: int  # number of its other end in the control process


_started: HeadStart | None = None


def begin() -> None:
    """Start the control process; it waits for its environment."""
    global _started
    reading, environment = os.pipe()
    ready, writing = os.pipe()
    process = subprocess.Popen(
        [*ARGV, "--wait", str(reading)],
        env={**os.environ, **TUNING},
        stdin=subprocess.DEVNULL,
        pass_fds=(reading, writing),
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    os.close(reading)
    os.close(writing)
    process.returncode = 0  # The supervisor waits for it, not this object.
    _started = HeadStart(process.pid, environment, ready, writing)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def use(argv: list[str], env: Mapping[str, str]) -> dict[str, Any] | None:
    """Give the process its environment; return its PID and its readiness pipe.

    Returns None, and lets the process end, if it was not started or the plan has another command.
    """
    global _started
    started, _started = _started, None
    if started is None:
        return None
    with open(started.environment, "wb") as pipe:
        if argv != ARGV:
            return None
        variables = {
            **env,
            "MOORAGE_READY_FD": str(started.ready_there),
            "MOORAGE_SUPERVISOR": str(os.getpid()),
        }
        pipe.write(json.dumps(variables).encode())
    os.set_inheritable(started.ready, True)
    return {"pid": started.pid, "ready": started.ready}
