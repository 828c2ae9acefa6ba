"""Checks and forms of texts that all products share."""

from __future__ import annotations


def size_text(size: int) -> str:
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size} bytes"


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
