"""Result files of one-off runs, which the local engine keeps until a run is stopped.

The shim writes the file when the run ends, so the exit code survives a restart of the control process.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from moorage.runtime.engines.ports import ReplicaState

SUFFIX = ".json"


class RunResults:
    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self._logs = logs

    def path(self, key: str) -> Path:
        return self._folder / f"{key}{SUFFIX}"

    def find(self, key: str, last: ReplicaState | None = None) -> ReplicaState | None:
        """Return the final state of a run; `last` with an unknown exit if there is no result."""
        for path in (self.path(key), *self._former_paths(key)):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                result = json.loads(path.read_bytes())
                return replace(
                    last or ReplicaState(key, 0, 0, 0, "stopped"),
                    phase="stopped",
                    app_pid=None,
                    exit_code=result["exitCode"],
                    reason=result["reason"],
                    ended_ms=int(result["endedMs"]),
                )
        return replace(last, phase="stopped", app_pid=None) if last is not None else None

    def _former_paths(self, key: str) -> list[Path]:
        """Return the result files of cronjob runs that an earlier version started: beside their logs."""
        number = key.removeprefix("c")
        return list(self._logs.glob(f"cronjobs/*/{number}/result.json")) if number.isdecimal() else []

    def remove(self, key: str) -> None:
        self.path(key).unlink(missing_ok=True)

    def remove_all_but(self, keys: Collection[str]) -> None:
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path.name.removesuffix(SUFFIX) not in keys:
                path.unlink(missing_ok=True)
