"""`python -m moorage.runtime.sandbox.heavy_child`: runs one task for each line of JSON on standard input.

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
import traceback
from queue import SimpleQueue
from typing import Any

from moorage.runtime.sandbox.cgroups import files as cgroup_files
from moorage.runtime.sandbox.heavy import Refused

NICE = 10


def main() -> None:
    step_back()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Nothing that the work prints passes for an answer.
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=read_until_closed, args=(lines,), daemon=True).start()
    while True:
        answers.write(json.dumps(answer(*json.loads(lines.get()))).encode() + b"\n")


def read_until_closed(lines: SimpleQueue[bytes]) -> None:
    """Queue the lines of standard input, and exit the process at its end."""
    while line := sys.stdin.buffer.readline():
        lines.put(line)
    os._exit(0)


def step_back() -> None:
    """Lower the priority of this process below that of the platform, of apps and of functions."""
    with contextlib.suppress(OSError):
        cgroup_files.leave_platform()
    os.nice(NICE)
    # Where the kernel groups tasks by session, nice values count within a session only.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(NICE))


def answer(work: str, *args: str) -> dict[str, Any]:
    module, _, name = work.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), name)(*args)}
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception:  # noqa: BLE001 - the platform logs it, with the request that asked for the work
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    main()
