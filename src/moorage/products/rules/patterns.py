"""Source patterns of rules: parsing them and matching paths.

Sources and paths are split into parts, the texts between slashes. User text never becomes a regular expression: the
gateway's expressions are generated from the parts. Paths are compared decoded, so `/caf%C3%A9` and `/café` are one
source, and a request for `%61` matches `a`.

    /about            this path only: `/about/` is another path
    /blog/:slug       `:slug` is one whole part, not empty; `/blog/:slug.html` requires a suffix
    /docs/*/edit      before the last part, `*` is one whole part, or the rest of a part after a text
    /docs/*           in the last part, `*` is the rest of the path, including slashes, or empty; `/*.css` requires
                      a suffix
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from moorage.core.kit.records import dataclass

MAX_SOURCE = 2_000
MAX_PARTS = 100
MAX_WILDCARDS = 16
STAR = "*"
SPLAT = "splat"  # `:splat` in a destination is the last `*` of the source, as other platforms write it

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
# A wildcard may be followed only by a file suffix with at most three dots. This bounds the backtracking of the
# gateway's regular expression to a few positions.
_ENDING = r"(?:\.[A-Za-z0-9_-]+){0,3}"
_NAMED_PART = re.compile(rf":({_NAME})({_ENDING})")
_BROKEN_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class BadPattern(ValueError):
    """An invalid source or destination; the message continues `redirects[0].source …`."""


@dataclass(frozen=True, slots=True)
class HeaderRule:
    source: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class RedirectRule:
    source: str
    destination: str
    status: int


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules of one host, in order."""

    redirects: tuple[RedirectRule, ...] = ()
    headers: tuple[HeaderRule, ...] = ()


class Wild(Enum):
    ONE = "one"  # within one part, at least one character
    REST = "rest"  # the rest of the path


@dataclass(frozen=True, slots=True)
class Part:
    """A path segment of a source: text, or text with one wildcard."""

    before: str  # the whole text if there is no wildcard
    wild: Wild | None = None
    name: str = ""  # of the wildcard: a word, or `*`
    after: str = ""

    def find(self, text: str) -> str | None:
        """Return the wildcard's value in a segment or rest of a path; None if no match."""
        if self.wild is Wild.REST and not self.before:
            # Leading slashes belong to the source: else a request could make the destination `/*` begin with `//`,
            # which redirects to another host.
            text = text.lstrip("/")
        min_chars = 1 if self.wild is Wild.ONE else 0
        matches = text.startswith(self.before) and text.endswith(self.after)
        if not matches or len(text) < len(self.before) + len(self.after) + min_chars:
            return None
        return text[len(self.before) : len(text) - len(self.after)]


@dataclass(frozen=True, slots=True)
class Source:
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Return the decoded source, with the names of its wildcards."""
        return self.path(*(part.name for part in self.wildcards))

    @property
    def wildcards(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.wild)

    @property
    def is_literal(self) -> bool:
        return not any(part.wild for part in self.parts)

    @property
    def ends_open(self) -> bool:
        return self.parts[-1].wild is Wild.REST

    def path(self, *values: str) -> str:
        """Return the path with these values in place of the wildcards."""
        remaining = list(reversed(values))
        texts = [part.before + remaining.pop() + part.after if part.wild else part.before for part in self.parts]
        return "/" + "/".join(texts)

    def match(self, path: str) -> tuple[str, ...] | None:
        """Return the wildcard values of a decoded path, or None if it does not match."""
        segments = path.split("/")[1:]
        if len(segments) < len(self.parts) or (len(segments) > len(self.parts) and not self.ends_open):
            return None
        if self.ends_open:
            segments[len(self.parts) - 1 :] = ["/".join(segments[len(self.parts) - 1 :])]
        values = []
        for part, text in zip(self.parts, segments, strict=True):
            if part.wild is None:
                if part.before != text:
                    return None
                continue
            value = part.find(text)
            if value is None:
                return None
            values.append(value)
        return tuple(values)


@lru_cache(maxsize=4096)
def parse_source(text: str) -> Source:
    """Parse a source; raises BadPattern."""
    if len(text) > MAX_SOURCE:
        raise BadPattern(f"should have at most {MAX_SOURCE:,} characters")
    if not text.startswith("/"):
        raise BadPattern("should be a path that starts with /")
    check_text(text)
    if "?" in text or "#" in text:
        raise BadPattern("should be a path alone: what follows ? or # takes no part in matching")
    texts = text[1:].split("/")
    if len(texts) > MAX_PARTS:
        raise BadPattern(f"should have at most {MAX_PARTS} parts")
    source = Source(tuple(_part(each, is_last=at == len(texts) - 1) for at, each in enumerate(texts)))
    _check_names(source)
    return source


def _part(text: str, *, is_last: bool) -> Part:
    if text.startswith(":"):
        match = _NAMED_PART.fullmatch(text)
        if match is None:
            raise BadPattern(f"should name a part as :name or :name.html, with letters, digits and _: {text[:50]!r}")
        return Part("", Wild.ONE, match[1], match[2])
    before, star, after = text.partition(STAR)
    if not star:
        return Part(_plain_part(text, is_last=is_last))
    if not re.fullmatch(_ENDING, after):
        raise BadPattern(f"may have after * only the end of a part, or a file's ending such as .html: {text[:50]!r}")
    return Part(decode(before), Wild.REST if is_last else Wild.ONE, STAR, after)


def _plain_part(text: str, *, is_last: bool) -> str:
    decoded = decode(text)
    if decoded in (".", ".."):
        raise BadPattern("must not have the parts . and ..")
    if not decoded and not is_last:
        raise BadPattern("must not have two slashes in a row")
    return decoded


def _check_names(source: Source) -> None:
    names = [part.name for part in source.wildcards if part.name != STAR]
    if len(source.wildcards) > MAX_WILDCARDS:
        raise BadPattern(f"should have at most {MAX_WILDCARDS} of * and :name")
    if SPLAT in names:
        raise BadPattern(f"must not name a part :{SPLAT}: in a destination, that is what * stands for")
    if len(set(names)) != len(names):
        raise BadPattern("must not use a name twice")


def check_text(text: str) -> None:
    """Raise BadPattern for text that is invalid in any URL."""
    if _CONTROL.search(text):
        raise BadPattern("must not contain control characters, such as line breaks")
    if "\\" in text:
        raise BadPattern("must not contain \\: browsers read it as /")
    if _BROKEN_ESCAPE.search(text):
        raise BadPattern("should have two hexadecimal digits after each %; the character itself is %25")


def decode(text: str) -> str:
    """Percent-decode a part of a path; raises BadPattern."""
    if "%" not in text:
        return text
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadPattern("should be UTF-8 where its escapes are resolved") from None
    if "/" in decoded or _CONTROL.search(decoded):
        raise BadPattern("must not have %2F or control characters as escapes")
    return decoded
