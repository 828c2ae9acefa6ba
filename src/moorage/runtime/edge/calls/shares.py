"""Fair shares of a bounded resource among keys: organizations or client addresses."""

from __future__ import annotations

from collections.abc import Iterator


class Shares:
    """Counts the use of a resource per key.

    A key gets at most half of the amount that the others leave of `limit`, so one key never uses it up. Beyond that a
    key may still use up to `guaranteed` in all, out of `extra`. The total never exceeds `limit + extra`.
    """

    __slots__ = ("_extra", "_guaranteed", "_limit", "_used", "total")

    def __init__(self, limit: int, guaranteed: int, extra: int) -> None:
        self._limit = limit
        self._guaranteed = guaranteed
        self._extra = extra
        self._used: dict[str, int] = {}
        self.total = 0

    def fits(self, key: str, size: int) -> bool:
        """Whether a key may use `size` more."""
        used = self._used.get(key, 0)
        if used + size <= (self._limit - (self.total - used)) // 2:
            return True
        return used + size <= self._guaranteed and self.total + size <= self._limit + self._extra

    def add(self, key: str, size: int) -> None:
        self._used[key] = self._used.get(key, 0) + size
        self.total += size

    def remove(self, key: str, size: int) -> None:
        left = self._used.get(key, 0) - size
        self.total -= size
        if left > 0:
            self._used[key] = left
        else:
            self._used.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        """Yield the keys with a share."""
        return iter(self._used)

    def used(self, key: str) -> int:
        return self._used.get(key, 0)

    def largest(self) -> str:
        """Return the key with the largest share; raises ValueError without any."""
        return max(self._used, key=self._used.__getitem__)
