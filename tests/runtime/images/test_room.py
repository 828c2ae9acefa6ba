"""Disk space of images: the reserve of the disk, and budgets of organizations."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mounts import own_mounts
from tests.runtime.images.registry_support import LOOPBACK, QUICK, Entry, RegistryServer, layer, running_registry

from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Images, Limits

pytestmark = pytest.mark.anyio

MB = 2**20
HERE = "arm64"
FULL = "the platform's disk is almost full"


def boundary(promise: str) -> pytest.MarkDecorator:
    return pytest.mark.boundary("tenant-to-tenant", promise)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Return a folder, and a reserve that leaves 64 MB; root mounts a disk of 96 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0:
        found = os.statvfs(folder)
        yield folder, found.f_bavail * found.f_frsize - 64 * MB
        return
    with own_mounts():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,nr_inodes=8k", "tmpfs", str(folder)], check=True)
        yield folder, 32 * MB
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_images(folder: Path, clock: ManualClock | None = None, **limits: int) -> Images:
    its = Limits(**{"reserve_bytes": 0, **limits})
    return Images(folder / "images", LOOPBACK, clock or ManualClock(), limits=its, transfer=QUICK, architecture=HERE)


def unheard(line: str) -> None:
    """Discard progress."""


def left_in(folder: Path) -> list[str]:
    """Return the contents of the store, incomplete images included."""
    images = folder / "images"
    return [name for name in os.listdir(images) if name != "incoming"] + os.listdir(images / "incoming")


@boundary("A layer that unpacks to far more than its packed size leaves the reserve of the disk.")
async def test_a_layer_that_is_packed_well_ends_at_the_reserve_and_nothing_of_it_stays(
    registry: RegistryServer, disk: tuple[Path, int]
) -> None:
    folder, reserve = disk
    packed = layer(*(Entry(f"zeros{number}", bytes(16 * MB)) for number in range(8)))
    registry.push("stranger/bomb", packed)

    with pytest.raises(PullFailed, match=FULL):
        await make_images(folder, reserve_bytes=reserve).pull(registry.reference("stranger/bomb"), unheard, 1)

    assert len(packed) < MB
    assert left_in(folder) == []


@boundary("A layer of many empty files and deep folders leaves inodes for others.")
async def test_files_and_folders_that_no_entry_names_count(registry: RegistryServer, tmp_path: Path) -> None:
    deep = "/".join("d" * 100)
    registry.push("stranger/files", layer(*(Entry(f"{number}/{deep}/file") for number in range(20))))

    with pytest.raises(PullFailed, match="more than 1,000 files"):
        await make_images(tmp_path, entries=1000).pull(registry.reference("stranger/files"), unheard, 1)

    assert left_in(tmp_path) == []


@boundary("Images that one organization uses cannot take more of the disk than its budget.")
async def test_an_organization_has_a_budget_and_an_image_counts_for_each_that_uses_it(
    registry: RegistryServer, tmp_path: Path
) -> None:
    clock = ManualClock()
    images = make_images(tmp_path, clock, organization_bytes=5 * MB)
    for name in ("one", "two"):
        registry.push(f"harbor/{name}", layer(Entry(name, os.urandom(3 * MB))))
    one, two = registry.reference("harbor/one"), registry.reference("harbor/two")
    await images.pull(one, unheard, 1)
    await images.pull(two, unheard, 2)

    with pytest.raises(PullFailed, match="this organization"):  # The image is stored already.
        await images.pull(two, unheard, 1)
    await images.pull(one, unheard, 1)
    clock.advance(DAY_MS + 1)
    again = await images.pull(two, unheard, 1)

    assert (again.root / "two").stat().st_size == 3 * MB
    assert again.disk_bytes >= 3 * MB


@boundary("An organization whose budget is used up cannot write a new image to the disk.")
async def test_a_new_image_over_the_budget_ends_while_it_is_unpacked(registry: RegistryServer, tmp_path: Path) -> None:
    images = make_images(tmp_path, organization_bytes=5 * MB, organization_entries=2000)
    registry.push("harbor/large", layer(*(Entry(f"zeros{number}", bytes(MB)) for number in range(8))))

    with pytest.raises(PullFailed, match=r"would take more than 5 MB or 2,000 files"):
        await images.pull(registry.reference("harbor/large"), unheard, 1)

    assert left_in(tmp_path) == []
