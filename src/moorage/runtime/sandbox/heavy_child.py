"""`python -m moorage.runtime.sandbox.heavy_child [--idle-class]`: one task per line of JSON.

The process exits when its standard input closes, also in the middle of its work: the control process has stopped or
was killed then, and the next one removes the folders that the work was writing to.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import Any

from moorage.core.kit.processes import cpus
from moorage.core.kit.processes.sessions import LOWEST_PRIORITY, set_session_nice
from moorage.runtime.sandbox.cgroups import files as cgroup_files
from moorage.runtime.sandbox.cgroups import policies
from moorage.runtime.sandbox.cgroups import v1 as cgroups_v1
from moorage.runtime.sandbox.heavy import IDLE_CLASS_OPTION, Refused
from moorage.runtime.sandbox.runs import cgroups as run_cgroups

NICE = 10


def main() -> None:
    lower_priority(in_idle_class=IDLE_CLASS_OPTION in sys.argv)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Printed text of the work must not mix with the answers.
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=read_until_closed, args=(lines,), daemon=True).start()
    while True:
        answers.write(json.dumps(answer(*json.loads(lines.get()))).encode() + b"\n")


def read_until_closed(lines: SimpleQueue[bytes]) -> None:
    """Queue the lines of standard input, and exit the process at its end."""
    while line := sys.stdin.buffer.readline():
        lines.put(line)
    os._exit(0)


def lower_priority(*, in_idle_class: bool = False) -> None:
    """Lower the CPU priority below that of the platform, apps and functions; in the idle class, to CPU time left over.

    In the idle class of a cgroup the policy stays normal: there it would compare with sandboxes of the same cgroup.
    """
    if not run_cgroups.have_cpu_weights():
        cpus.leave_one_free([0])
        if in_idle_class:
            policies.set_idle(lambda: [os.getpid()], True)
    elif in_idle_class and not cgroups_v1.enter_idle_parent():
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        cgroup_files.leave_platform()
    os.nice(NICE)
    set_session_nice(LOWEST_PRIORITY if in_idle_class else NICE)


def answer(work: str, *args: str) -> dict[str, Any]:
    began = time.process_time()
    return _outcome(work, args) | {"cpu_s": time.process_time() - began}


def _outcome(work: str, args: tuple[str, ...]) -> dict[str, Any]:
    module, _, name = work.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), name)(*args)}
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception:  # noqa: BLE001 - the platform logs it with the request
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    main()
