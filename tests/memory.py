"""A place in memory for servers that make everything durable: no test pulls the plug, and a disk would take minutes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
LEAST_FREE = 4 * 2**30


def place() -> str | None:
    """Return where temporary folders are made: in memory where there is room, else where they usually are."""
    is_roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > LEAST_FREE
    return str(MEMORY) if is_roomy else None


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """Give a folder of one's own, which is gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=place()))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
