"""What becomes of a run that happens once: a file that says how it ended, for whoever was away when it did."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from moorage.runtime.shim.run import Ended

GRACE_S = 10.0  # for a run whose time is up
STOPPED = "it was stopped"


def now_ms() -> int:
    return int(time.time() * 1000)


def took_longer(timeout_s: int) -> str:
    number, unit = (timeout_s // 60, "minute") if timeout_s % 60 == 0 else (timeout_s, "second")
    return f"it took longer than {number} {unit}{'' if number == 1 else 's'}"


def write_result(path: Path, ended: Ended, began_ms: int) -> None:
    """Put the file there whole, and for good; where the disk does not take it, those who listen still hear of it."""
    told = {"exitCode": ended.code, "reason": ended.reason, "startedMs": began_ms, "endedMs": now_ms()}
    new = path.with_name(f"{path.name}.new")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("w") as file:
            json.dump(told, file)
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
