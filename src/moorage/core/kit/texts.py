"""Checks and forms of texts that all products share."""

from __future__ import annotations

import re

MAX_DIGITS = 18
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")


def size_text(size: int) -> str:
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size} bytes"


def whole_number(text: str) -> int | None:
    """Return a number of at most 18 ASCII digits, or None: `int` fails for longer texts and for digits such as `²`."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def unusable(text: str) -> str | None:
    """Return why a text cannot be stored (NUL, lone surrogate), or None."""
    if "\x00" in text:
        return "must not contain a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "must not contain half of a surrogate pair"
    return None


def check_line(text: str) -> str:
    """Return a text of one line; raises ValueError for control characters, such as line breaks."""
    if _CONTROL.search(text):
        raise ValueError("must not contain line breaks or other control characters")
    return text


def one_line(text: str) -> str:
    """Remove line breaks and control characters from untrusted text."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
