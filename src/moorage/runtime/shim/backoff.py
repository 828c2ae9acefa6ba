"""How long to wait before an app is started again: not at all the first time, then longer and longer."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_S = 60.0
WELL_S = 60.0  # An app that has run so long is well again.


class Backoff:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_at: float | None = None
        self._delay = 0.0

    def began(self) -> None:
        """Take note that the app runs."""
        self._began_at = self._now()

    def next(self) -> float:
        """Return how many seconds to wait, now that the app has ended or could not be started."""
        if self._began_at is not None and self._now() - self._began_at >= WELL_S:
            self._delay = 0.0
        self._began_at = None
        delay = self._delay
        self._delay = min(2 * delay, LONGEST_S) if delay else 1.0
        return delay
