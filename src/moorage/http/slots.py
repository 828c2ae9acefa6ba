"""Open event streams, counted per credential and per organization.

A stream costs memory, a connection and reads of the store for as long as it is open, so the rate limit alone does not
bound what one tenant takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from moorage.errors import RateLimited


class StreamSlots:
    """Counts in memory, per process, like the rate limit."""

    def __init__(self, per_token: int, per_organization: int) -> None:
        self._limits = {"token": per_token, "organization": per_organization}
        self._open: Counter[tuple[str, str]] = Counter()

    def take(self, token: str, org_id: int) -> Callable[[], None]:
        """Return a call that gives the slot back, safe to repeat; raises RateLimited."""
        keys = [("token", token), ("organization", str(org_id))]
        for kind, name in keys:
            if self._open[kind, name] >= self._limits[kind]:
                raise RateLimited(
                    f"Too many open event streams: at most {self._limits[kind]} for one {kind}; close some first"
                )
        self._open.update(keys)
        is_taken = True

        def give_back() -> None:
            nonlocal is_taken
            if not is_taken:
                return
            is_taken = False
            for key in keys:
                self._open[key] -= 1
                if self._open[key] <= 0:
                    del self._open[key]

        return give_back
