"""Mask the values of secrets in the output of programs before it is stored.

Builds, apps and functions print their environment by accident. A value is masked verbatim, in JSON, HTML, URL and
hexadecimal encoding, and in base64 at any offset of a longer text.

Masking runs in event loops, and tenants choose both the values and the texts. So its time grows with the length of a
text, but hardly with the number of values.
"""

from __future__ import annotations

import base64
import html
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote

SHORTEST_SECRET = 3  # Shorter values occur in most log lines by chance.
SHORTEST_BASE64 = 8  # Shorter pieces of base64 text occur in other text by chance.
MASK = "****"
_MASK = MASK.encode()
# Up to so many values are searched one by one, which is faster where a text contains none of them.
MOST_SEARCHED_SINGLY = 100
MOST_THAT_COUNT = 1000  # Searching for more texts takes as long: 150 ns for each byte.

Text = TypeVar("Text", str, bytes)


class Masker:
    """Replaces the values of secrets in each encoding that `_shapes_of` yields.

    The lines of a multi-line value are also masked one by one, because programs print them one by one.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part.strip() for value in secrets for part in (value, *value.splitlines())}
        self._shapes = frozenset(_shapes_of([part for part in parts if len(part) >= SHORTEST_SECRET]))

    @cached_property
    def _in_text(self) -> _Searcher[str]:
        return _Searcher(self._shapes)

    @cached_property
    def _in_bytes(self) -> _Searcher[bytes]:
        # Masking bytes must not change the number of lines.
        return _Searcher(shape.encode() for shape in self._shapes if "\n" not in shape)

    @property
    def longest(self) -> int:
        """Return the length of the longest searched text in bytes."""
        return self._in_bytes.longest

    @property
    def shapes(self) -> int:
        """Return the number of searched texts, by which the time of masking grows; at most MOST_THAT_COUNT."""
        return min(len(self._shapes), MOST_THAT_COUNT)

    def __call__(self, text: str) -> str:
        return self._in_text.replace(text, MASK, "")

    def lines(self, data: bytes) -> bytes:
        """Mask whole lines of UTF-8."""
        return self._in_bytes.replace(data, _MASK, b"")

    def safe_end(self, data: bytes) -> int:
        """Return the length of a partial line that holds no beginning of a secret."""
        end = self._in_bytes.find_partial(data)
        for begin, match_end in self._in_bytes.matches(data):
            if begin < end < match_end:
                return begin
        return end


class _Group(NamedTuple):
    """Range of the sorted texts that begin alike, and the length of the longest of them."""

    begin: int
    end: int
    longest: int


class _Searcher(Generic[Text]):
    """Finds the leftmost, longest occurrences of many texts.

    The texts are sorted, and found by their first characters and a binary search. A regular expression would compare
    all texts at each position.
    """

    def __init__(self, texts: Iterable[Text]) -> None:
        self._sorted: list[Text] = sorted(texts)
        self.longest = max(map(len, self._sorted), default=0)
        self._chains: list[tuple[Text, ...]] = []  # each text and the texts that it begins with, longest first
        prefixes: list[Text] = []
        for text in self._sorted:
            while prefixes and not text.startswith(prefixes[-1]):
                prefixes.pop()
            prefixes.append(text)
            self._chains.append(tuple(reversed(prefixes)))
        self._groups: dict[Text, _Group] = {}  # by the first characters
        at = 0
        for first, members in groupby(self._sorted, key=lambda text: text[:SHORTEST_SECRET]):
            lengths = [len(text) for text in members]
            self._groups[first] = _Group(at, at + len(lengths), max(lengths))
            at += len(lengths)

    def replace(self, text: Text, mask: Text, nothing: Text) -> Text:
        """Return the text with each occurrence replaced; `nothing` is the empty text of its type."""
        pieces: list[Text] = []
        at = 0
        for begin, end in self.matches(text):
            pieces += (text[at:begin], mask)
            at = end
        pieces.append(text[at:])
        return nothing.join(pieces)

    def matches(self, text: Text) -> Iterator[tuple[int, int]]:
        """Yield the ranges of occurrences, from left to right."""
        if len(self._sorted) <= MOST_SEARCHED_SINGLY and not any(shape in text for shape in self._sorted):
            return
        groups, end = self._groups, 0
        begins = [at for at in range(len(text) - SHORTEST_SECRET + 1) if text[at : at + SHORTEST_SECRET] in groups]
        for at in begins:
            if at >= end and (length := self._match(text, at)):
                end = at + length
                yield at, end

    def find_partial(self, text: Text) -> int:
        """Return where the longest beginning of a searched text starts that the text ends with; else its length."""
        groups, length = self._groups, len(text)
        for at in range(max(length - self.longest + 1, 0), length):
            if length - at < SHORTEST_SECRET or text[at : at + SHORTEST_SECRET] in groups:
                rest = text[at:]
                # Texts that begin with the rest stand right behind it. The rest itself is complete.
                place = bisect_right(self._sorted, rest)
                if place < len(self._sorted) and self._sorted[place].startswith(rest):
                    return at
        return length

    def _match(self, text: Text, at: int) -> int:
        """Return the length of the longest searched text at a position, 0 without any."""
        group = self._groups[text[at : at + SHORTEST_SECRET]]
        # The longest match is the last text that is not greater, or one that this begins with.
        here = text[at : at + group.longest]
        place = bisect_right(self._sorted, here, group.begin, group.end) - 1
        if place < group.begin:
            return 0
        chain = self._chains[place]
        # If one text of the chain occurs here, all shorter ones do.
        longest = bisect_left(chain, True, key=lambda shape: text.startswith(shape, at))
        return len(chain[longest]) if longest < len(chain) else 0


# Characters that common URL encoders do not escape: Python's `quote` without and with a safe slash, JavaScript's
# encodeURIComponent and encodeURI.
_URL_SAFE = ("", "/", "!'()*", ";,/?:@&=+$!*'()#")
_TO_URL_ALPHABET = str.maketrans("+/", "-_")
_TO_JSON = (json.JSONEncoder().encode, json.JSONEncoder(ensure_ascii=False).encode)
_BETWEEN = b"\xff"  # not in UTF-8


@cache
def _url_tables() -> list[list[str]]:
    """Return the encoded bytes of each URL encoder, with capital and with small hexadecimal digits.

    They have an entry for each byte, because `str.translate` is slow for missing ones.
    """
    capital = [[quote(bytes([byte]), safe=safe) for byte in range(256)] for safe in _URL_SAFE]
    capital.append(["+" if encoded == "%20" else encoded for encoded in capital[0]])
    tables = [*capital, *([each.lower() if each[0] == "%" else each for each in table] for table in capital)]
    for table in tables:
        table[ord(_BETWEEN)] = _BETWEEN.decode("latin-1")
    return tables


def _shapes_of(parts: list[str]) -> Iterator[str]:
    """Yield values and their encodings."""
    if not parts:
        return
    yield from parts
    raw = [part.encode() for part in parts]
    # One call for all values is much faster than one for each.
    joined = _BETWEEN.join(raw).decode("latin-1")
    for table in _url_tables():
        yield from joined.translate(table).split(_BETWEEN.decode("latin-1"))
    for part, data in zip(parts, raw, strict=True):
        for to_json in _TO_JSON:
            yield to_json(part)[1:-1]
        yield html.escape(part)
        yield data.hex()
        yield data.hex().upper()
        for encoded in _base64_shapes(data):
            yield encoded
            yield encoded.translate(_TO_URL_ALPHABET)


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
