"""How many builds run at once on this machine. A place is a locked file, so that several processes share them.

The number of a place gives its build a user of its own. A process that dies leaves its places free.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from moorage.settings import Settings

RETRY_S = 0.1


class Slots:
    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder("run")
        self._is_fixed = settings.builds > 0
        self._most = settings.builds or os.cpu_count() or 1
        self._memory_mb = settings.build_memory_mb
        self._turn = asyncio.Lock()  # Whoever came first looks for a place first.
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def one(self, say: Callable[[str], None]) -> AsyncIterator[int]:
        """Hold a place, once there is one; whoever has to wait is told."""
        handle, number = await self._get(say)
        try:
            yield number
        finally:
            os.close(handle)

    async def _get(self, say: Callable[[str], None]) -> tuple[int, int]:
        self._waiting += 1
        try:
            has_said = self._turn.locked()
            if has_said:
                say(f"waiting: all places for builds are taken, {_ahead(self._waiting - 1)}")
            async with self._turn:
                while (found := self._find()) is None:
                    if not has_said:
                        say("waiting: all places for builds are taken, this one is next")
                    has_said = True
                    await asyncio.sleep(RETRY_S)
                return found
        finally:
            self._waiting -= 1

    def _find(self) -> tuple[int, int] | None:
        """Return an open, locked place and its number. The first is for anybody; others only while memory allows."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(self._most):
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
    """Return the memory that the kernel can give out without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0
