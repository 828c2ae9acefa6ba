"""Memory budget of incomplete frames, which users' code may never finish."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from moorage.runtime.edge.calls.function import AnyFunction
from moorage.runtime.edge.calls.shares import Shares

MB = 2**20
LARGE_FRAME_BYTES = 1 * MB  # A larger frame needs a reservation.
FRAME_TIMEOUT_S = 30.0  # A worker writes a frame in one go, so an incomplete one will not be completed after this time.


class FrameReader(Protocol):
    """An instance, as far as its incomplete frame needs it."""

    reserved: int
    reserved_at: float
    is_closed: bool

    @property
    def function(self) -> AnyFunction: ...

    def resume(self) -> None: ...


class Replies:
    """Reserves memory for large frames; pauses instances until theirs fits."""

    def __init__(self, limit: int = 192 * MB, guaranteed: int = 32 * MB, extra: int = 64 * MB) -> None:
        self._shares = Shares(limit, guaranteed, extra)
        self._waiting: deque[tuple[FrameReader, int]] = deque()

    @property
    def total(self) -> int:
        return self._shares.total

    def reserve(self, instance: FrameReader, size: int, now: float) -> bool:
        """Reserve memory for a frame; on False the instance is queued and resumed later."""
        org = instance.function.org
        if not self._shares.fits(org, size):
            self._waiting.append((instance, size))
            return False
        self._shares.add(org, size)
        instance.reserved, instance.reserved_at = size, now
        return True

    def release(self, instance: FrameReader, now: float) -> None:
        """Release the reservation of an instance; safe to repeat."""
        if not instance.reserved:
            return
        self._shares.remove(instance.function.org, instance.reserved)
        instance.reserved = 0
        for _ in range(len(self._waiting)):
            waiting, size = self._waiting.popleft()
            if not waiting.is_closed and self.reserve(waiting, size, now):
                waiting.resume()
