"""Free memory of the C heap."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim() -> None:
    """Return free memory to the kernel: glibc keeps free blocks between used ones."""
    with suppress(AttributeError, OSError):  # Other C libraries have no malloc_trim.
        ctypes.CDLL(None).malloc_trim(0)
