"""Volumes on this machine, with folders that a tenant made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.core.kit import folders
from moorage.runtime.engines.local_volumes import LocalVolumes

pytestmark = pytest.mark.anyio


@pytest.fixture
def trash(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "trash"
    folders.remove(tmp_path / "trash")  # pytest cannot remove deeply nested folders.


async def test_deeply_nested_folders_are_purged(tmp_path: Path, trash: Path) -> None:
    volumes = LocalVolumes(tmp_path / "volumes", trash)
    await volumes.ensure("17", uid=0, size_mb=64)
    handle = os.open(tmp_path / "volumes" / "17", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("nested", dir_fd=handle)
        below = os.open("nested", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    await volumes.discard("17")

    for _ in range(2):
        await volumes.purge("17")

    assert list(trash.iterdir()) == []
