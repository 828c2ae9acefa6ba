"""Masks the values of secrets in the output of programs before it is stored.

Builds, apps and functions print their environment by accident. Only this module knows the encodings in which a value
can appear: as it is, in JSON, HTML and URLs, in hexadecimal, and in base64 at any offset of a longer text.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

SHORTEST_SECRET = 3  # A shorter value would blot out half of every log.
SHORTEST_BASE64 = 8  # Fewer characters in the middle of base64 text appear in other text by chance.
MASK = "****"
_MASK = MASK.encode()


class Masker:
    """Replaces the values of secrets, in each of the encodings that `_shapes_of` lists.

    A value of several lines is masked line by line, because programs print it line by line.
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

    @property
    def shapes(self) -> int:
        """Return how many texts are looked for: the time that masking takes grows with it."""
        return len(self._bytes)

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


# Characters that common URL encoders leave as they are: encodeURIComponent and encodeURI of JavaScript, and
# `quote` of Python with and without a safe slash.
_URL_SAFE = ("", "/", "!'()*", ";,/?:@&=+$!*'()#")
_TO_URL_ALPHABET = str.maketrans("+/", "-_")


def _shapes_of(part: str) -> set[str]:
    """Return the texts that show a value: itself and its encodings."""
    if len(part) < SHORTEST_SECRET:
        return set()
    shapes = {part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], html.escape(part)}
    for encoded in (*(quote(part, safe=safe) for safe in _URL_SAFE), quote_plus(part)):
        shapes |= {encoded, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)}
    raw = part.encode()
    shapes |= {raw.hex(), raw.hex().upper()}
    for encoded in _base64_shapes(raw):
        shapes |= {encoded, encoded.translate(_TO_URL_ALPHABET)}
    return shapes


def _base64_shapes(raw: bytes) -> Iterator[str]:
    """Yield the base64 text of a value alone, and the characters that it determines inside a longer text.

    Three bytes make four characters, so the text depends on the offset of the value modulo 3. The first and the last
    character may also depend on the neighbouring bytes; they show at most four bits of the value and stay.
    """
    yield base64.b64encode(raw).decode().rstrip("=")
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode()
        begin = (0, 2, 3)[offset]
        end = (offset + len(raw)) * 8 // 6  # characters of which the value determines all six bits
        if end - begin >= SHORTEST_BASE64:
            yield encoded[begin:end]


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
