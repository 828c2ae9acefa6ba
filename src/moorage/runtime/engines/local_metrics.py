"""Measurements of the processes and volumes of this machine's workloads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.engines.ports import ReplicaState, Usage
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.sandbox.usage.open_files import UnnamedFiles

VOLUME = "/data"  # mount point in a sandbox


class LocalMetrics:
    def __init__(self, states: Callable[[], Mapping[str, ReplicaState]], volumes: Path, *, is_sandboxed: bool) -> None:
        self._states = states
        self._volumes = volumes
        self._is_sandboxed = is_sandboxed
        self._unnamed: dict[str, tuple[str, UnnamedFiles]] = {}  # by key: the volume, and its deleted open files

    async def usage(self, key: str) -> Usage | None:
        state = self._states().get(key)
        if state is None or state.phase != "running" or state.app_pid is None:
            return None
        return await asyncio.to_thread(_usage_of, state.app_pid)

    def volume_bytes(self, key: str, volume: str) -> int:
        state, folder = self._states().get(key), str(self._volumes / volume)
        if key not in self._unnamed or self._unnamed[key][0] != volume:
            inside = VOLUME if self._is_sandboxed else folder
            self._unnamed[key] = (volume, UnnamedFiles({inside: folder}, is_boxed=self._is_sandboxed))
        unnamed = self._unnamed[key][1]
        pids = process_tree.with_descendants([state.app_pid] if state and state.app_pid else [])
        return unnamed.used_bytes(pids) + folders.used_bytes(folder, unnamed.note)

    def forget(self, key: str) -> None:
        self._unnamed.pop(key, None)


def _usage_of(pid: int) -> Usage:
    ticks = process_tree.started(pid)
    age_us = None
    if ticks is not None:
        age_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - ticks * process_tree.TICK_US
    return Usage(process_tree.memory_bytes(process_tree.with_descendants([pid])), age_us and age_us // 1000)
