"""Builds that would fill the disk, the memory or the time of the platform are refused."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.images.building.image_builds import CONFIG, Builds
from tests.runtime.images.registry_support import Entry, RegistryServer, descriptor, layer

from moorage.core.db.store import Database
from moorage.runtime.images.building import bases
from moorage.runtime.images.building.executor import predefined_args
from moorage.runtime.images.building.ports import Limits
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.group("image builds"),
    pytest.mark.boundary("code-to-host", "A build of an image cannot fill the disk or the memory of the platform."),
]

MB = 2**20


@pytest.fixture
async def builds(db: Database, registry: RegistryServer, tmp_path: Path) -> Builds:
    tmp_path.chmod(0o700)
    return Builds(db, registry, tmp_path, limits=Limits(disk_mb=32))


def packed_tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for header, content in members:
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return packed.getvalue()


def with_dictionary(packed: bytes, code: int) -> bytes:
    """Return an xz file whose header announces another size of its dictionary."""
    start, length = 12, (packed[12] + 1) * 4
    header = bytearray(packed[start : start + length - 4])
    place = header.index(b"\x21\x01") + 2
    header[place] = code
    changed = bytes(header) + zlib.crc32(header).to_bytes(4, "little")
    return packed[:start] + changed + packed[start + length :]


async def test_holes_of_sparse_files_count_as_files_of_a_layer(builds: Builds) -> None:
    with pytest.raises(DockerfileError, match="line 2: the new layers of this build have more than 32 MB"):
        await builds.build("FROM BASE\nRUN for i in 1 2 3; do dd if=/dev/zero of=/f$i bs=1 count=1 seek=20M; done")

    assert not list(builds.folders.root.glob("*"))


async def test_all_new_layers_of_a_build_share_one_limit(builds: Builds) -> None:
    step = "RUN dd if=/dev/zero of=/f{} bs=1M count=20\n"

    with pytest.raises(DockerfileError, match="line 3: the new layers of this build have more than 32 MB"):
        await builds.build("FROM BASE\n" + step.format(1) + step.format(2))


async def test_skipped_members_of_an_archive_count(builds: Builds) -> None:
    special = tarfile.TarInfo("special")
    special.type = b"Z"  # unknown: its content is skipped
    bomb = gzip.compress(packed_tar((special, bytes(64 * MB)), (tarfile.TarInfo("file"), b"1")))

    with pytest.raises(DockerfileError, match="line 2: the new layers of this build have more than 32 MB"):
        await builds.build("FROM BASE\nADD bomb.tgz /x/", {"bomb.tgz": bomb})

    assert len(bomb) < MB


async def test_an_archive_cannot_choose_the_memory_of_its_decompression(builds: Builds) -> None:
    plain = lzma.compress(packed_tar((tarfile.TarInfo("file"), b"1")))

    result = await builds.build("FROM BASE\nADD plain.txz /x/", {"plain.txz": plain})
    with pytest.raises(DockerfileError, match="needs more than 128 MB of memory"):
        await builds.build("FROM BASE\nADD large.txz /x/", {"large.txz": with_dictionary(plain, 36)})  # 1 GB

    assert result.content("x/file") == "1"


async def test_a_copy_ends_at_the_deadline_of_the_build(builds: Builds) -> None:
    prepared = builds.prepare("FROM BASE\nCOPY a /\n", {"a": "1"})
    late = replace(prepared, workspace=replace(prepared.workspace, deadline=time.monotonic() - 1))

    with pytest.raises(DockerfileError, match="line 2: the build took too long"):
        await builds.execute(late)


def push_unnamed(registry: RegistryServer, name: str, body: bytes, size: int) -> None:
    """Store an image of one layer whose configuration has no digest of it."""
    about = json.dumps({"os": "linux", "architecture": predefined_args()["TARGETARCH"], "config": CONFIG}).encode()
    for blob in (about, body):
        registry.push_blob(name, blob)
    part = {**descriptor(body, f"{OCI_LAYER}+gzip"), "size": size}
    config = descriptor(about, OCI_CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [part]}
    registry.push_manifest(name, "latest", manifest)


async def test_a_base_image_with_huge_layers_is_not_downloaded(builds: Builds, registry: RegistryServer) -> None:
    push_unnamed(registry, "huge", layer(Entry("a", b"1")), 5 * 2**30)

    with pytest.raises(DockerfileError, match=r"line 1: cannot pull .*: the image has 5 GB of layers; 4 GB are"):
        await builds.build(f"FROM 127.0.0.1:{registry.port}/huge\nRUN true")


async def test_a_base_layer_without_a_digest_of_its_content_is_read_up_to_a_limit(
    builds: Builds, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "MAX_UNPACKED_BYTES", MB)
    body = layer(Entry("a", bytes(8 * MB)))
    push_unnamed(registry, "unnamed", body, len(body))

    with pytest.raises(DockerfileError, match="line 1: a layer of the image unpacks to more than 1 MB"):
        await builds.build(f"FROM 127.0.0.1:{registry.port}/unnamed\nRUN true")
