"""How many requests a key may make: a window of a minute that starts with the key's first request."""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_S = 60.0
SWEEP_AT = 10_000  # Keys held before windows that have ended are swept.


class RateLimiter:
    """Counts in memory, per process. A restart forgives; several API processes each count their own share."""

    def __init__(self, limit: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._monotonic = monotonic
        self._windows: dict[str, list[float]] = {}  # key: [end of the window, requests in it]
        self._sweep_at = SWEEP_AT

    def count(self, key: str) -> tuple[bool, int, int]:
        """Count one request. Return whether it may go on, how many are left, and seconds until the window ends."""
        now = self._monotonic()
        window = self._windows.get(key)
        if window is None or window[0] <= now:
            if len(self._windows) >= self._sweep_at:
                self._sweep(now)
            window = self._windows[key] = [now + WINDOW_S, 0]
        window[1] += 1
        left = self.limit - int(window[1])
        reset = max(int(-((now - window[0]) // 1)), 1)  # rounded up
        return (True, left, reset) if left >= 0 else (False, 0, reset)

    def _sweep(self, now: float) -> None:
        self._windows = {key: window for key, window in self._windows.items() if window[0] > now}
        self._sweep_at = max(SWEEP_AT, 2 * len(self._windows))


def key_of(token: str | None, address: str) -> str:
    """Return what a request is counted under: the end of its token, else where it comes from."""
    return f"t{token[-16:]}" if token else f"a{address}"
