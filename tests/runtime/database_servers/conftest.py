"""Folders of servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import memory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on tmpfs: the fsync calls of all tests would take minutes on a disk."""
    with memory.folder("moorage-") as made:
        yield made
