"""`python -m moorage.runtime.sandbox.heavy_child`: one task per line of JSON.

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
    lower_priority()
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


def lower_priority() -> None:
    """Lower the CPU priority below that of the platform, apps and functions."""
    with contextlib.suppress(OSError):
        cgroup_files.leave_platform()
    os.nice(NICE)
    # With autogroup scheduling, nice values count only within a session.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(NICE))


def answer(work: str, *args: str) -> dict[str, Any]:
    module, _, name = work.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), name)(*args)}
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception:  # noqa: BLE001 - the platform logs it with the request
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    main()
