"""A million files: in the build context, made by RUN, and in a layer of a base image."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import IO

import pytest
from tests.runtime.images.building.image_builds import Builds, push
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.db.store import Database
from moorage.runtime.images.building.ports import Limits, StepFailed
from moorage.runtime.images.dockerfile.errors import DockerfileError

pytestmark = [pytest.mark.anyio, pytest.mark.deep, pytest.mark.group("image builds")]

MILLION = 1_000_000


@pytest.fixture
async def builds(db: Database, registry: RegistryServer, tmp_path: Path) -> Builds:
    tmp_path.chmod(0o700)
    return Builds(db, registry, tmp_path, limits=Limits(disk_mb=512))


def leftovers(builds: Builds) -> list[str]:
    """Return unfinished layers and images."""
    folders = (builds.home / "image-layers", builds.home / "images" / "incoming")
    names = [name for folder in folders if folder.is_dir() for name in os.listdir(folder)]
    return [name for name in names if name.startswith((".new-", "pull-"))]


async def test_a_context_of_a_million_files_is_refused(builds: Builds) -> None:
    prepared = builds.prepare("FROM BASE\nCOPY . /src\n", {"keep/a": "a"})
    folder = os.open(prepared.request.source / "keep", os.O_RDONLY)
    for number in range(MILLION):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)

    with pytest.raises(DockerfileError, match=r"line 2: .* has more than \d+,000 files"):
        await builds.execute(prepared)

    assert leftovers(builds) == []


async def test_a_step_that_makes_a_million_files_is_ended(builds: Builds) -> None:
    prepared = builds.prepare(f"FROM BASE\nRUN mkdir /m && cd /m && for d in $(seq {MILLION}); do : > $d; done\n")

    with pytest.raises(StepFailed) as failed:
        await builds.execute(prepared)

    assert failed.value.finished.why == "it wrote too much to the disk (512 MB)"
    assert leftovers(builds) == []


async def test_a_layer_of_a_million_files_is_refused(builds: Builds, registry: RegistryServer, tmp_path: Path) -> None:
    packed = tmp_path / "layer.tar"
    with packed.open("wb") as file:
        _write_entries(file)
    push(registry, "many", packed.read_bytes())
    packed.unlink()
    prepared = builds.prepare(f"FROM 127.0.0.1:{registry.port}/many\nRUN true\n")

    with pytest.raises(DockerfileError, match=r"the image has more than 500,000 files"):
        await builds.execute(prepared)

    assert leftovers(builds) == []


def _write_entries(file: IO[bytes]) -> None:
    header = tarfile.TarInfo("x")
    for number in range(MILLION):
        header.name = f"m/{number}"
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
    file.write(bytes(1024))
