"""Folders of servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import memory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory: what servers make durable takes a disk minutes, over all tests."""
    with memory.folder("moorage-") as made:
        yield made
