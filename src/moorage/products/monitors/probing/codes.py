"""Accepted status codes of a monitor: lists such as `200`, `200-299` and `2xx`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

from moorage.core.kit.records import dataclass

DEFAULT = ("200-299",)
FIRST, LAST = 100, 599

# Codes with a location to follow; 300 and 304 have none.
_REDIRECTS = (301, 302, 303, 307, 308)
_CODE = re.compile(r"[0-9]{3}", re.ASCII)
_RANGE = re.compile(r"([0-9]{3})-([0-9]{3})", re.ASCII)
_CLASS = re.compile(r"([0-9])xx", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes that a monitor accepts, as inclusive ranges."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, elements: Sequence[str]) -> Self:
        """Parse a list of a request; an empty one is the default.

        Raises ValueError with a message for the user that names the wrong element.
        """
        return cls(tuple(_span(element) for element in elements or DEFAULT))

    def accepts(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.spans)

    @property
    def accepts_redirects(self) -> bool:
        """Whether redirects are accepted, so that none is followed."""
        return _accept_redirects(self.spans)

    @property
    def text(self) -> str:
        """The list as text: `200-299, 404`."""
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.spans)


@lru_cache(maxsize=1024)
def _accept_redirects(spans: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in spans for code in _REDIRECTS)


def _span(element: str) -> tuple[int, int]:
    if _CODE.fullmatch(element):
        first = last = int(element)
    elif match := _RANGE.fullmatch(element):
        first, last = int(match[1]), int(match[2])
    elif match := _CLASS.fullmatch(element):
        first = int(match[1]) * 100
        last = first + 99
    else:
        raise ValueError(f"{element[:20]!r} should be a status code like 200, a range like 200-299 or a class like 2xx")
    if not FIRST <= first <= LAST or not FIRST <= last <= LAST:
        raise ValueError(f"{element!r} should be within {FIRST} and {LAST}")
    if last < first:
        raise ValueError(f"{element!r} is backwards: a range begins with the lower code")
    return first, last
