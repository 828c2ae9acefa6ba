"""Limits for event streams: open streams and bytes per second.

An open stream uses memory, a connection and database reads, and CPU for each byte, so the rate limit alone does not
bound the resources of one tenant.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from moorage.errors import RateLimited

MB = 2**20
BYTES_PER_S = 2 * MB  # for all streams of an organization; the log of a busy build needs less than 10 % of it
BURST_BYTES = 4 * MB
MAX_WAIT_S = 30.0  # Bounds the delay that reservations of closed streams cause.


class StreamSlots:
    """Counts open streams in memory, per process, like the rate limit."""

    def __init__(self, per_token: int, per_organization: int) -> None:
        self._limits = {"token": per_token, "organization": per_organization}
        self._open: Counter[tuple[str, str]] = Counter()
        self._free_at: dict[int, float] = {}  # organization -> time when all reserved bytes are sent

    def take(self, token: str, org_id: int) -> Callable[[], None]:
        """Take a slot and return its release, safe to repeat; raises RateLimited."""
        keys = [("token", token), ("organization", str(org_id))]
        for kind, name in keys:
            if self._open[kind, name] >= self._limits[kind]:
                raise RateLimited(
                    f"Too many open event streams: at most {self._limits[kind]} for one {kind}; close some first"
                )
        self._open.update(keys)
        is_taken = True

        def release() -> None:
            nonlocal is_taken
            if not is_taken:
                return
            is_taken = False
            for key in keys:
                self._open[key] -= 1
                if self._open[key] <= 0:
                    del self._open[key]
            if keys[-1] not in self._open and self._free_at.get(org_id, 0.0) <= time.monotonic():
                self._free_at.pop(org_id, None)

        return release

    def reserve(self, org_id: int, size: int) -> float:
        """Reserve bytes for a stream; return the seconds to wait before sending."""
        now = time.monotonic()
        began = max(self._free_at.get(org_id, 0.0), now - BURST_BYTES / BYTES_PER_S)
        self._free_at[org_id] = min(began + size / BYTES_PER_S, now + MAX_WAIT_S)
        return max(began - now, 0.0)
