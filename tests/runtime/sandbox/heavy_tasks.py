"""Functions that `test_heavy.py` runs in another process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from moorage.runtime.sandbox.heavy import Refused


def describe() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "nice": os.nice(0),
        "secrets": [name for name in os.environ if name.startswith("MOORAGE_")],
    }


def refuse(why: str) -> None:
    raise Refused(why)


def crash() -> float:
    return 1 / 0


def wait_for(file: str, note: str = "") -> None:
    if note:
        Path(note).write_text(str(os.getpid()))
    while not os.path.exists(file):
        time.sleep(0.02)
