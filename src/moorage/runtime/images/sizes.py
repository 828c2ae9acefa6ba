"""Sizes of images, and their limits."""

from __future__ import annotations

MB = 2**20
GB = 2**30
MAX_UNPACKED_BYTES = 8 * GB
MAX_ENTRIES = 500_000


def size_text(size: int) -> str:
    if size < MB:
        return f"{size:,} bytes"
    return f"{size / GB:.3g} GB" if size >= GB else f"{size / MB:.3g} MB"
