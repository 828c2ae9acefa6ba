"""Rate limit: requests of a token or an address in a window of a minute that starts with its first request.

Only a credential that the gate found valid is counted under its own key. Everything else counts under the client's
address, so that a client cannot open a fresh window by inventing a token, nor use up the window of another client.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

WINDOW_S = 60.0
MOST_KEYS = 100_000  # About 20 MB. Beyond it the oldest window is dropped, so a flood of addresses stays bounded.
TAIL = 16  # Characters of a token that are its key.
IPV6_PREFIX = 64  # A subscriber has a whole /64 at least, so a single IPv6 address says nothing.


class _Window:
    __slots__ = ("count", "ends_at", "token")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.count = 0
        self.token: str | None = None


class RateLimiter:
    """Counts in memory, per process. A restart forgives; several API processes each count their own share."""

    def __init__(self, limit: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._monotonic = monotonic
        # All windows are equally long and a new one is appended, so the first ones are those that end first.
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()  # Units of work count in their own threads.

    def count(self, key: str, token: str | None = None) -> tuple[bool, int, int]:
        """Count one request. Return whether it may go on, how many are left, and seconds until the window ends.

        `token` is the credential, found valid, that the key was made of; `find_spent` recognises it.
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
        """Return the seconds left in the window of a token that has used its limit up; None for any other token.

        The whole token is compared: a guess that ends like a known token is not known.
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
            if windows[oldest].ends_at > now and len(windows) < MOST_KEYS:
                break
            del windows[oldest]
        window = windows[key] = _Window(now + WINDOW_S)
        return window


def _seconds(now: float, window: _Window) -> int:
    return max(int(-((now - window.ends_at) // 1)), 1)  # rounded up


def token_key(token: str) -> str:
    return f"t{token[-TAIL:]}"


def address_key(address: str) -> str:
    """Return the key of an address: an IPv4 address itself, the /64 of an IPv6 address."""
    if ":" not in address:
        return f"a{address}"
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return f"a{address}"
    if parsed.ipv4_mapped is not None:
        return f"a{parsed.ipv4_mapped}"
    return f"a{int(parsed) >> (128 - IPV6_PREFIX):x}/{IPV6_PREFIX}"
