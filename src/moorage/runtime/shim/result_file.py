"""Result file of a one-off run, which survives the control process."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from moorage.runtime.shim.run import RunExit

TIMEOUT_GRACE_S = 10.0  # between SIGTERM and SIGKILL of a run that took longer than its timeout
STOPPED = "it was stopped"


def now_ms() -> int:
    return int(time.time() * 1000)


def took_longer(timeout_s: int) -> str:
    number, unit = (timeout_s // 60, "minute") if timeout_s % 60 == 0 else (timeout_s, "second")
    return f"it took longer than {number} {unit}{'' if number == 1 else 's'}"


def write_result(path: Path, run_exit: RunExit, began_ms: int) -> None:
    """Write the file durably; on a disk error only connected clients get the result."""
    result = {"exitCode": run_exit.code, "reason": run_exit.reason, "startedMs": began_ms, "endedMs": now_ms()}
    new = path.with_name(f"{path.name}.new")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("w") as file:
            json.dump(result, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        _sync(path.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
