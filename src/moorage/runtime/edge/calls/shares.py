"""Fair division of a bounded total among keys: organizations, or addresses of clients."""

from __future__ import annotations

from collections.abc import Iterator


class Shares:
    """Counts what each key uses of one total.

    A key gets at most half of what the others leave, so the total is never used up by one. A key that is refused this
    way still gets `least`, out of `spare`, which nothing else may use. The total never exceeds `most + spare`.
    """

    __slots__ = ("_least", "_most", "_spare", "_used", "total")

    def __init__(self, most: int, least: int, spare: int) -> None:
        self._most = most
        self._least = least
        self._spare = spare
        self._used: dict[str, int] = {}
        self.total = 0

    def fits(self, key: str, size: int) -> bool:
        """Tell whether a key may use `size` more."""
        used = self._used.get(key, 0)
        if used + size <= (self._most - (self.total - used)) // 2:
            return True
        return used + size <= self._least and self.total + size <= self._most + self._spare

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
        """Yield the keys that use anything."""
        return iter(self._used)

    def used(self, key: str) -> int:
        return self._used.get(key, 0)

    def greediest(self) -> str:
        """Return the key that uses most; raises ValueError where none uses anything."""
        return max(self._used, key=self._used.__getitem__)
