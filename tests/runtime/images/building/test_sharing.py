"""Layers of base images and of builds are downloaded once and unpacked once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.runtime.images.building.image_builds import ORG, Builds
from tests.runtime.images.registry_support import RegistryServer, fronting

from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.group("image builds")]

DOCKERFILE = """
    FROM BASE
    RUN mkdir /made && echo a > /made/a && ln /made/a /made/b && ln -s a /made/c && chown app:staff /made/a
    RUN rm /etc/motd && rm -r /app && mkdir -m 0700 /app && echo new > /app/new
    COPY --chown=app words.txt /app/
    """


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all entries of a folder with their attributes and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        target = os.readlink(path) if path.is_symlink() else ""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, content, target)
    return found


async def test_a_base_image_is_downloaded_once(db: Database, registry: RegistryServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    async with fronting(registry) as front:
        builds = Builds(db, front.server, tmp_path)

        result = await builds.build("FROM PYTHON AS made\nRUN echo x > /x\nFROM made\nRUN echo y > /y")
        await builds.images.ensure(ORG, result.image.digest)

        blobs = [request.path for request in front.asked("/blobs/")]
        assert len(blobs) == len(set(blobs)) + 1  # The configuration is read twice.
        assert len(set(blobs)) == 3


async def test_an_image_is_put_together_from_what_is_here(
    db: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    builds, said = Builds(db, registry, tmp_path), list[str]()
    first = await builds.build(DOCKERFILE, {"words.txt": "first"})
    second = await builds.build(DOCKERFILE, {"words.txt": "second"})

    one = await builds.images.ensure(ORG, first.image.digest)
    two = await builds.images.ensure(ORG, second.image.digest, said.append)

    assert said[0] == "Layers 1 to 4 of 4 are here"
    unpacked = await builds.store_at("elsewhere").ensure(ORG, second.image.digest)
    assert tree(two.root) == tree(unpacked.root)
    assert (two.disk_bytes, two.entries) == (unpacked.disk_bytes, unpacked.entries)
    assert (two.root / "made" / "a").samefile(one.root / "made" / "a")
    assert (one.root / "app" / "words.txt").read_text() == "first"


async def test_layers_that_are_not_here_are_unpacked(db: Database, registry: RegistryServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    builds, said = Builds(db, registry, tmp_path), list[str]()
    result = await builds.build(DOCKERFILE, {"words.txt": "x"})
    builds.folders.trim(0)

    image = await builds.images.ensure(ORG, result.image.digest, said.append)

    assert said[:2] == ["Layers 1 to 1 of 4 are here", said[1]]
    assert said[1].startswith("Layer 2 of 4: ")
    assert tree(image.root) == tree((await builds.store_at("elsewhere").ensure(ORG, result.image.digest)).root)
