"""Which status codes of an answer count as good: lists such as `200`, `200-299` and `2xx`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

DEFAULT = ("200-299",)
FIRST, LAST = 100, 599

# The only ones that lead somewhere else; 300 and 304 are answers of their own.
_REDIRECTS = (301, 302, 303, 307, 308)
_CODE = re.compile(r"[0-9]{3}", re.ASCII)
_RANGE = re.compile(r"([0-9]{3})-([0-9]{3})", re.ASCII)
_CLASS = re.compile(r"([0-9])xx", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes that a monitor accepts, as spans with both ends included."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, elements: Sequence[str]) -> Self:
        """Read a list as users write it; an empty one is the default.

        A ValueError names the element and says what is wrong with it, in words for the user.
        """
        return cls(tuple(_span(element) for element in elements or DEFAULT))

    def accepts(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.spans)

    @property
    def accepts_redirects(self) -> bool:
        """Tell whether a redirect is a good answer by itself, so that it is not followed."""
        return _accept_redirects(self.spans)

    @property
    def text(self) -> str:
        """Write the list for people: `200-299, 404`."""
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.spans)


@lru_cache(maxsize=1024)
def _accept_redirects(spans: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in spans for code in _REDIRECTS)


def _span(element: str) -> tuple[int, int]:
    if _CODE.fullmatch(element):
        first = last = int(element)
    elif found := _RANGE.fullmatch(element):
        first, last = int(found[1]), int(found[2])
    elif found := _CLASS.fullmatch(element):
        first = int(found[1]) * 100
        last = first + 99
    else:
        raise ValueError(f"{element[:20]!r} should be a status code like 200, a range like 200-299 or a class like 2xx")
    if not FIRST <= first <= LAST or not FIRST <= last <= LAST:
        raise ValueError(f"{element!r} should be within {FIRST} and {LAST}")
    if last < first:
        raise ValueError(f"{element!r} is backwards: a range begins with the lower code")
    return first, last
