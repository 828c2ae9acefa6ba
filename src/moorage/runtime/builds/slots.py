"""Limit of concurrent builds on this machine; a slot is a locked file.

All processes share the slots. The number of a slot determines the Unix user of its build. A dead process frees its
slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from moorage.settings import Settings

POLL_INTERVAL_S = 0.1


class Slots:
    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder("run")
        self._is_fixed = settings.builds > 0
        self._limit = settings.builds or os.cpu_count() or 1
        self._memory_mb = settings.build_memory_mb
        self._queue = asyncio.Lock()  # first come, first served
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def one(self, say: Callable[[str], None]) -> AsyncIterator[int]:
        """Wait for a slot and hold it; a build that has to wait logs that."""
        handle, number = await self._acquire(say)
        try:
            yield number
        finally:
            os.close(handle)

    async def _acquire(self, say: Callable[[str], None]) -> tuple[int, int]:
        self._waiting += 1
        try:
            is_announced = self._queue.locked()
            if is_announced:
                say(f"waiting: all build slots are in use, {_ahead(self._waiting - 1)}")
            async with self._queue:
                while (slot := self._find()) is None:
                    if not is_announced:
                        say("waiting: all build slots are in use, this one is next")
                    is_announced = True
                    await asyncio.sleep(POLL_INTERVAL_S)
                return slot
        finally:
            self._waiting -= 1

    def _find(self) -> tuple[int, int] | None:
        """Return handle and number of a free slot; beyond the first only if memory allows."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(self._limit):
            if number and not self._is_fixed and available_mb() < self._memory_mb:
                return None
            handle = os.open(self._folder / f"build-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            return handle, number
        return None


def _ahead(count: int) -> str:
    return "1 build is ahead" if count == 1 else f"{count} builds are ahead"


def available_mb() -> int:
    """Return the memory that is available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0
