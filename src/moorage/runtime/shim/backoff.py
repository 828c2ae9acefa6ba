"""Restart backoff of an app: no delay, then 1 s, doubling up to a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_DELAY_S = 60.0
RESET_AFTER_S = 60.0  # A run of this length resets the delay.


class Backoff:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_at: float | None = None
        self._delay = 0.0

    def began(self) -> None:
        self._began_at = self._now()

    def next(self) -> float:
        """Return the seconds to wait after the app ended or failed to start."""
        if self._began_at is not None and self._now() - self._began_at >= RESET_AFTER_S:
            self._delay = 0.0
        self._began_at = None
        delay = self._delay
        self._delay = min(2 * delay, MAX_DELAY_S) if delay else 1.0
        return delay
