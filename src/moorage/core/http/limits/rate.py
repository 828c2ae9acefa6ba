"""Rate limit per token or address; a minute starts with its first request.

Only a valid credential is counted under its own key. Every other request counts under the client's address, so that a
client can neither open a new window with an invented token nor use up the window of another client.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

WINDOW_S = 60.0
MAX_KEYS = 100_000  # About 20 MB; beyond it the oldest window is dropped, so that a flood of addresses is bounded.
TOKEN_KEY_CHARS = 16  # length of a token's suffix that is its key
IPV6_PREFIX = 64  # A subscriber gets at least a /64, so single IPv6 addresses cannot be limited.


class _Window:
    __slots__ = ("count", "ends_at", "token")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.count = 0
        self.token: str | None = None


class RateLimiter:
    """Counts requests in memory, per process. A restart resets the counts."""

    def __init__(self, limit: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._monotonic = monotonic
        # All windows have the same length and new ones are appended, so they are ordered by their end.
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()  # Threads of units of work count, too.

    def count(self, key: str, token: str | None = None) -> tuple[bool, int, int]:
        """Count a request; return if allowed, requests left, seconds until the end.

        `token` is the valid credential that the key was derived from; `find_spent` compares it.
        """
        now = self._monotonic()
        with self._lock:
            window = self._windows.get(key)
            if window is None or window.ends_at <= now:
                window = self._open(key, now)
            window.count += 1
            window.token = token
            left = self.limit - window.count
        return (True, left, _seconds(now, window)) if left >= 0 else (False, 0, _seconds(now, window))

    def find_spent(self, token: str) -> int | None:
        """Return the seconds until a token over its limit may be used, else None.

        Compares the whole token, so that a guess with the same suffix does not match.
        """
        window = self._windows.get(token_key(token))
        if window is None or window.count < self.limit or window.token != token:
            return None
        now = self._monotonic()
        return _seconds(now, window) if window.ends_at > now else None

    def _open(self, key: str, now: float) -> _Window:
        windows = self._windows
        windows.pop(key, None)
        while windows:
            oldest = next(iter(windows))
            if windows[oldest].ends_at > now and len(windows) < MAX_KEYS:
                break
            del windows[oldest]
        window = windows[key] = _Window(now + WINDOW_S)
        return window


def _seconds(now: float, window: _Window) -> int:
    return max(int(-((now - window.ends_at) // 1)), 1)  # rounded up


def token_key(token: str) -> str:
    return f"t{token[-TOKEN_KEY_CHARS:]}"


def address_key(address: str) -> str:
    """Return the key of an address: all of IPv4, the /64 of IPv6."""
    if ":" not in address:
        return f"a{address}"
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return f"a{address}"
    if parsed.ipv4_mapped is not None:
        return f"a{parsed.ipv4_mapped}"
    return f"a{int(parsed) >> (128 - IPV6_PREFIX):x}/{IPV6_PREFIX}"
