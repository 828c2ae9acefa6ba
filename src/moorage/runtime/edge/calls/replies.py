"""Memory for frames of instances that are not complete. The code at the far end is users', and may never finish one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from moorage.runtime.edge.calls.shares import Shares

if TYPE_CHECKING:
    from moorage.runtime.edge.calls.instance import Instance

MB = 2**20
LARGE_FRAME = 1 * MB  # needs a reservation
FRAME_S = 30.0  # A worker writes a frame at once, so one that is not complete after this time will never be.


class Replies:
    """Reserves room for large frames. An instance without room is not read until there is some."""

    def __init__(self, most: int = 192 * MB, least: int = 32 * MB, spare: int = 64 * MB) -> None:
        self._shares = Shares(most, least, spare)
        self._waiting: deque[tuple[Instance, int]] = deque()

    @property
    def total(self) -> int:
        return self._shares.total

    def reserve(self, instance: Instance, size: int, now: float) -> bool:
        """Reserve room for a frame of this size, now or later: then the instance is read on."""
        org = instance.function.org
        if not self._shares.fits(org, size):
            self._waiting.append((instance, size))
            return False
        self._shares.add(org, size)
        instance.reserved, instance.reserved_at = size, now
        return True

    def release(self, instance: Instance, now: float) -> None:
        """Forget what an instance had; safe to repeat."""
        if not instance.reserved:
            return
        self._shares.remove(instance.function.org, instance.reserved)
        instance.reserved = 0
        for _ in range(len(self._waiting)):
            waiting, size = self._waiting.popleft()
            if not waiting.is_over and self.reserve(waiting, size, now):
                waiting.transport.resume_reading()
