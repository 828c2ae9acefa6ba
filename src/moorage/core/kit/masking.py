"""Mask the values of secrets in the output of programs before it is stored.

Builds, apps and functions print their environment by accident. A value is masked verbatim, in JSON, HTML, URL and
hexadecimal encoding, and in base64 at any offset of a longer text.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

SHORTEST_SECRET = 3  # Shorter values occur in most log lines by chance.
SHORTEST_BASE64 = 8  # Shorter pieces of base64 text occur in other text by chance.
MASK = "****"
_MASK = MASK.encode()


class Masker:
    """Replaces the values of secrets in each encoding that `_shapes_of` lists.

    The lines of a multi-line value are also masked one by one, because programs print them one by one.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        shapes: set[str] = set()
        for value in secrets:
            for part in {value, *value.splitlines()}:
                shapes |= _shapes_of(part.strip())
        # Longest first: one secret may contain another.
        ordered = sorted(shapes, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        # Masking bytes must not change the number of lines.
        self._bytes = tuple(shape.encode() for shape in ordered if "\n" not in shape)
        self.longest = max(map(len, self._bytes), default=0)

    @property
    def shapes(self) -> int:
        """Return the number of searched texts; the time of masking grows with it."""
        return len(self._bytes)

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def lines(self, data: bytes) -> bytes:
        """Mask whole lines of UTF-8."""
        # Substring search is much faster than the regular expression, and most lines contain no secret.
        present = tuple(shape for shape in self._bytes if shape in data)
        return _pattern_of(present).sub(_MASK, data) if present else data

    def safe_end(self, data: bytes) -> int:
        """Return the length of a partial line that holds no beginning of a secret."""
        end = len(data) - max((_overlap(data, shape) for shape in self._bytes), default=0)
        present = tuple(shape for shape in self._bytes if shape in data)
        for match in _pattern_of(present).finditer(data) if present else ():
            if match.start() < end < match.end():
                return match.start()
        return end


# Characters that common URL encoders do not escape: Python's `quote` without and with a safe slash, JavaScript's
# encodeURIComponent and encodeURI.
_URL_SAFE = ("", "/", "!'()*", ";,/?:@&=+$!*'()#")
_TO_URL_ALPHABET = str.maketrans("+/", "-_")


def _shapes_of(part: str) -> set[str]:
    """Return a value and its encodings."""
    if len(part) < SHORTEST_SECRET:
        return set()
    shapes = {part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], html.escape(part)}
    for encoded in (*(quote(part, safe=safe) for safe in _URL_SAFE), quote_plus(part)):
        shapes |= {encoded, re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)}
    raw = part.encode()
    shapes |= {raw.hex(), raw.hex().upper()}
    for encoded in _base64_shapes(raw):
        shapes |= {encoded, encoded.translate(_TO_URL_ALPHABET)}
    return shapes


def _base64_shapes(raw: bytes) -> Iterator[str]:
    """Yield the base64 text of a value, alone and inside a longer text.

    Three bytes make four characters, so the text depends on the offset of the value modulo 3. The first and the last
    character may depend on neighbouring bytes; they reveal at most four bits of the value and are not masked.
    """
    yield base64.b64encode(raw).decode().rstrip("=")
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode()
        begin = (0, 2, 3)[offset]
        end = (offset + len(raw)) * 8 // 6  # number of characters whose six bits the value determines
        if end - begin >= SHORTEST_BASE64:
            yield encoded[begin:end]


@lru_cache(maxsize=64)
def _pattern_of(shapes: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, shapes)))


def _overlap(data: bytes, shape: bytes) -> int:
    """Return the length of the longest prefix of a shape that the data ends with."""
    tail = data[-(len(shape) - 1) :]
    at = tail.find(shape[:1])
    while at >= 0:
        if shape.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(shape[:1], at + 1)
    return 0
