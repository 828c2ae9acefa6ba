"""Checks and forms of texts that all products share."""

from __future__ import annotations

MAX_DIGITS = 18


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
