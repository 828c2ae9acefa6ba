"""Deletion of large folders in the background."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.core.kit.processes.deletions import Deletions


@pytest.mark.anyio
async def test_folders_are_deleted_with_any_modes_and_links_are_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path, {"left/a/b/c.txt": "1", "kept/d.txt": "2"})
    (tmp_path / "left/link").symlink_to(tmp_path / "kept")
    (tmp_path / "left/a/b").chmod(0)
    deletions = Deletions()

    deletions.begin(tmp_path / "left")
    deletions.begin(tmp_path / "missing")
    await deletions.wait()

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept/d.txt").read_text() == "2"
