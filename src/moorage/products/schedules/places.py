"""Places for concurrent runs, and the runs that wait for one, by organization."""

from __future__ import annotations

from collections import Counter


class Places:
    """Divides the places between organizations.

    An organization may have as many runs as there are free places. So one organization takes at most half of them, two
    take a third each, and there are always places for the runs of others. Waiting runs start in the order of their
    submission within an organization, and in turn between organizations.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._running: Counter[int] = Counter()  # by organization
        self._waiting: dict[int, dict[str, None]] = {}  # activation ids by organization, in the order of their turn
        self._org_of: dict[str, int] = {}  # organizations of the waiting runs

    def __contains__(self, activation_id: str) -> bool:
        """Return whether a run waits."""
        return activation_id in self._org_of

    def __len__(self) -> int:
        """Return the number of waiting runs."""
        return len(self._org_of)

    def has_room(self, org_id: int) -> bool:
        return self._running[org_id] < self._most - self._taken

    def take(self, org_id: int) -> None:
        self._taken += 1
        self._running[org_id] += 1

    def release(self, org_id: int) -> None:
        self._taken -= 1
        self._running[org_id] -= 1
        if not self._running[org_id]:
            del self._running[org_id]

    def wait(self, org_id: int, activation_id: str) -> None:
        self._waiting.setdefault(org_id, {})[activation_id] = None
        self._org_of[activation_id] = org_id

    def discard(self, activation_id: str) -> None:
        """Remove a waiting run. Safe to repeat."""
        org_id = self._org_of.pop(activation_id, None)
        if org_id is None:
            return
        del self._waiting[org_id][activation_id]
        if not self._waiting[org_id]:
            del self._waiting[org_id]

    def next(self) -> tuple[int, str] | None:
        """Remove and return the next waiting run with room; its organization goes last."""
        org_id = next((org_id for org_id in self._waiting if self.has_room(org_id)), None)
        if org_id is None:
            return None
        activation_id = next(iter(self._waiting[org_id]))
        self.discard(activation_id)
        if org_id in self._waiting:
            self._waiting[org_id] = self._waiting.pop(org_id)
        return org_id, activation_id

    def clear(self) -> None:
        """Remove all waiting runs."""
        self._waiting.clear()
        self._org_of.clear()
