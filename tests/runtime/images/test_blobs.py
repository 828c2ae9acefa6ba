"""Images in the artifact store: stored once, read by their organization only, unpacked where they run."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.registry_support import LOOPBACK, Entry, folder, hard_link, layer, tar

from moorage.core.artifacts import service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock
from moorage.runtime.images.blobs import ImageBlobs, as_document
from moorage.runtime.images.manifests import OCI_LAYER, OCI_MANIFEST, BadImage, Descriptor, Healthcheck, parse_config
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Images, Limits

pytestmark = pytest.mark.anyio

HARBOR, PIER = 1, 2
BASE = layer(folder("etc"), Entry("etc/name", b"base"), Entry("etc/old", b"old"))
MORE = tar(Entry("etc/.wh.old"), hard_link("etc/again", "etc/name"), Entry("run", b"#!", mode=0o755))


@pytest.fixture
def blobs(db: Database) -> ImageBlobs:
    return ImageBlobs(db, ArtifactStore(db))


@pytest.fixture
def images(blobs: ImageBlobs, tmp_path: Path) -> Images:
    limits = Limits(reserve_bytes=0)
    return Images(tmp_path / "images", LOOPBACK, ManualClock(), limits=limits, architecture="arm64", blobs=blobs)


async def put(
    blobs: ImageBlobs, tmp_path: Path, *layers: bytes, owner: str = "deployment:1", **config: Any
) -> Descriptor:
    """Store an image of one organization; return the descriptor of its manifest."""
    stored = []
    for number, body in enumerate(layers):
        path = tmp_path / f"layer-{number}"
        path.write_bytes(body)
        kind = OCI_LAYER + ("+gzip" if body.startswith(b"\x1f\x8b") else "")
        stored.append(await blobs.put_blob(HARBOR, path, owner=owner, media_type=kind))
    document = {"os": "linux", "architecture": "arm64", "config": config, "x-kept": 1}
    about = await blobs.put_config(HARBOR, document, owner=owner)
    parts = {"config": as_document(about), "layers": [as_document(part) for part in stored]}
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, **parts}).encode()
    return await blobs.put_manifest_bytes(HARBOR, body, owner=owner)


async def test_an_image_is_unpacked_from_the_artifact_store(blobs: ImageBlobs, images: Images, tmp_path: Path) -> None:
    manifest = await put(blobs, tmp_path, BASE, MORE, Cmd=["/run"])

    image = await images.ensure(HARBOR, manifest.digest)

    assert image.digest == manifest.digest
    assert image.config.cmd == ("/run",)
    assert sorted(path.name for path in (image.root / "etc").iterdir()) == ["again", "name"]
    assert (image.root / "etc" / "again").samefile(image.root / "etc" / "name")
    assert await images.ensure(HARBOR, manifest.digest) == image
    assert image.root.parent.stat().st_mode & 0o077 == 0


async def test_layers_are_stored_once_with_their_media_type(blobs: ImageBlobs, tmp_path: Path) -> None:
    first = await put(blobs, tmp_path, BASE, MORE)
    second = await put(blobs, tmp_path, BASE, gzip.compress(b""), owner="deployment:2")

    one, two = await blobs.manifest(HARBOR, first.digest), await blobs.manifest(HARBOR, second.digest)
    assert one.layers[0] == two.layers[0]
    assert [part.media_type for part in one.layers] == [f"{OCI_LAYER}+gzip", OCI_LAYER]


@pytest.mark.boundary("tenant-to-tenant", "An organization cannot use an image of another one by its digest.")
async def test_another_organization_has_no_access_by_a_digest(
    blobs: ImageBlobs, images: Images, tmp_path: Path
) -> None:
    manifest = await put(blobs, tmp_path, BASE)
    await images.ensure(HARBOR, manifest.digest)

    with pytest.raises(PullFailed, match="is not stored here"):
        await images.ensure(PIER, manifest.digest)
    with pytest.raises(PullFailed, match="is not stored here"):
        await blobs.read(PIER, manifest.digest)
    with pytest.raises(PullFailed, match="is not stored here"):
        await blobs.put_manifest_bytes(PIER, await blobs.read(HARBOR, manifest.digest), owner="pushed")
    assert not await blobs.has(PIER, manifest.digest)


async def test_blobs_stay_as_long_as_an_owner_refers_to_them(
    blobs: ImageBlobs, images: Images, db: Database, tmp_path: Path
) -> None:
    manifest = await put(blobs, tmp_path, BASE, owner="cache:1")
    await blobs.refer(HARBOR, manifest.digest, owner="deployment:1")

    await db.write(partial(service.unrefer, org_id=HARBOR, owner="cache:1"))
    image = await images.ensure(HARBOR, manifest.digest)
    await db.write(partial(service.unrefer, org_id=HARBOR, owner="deployment:1"))

    assert image.root.is_dir()
    assert not await blobs.has(HARBOR, manifest.digest)


async def test_an_image_that_cannot_be_unpacked_leaves_nothing(
    blobs: ImageBlobs, images: Images, tmp_path: Path
) -> None:
    manifest = await put(blobs, tmp_path, BASE, layer(Entry("../out", b"1")))

    with pytest.raises(PullFailed, match="forbidden name"):
        await images.ensure(HARBOR, manifest.digest)

    assert images.find(manifest.digest) is None
    assert list((tmp_path / "images" / "incoming").iterdir()) == []


def config_of(**config: Any) -> Any:
    return parse_config(json.dumps({"os": "linux", "architecture": "arm64", "config": config}).encode(), "arm64")


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        ({"ExposedPorts": {"8080/tcp": {}, "53/udp": {}, "80": {}}}, "exposed_ports", (80, 8080)),
        ({"StopSignal": "SIGQUIT"}, "stop_signal", 3),
        ({"StopSignal": "int"}, "stop_signal", 2),
        ({"StopSignal": "SIGRTMIN+3"}, "stop_signal", 37),
        ({"StopSignal": "9"}, "stop_signal", 9),
        ({"Healthcheck": {"Test": ["NONE"]}}, "healthcheck", None),
        ({"Healthcheck": {"Test": ["CMD", "a", "b"]}}, "healthcheck", Healthcheck(("a", "b"))),
        (
            {"Healthcheck": {"Test": ["CMD-SHELL", "a b"], "Interval": 10**9, "Retries": 2}},
            "healthcheck",
            Healthcheck(("/bin/sh", "-c", "a b"), interval_s=1.0, retries=2),
        ),
        (
            {"Healthcheck": {"Test": ["CMD-SHELL", "a"], "Timeout": 5 * 10**8}, "Shell": ["/bin/ash", "-ec"]},
            "healthcheck",
            Healthcheck(("/bin/ash", "-ec", "a"), timeout_s=0.5),
        ),
        ({"Labels": {"a": "b"}}, "labels", {"a": "b"}),
        ({"Volumes": {"/b": {}, "/a": {}}}, "volumes", ("/a", "/b")),
        ({"OnBuild": ["RUN true"]}, "onbuild", ("RUN true",)),
    ],
)
def test_a_configuration_is_read(config: dict[str, Any], name: str, value: object) -> None:
    assert getattr(config_of(**config), name) == value


@pytest.mark.parametrize(
    "config",
    [
        {"ExposedPorts": {"80000/tcp": {}}},
        {"ExposedPorts": ["80"]},
        {"StopSignal": "SIGNOTHING"},
        {"StopSignal": "SIGRTMIN+99"},
        {"Healthcheck": {"Test": ["PERHAPS", "a"]}},
        {"Healthcheck": {"Test": ["CMD", "a"], "Interval": -1}},
        {"Healthcheck": {"Test": ["CMD", "a"], "Retries": True}},
        {"Labels": {"a": 1}},
    ],
)
def test_an_invalid_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(BadImage):
        config_of(**config)
