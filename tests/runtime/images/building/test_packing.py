"""Layers as archives: each archive stands for one folder of changes only."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.runtime.images.building.image_builds import Builds
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.db.store import Database
from moorage.runtime.images.building.files import packing
from moorage.runtime.images.building.files.tree import TreeError
from moorage.runtime.images.building.files.writing import Budget
from moorage.runtime.images.dockerfile.errors import DockerfileError

pytestmark = [
    pytest.mark.group("image builds"),
    pytest.mark.boundary("tenant-to-tenant", "A file of a layer cannot pass for the deletion of another file."),
]


@pytest.mark.parametrize("name", [".wh.secret", ".wh..wh..opq", ".wh.", "a/b/.wh.secret"])
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_name_of_a_whiteout_is_not_packed(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "changes" / name
    path.parent.mkdir(parents=True)
    if kind == "file":
        path.touch(0o600)
        os.utime(path, (0, 0))
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("x")

    with pytest.raises(TreeError, match=re.escape(f"an image cannot contain '/{name}': in layers, names that begin")):
        packing.pack(
            tmp_path / "changes", tmp_path / "layer.tar", owners={}, budget=Budget(2**20, 100, lambda size: None)
        )


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["RUN touch /etc/.wh.motd", "COPY a /etc/.wh.motd", "WORKDIR /etc/.wh.motd"])
async def test_a_step_that_makes_such_a_file_fails(
    db: Database, registry: RegistryServer, tmp_path: Path, step: str
) -> None:
    tmp_path.chmod(0o700)
    builds = Builds(db, registry, tmp_path)

    with pytest.raises(DockerfileError, match=r"line 2: an image cannot contain '/etc/\.wh\.motd'"):
        await builds.build(f"FROM BASE\n{step}", {"a": "1"})

    assert not list(builds.folders.root.glob("*"))


@pytest.mark.anyio
async def test_such_a_file_may_exist_during_a_step(db: Database, registry: RegistryServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    builds = Builds(db, registry, tmp_path)

    result = await builds.build("FROM BASE\nRUN touch /.wh.a && rm /.wh.a && echo x > /a.wh.")

    assert "a.wh." in result.tree
