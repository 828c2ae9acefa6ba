"""The values of secrets, taken out of what programs print before it is kept.

Builds and running apps both print what they were given; this is the one place that knows what a value can look like.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

SHORTEST_SECRET = 3  # A shorter value would blot out half of every log.
MASK = "****"
_MASK = MASK.encode()


class Masker:
    """Replaces the values of secrets, also as they look in JSON, in a URL and in base64.

    A value of several lines is hidden line by line, since that is how it is printed.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        shapes: set[str] = set()
        for value in secrets:
            for part in {value, *value.splitlines()}:
                shapes |= _shapes_of(part.strip())
        # The longest first: one secret may contain another.
        ordered = sorted(shapes, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        # In bytes, what is looked at has many lines, which must stay as many.
        self._bytes = tuple(shape.encode() for shape in ordered if "\n" not in shape)
        self.longest = max(map(len, self._bytes), default=0)

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def lines(self, data: bytes) -> bytes:
        """Mask whole lines of UTF-8."""
        # To look for each value alone is far quicker than the pattern, and most lines have none.
        found = tuple(shape for shape in self._bytes if shape in data)
        return _pattern_of(found).sub(_MASK, data) if found else data

    def safe_end(self, data: bytes) -> int:
        """Return how much of a line that goes on can be masked already: a secret may have begun after that."""
        end = len(data) - max((_begun(data, shape) for shape in self._bytes), default=0)
        found = tuple(shape for shape in self._bytes if shape in data)
        for match in _pattern_of(found).finditer(data) if found else ():
            if match.start() < end < match.end():
                return match.start()
        return end


def _shapes_of(part: str) -> set[str]:
    if len(part) < SHORTEST_SECRET:
        return set()
    in_json = part.replace("\\", "\\\\").replace('"', '\\"')
    return {part, quote(part, safe=""), in_json, base64.b64encode(part.encode()).decode().rstrip("=")}


@lru_cache(maxsize=64)
def _pattern_of(shapes: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, shapes)))


def _begun(data: bytes, shape: bytes) -> int:
    """Return the length of the longest end of some data that is a beginning of a shape, and not all of it."""
    tail = data[-(len(shape) - 1) :]
    at = tail.find(shape[:1])
    while at >= 0:
        if shape.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(shape[:1], at + 1)
    return 0
