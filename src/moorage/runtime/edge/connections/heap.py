"""Memory of this process that is free."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim() -> None:
    """Return free memory to the kernel: the allocator of glibc keeps what lies between blocks in use."""
    with suppress(AttributeError, OSError):  # Other C libraries have no such call, and less need of it.
        ctypes.CDLL(None).malloc_trim(0)
