"""Pushes to a real registry: whole images, missing parts only, accounts, and a registry that is away."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from tests.ports import free_port
from tests.runtime.images.registry_support import (
    LOOPBACK,
    QUICK,
    Entry,
    RegistryServer,
    fronting,
    layer,
    running_registry,
)

from moorage.runtime.builds.release_images import ReleaseImages
from moorage.runtime.images import machine
from moorage.runtime.images.manifests import OCI_MANIFEST
from moorage.runtime.images.pushing.client import PushClient, PushFailed
from moorage.runtime.images.pushing.transfer import Transfer, registry_image
from moorage.runtime.images.sources import Sources

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        packed = [layer(Entry("etc/one", b"1")), layer(Entry("etc/two", b"2"))]
        running.push("public", *packed, architecture=machine.architecture(), Cmd=["/bin/app"])
        yield running


@pytest.fixture
async def client(registry: RegistryServer) -> AsyncIterator[PushClient]:
    made = PushClient(f"http://127.0.0.1:{registry.port}/pods", wait_s=0.01)
    yield made
    await made.close()


SOURCES = Sources(LOOPBACK, QUICK)


async def test_an_image_is_copied_to_the_repository_of_an_organization(
    registry: RegistryServer, client: PushClient, tmp_path: Path
) -> None:
    said: list[str] = []
    async with registry_image(SOURCES, registry.reference("public"), 7) as parts:
        pushed = await Transfer(client, tmp_path).push(7, parts, said.append)
        again = await Transfer(client, tmp_path).push(7, parts, said.append)

    assert pushed == again
    assert pushed.reference == f"127.0.0.1:{registry.port}/pods/org-7@{pushed.digest}"
    assert pushed.config.cmd == ("/bin/app",)
    assert [line.partition(":")[0] for line in said] == ["Layer 1 of 2", "Layer 2 of 2"]
    assert registry.call("GET", f"/v2/pods/org-7/manifests/{pushed.digest}", Accept=OCI_MANIFEST).status == 200


async def test_a_folder_becomes_an_image_on_top_of_the_base(
    registry: RegistryServer, client: PushClient, tmp_path: Path
) -> None:
    release, runtime = tmp_path / "release", tmp_path / "python"
    for folder in (release, runtime):
        folder.mkdir()
        (folder / "main").write_text(folder.name)
    images = ReleaseImages(f"127.0.0.1:{registry.port}/public", SOURCES, client, tmp_path / "pushes")

    pushed = await images.push(8, "a" * 64, {"/work": release}, {"/opt/python": runtime})
    again = await images.push(8, "a" * 64, {"/work": release}, {"/opt/python": runtime})
    fresh = ReleaseImages(f"127.0.0.1:{registry.port}/public", SOURCES, client, tmp_path / "pushes")

    assert pushed == again == await fresh.push(8, "a" * 64, {"/work": release}, {"/opt/python": runtime})
    assert pushed.config.user == "1000"
    answer = registry.call("GET", f"/v2/pods/org-8/manifests/{pushed.digest}", Accept=OCI_MANIFEST)
    manifest = json.loads(answer.read())
    config = json.loads(registry.call("GET", f"/v2/pods/org-8/blobs/{manifest['config']['digest']}").read())
    assert (len(manifest["layers"]), len(config["rootfs"]["diff_ids"])) == (4, 4)
    assert list((tmp_path / "pushes").glob("*.gz")) == []


async def test_a_folder_that_changed_is_an_image_of_another_organization_too(
    registry: RegistryServer, client: PushClient, tmp_path: Path
) -> None:
    release, runtime = tmp_path / "release", tmp_path / "python"
    for folder in (release, runtime):
        folder.mkdir()
        (folder / "main").write_text(folder.name)
    images = ReleaseImages(f"127.0.0.1:{registry.port}/public", SOURCES, client, tmp_path / "pushes")
    first = await images.push(9, "a" * 64, {"/work": release}, {"/opt/python": runtime})
    (runtime / "cache").write_text("written by a program since")
    os.utime(release / "main", (1, 1))

    second = await images.push(10, "a" * 64, {"/work": release}, {"/opt/python": runtime})

    assert second.digest != first.digest
    answer = registry.call("GET", f"/v2/pods/org-10/manifests/{second.digest}", Accept=OCI_MANIFEST)
    for each in json.loads(answer.read())["layers"]:
        assert registry.call("HEAD", f"/v2/pods/org-10/blobs/{each['digest']}").status == 200


async def test_layers_of_a_base_at_the_same_registry_are_not_transferred(
    registry: RegistryServer, client: PushClient, tmp_path: Path
) -> None:
    release, uploads = tmp_path / "release", list[str]()
    release.mkdir()
    (release / "main").write_text("new")

    async def note(request: httpx2.Request) -> None:
        if request.method == "PUT" and "/uploads/" in request.url.path:
            uploads.append(request.url.params["digest"])

    client._client().event_hooks["request"].append(note)
    images = ReleaseImages(f"127.0.0.1:{registry.port}/public", SOURCES, client, tmp_path / "pushes")

    pushed = await images.push(11, "b" * 64, {"/work": release}, {})

    answer = registry.call("GET", f"/v2/pods/org-11/manifests/{pushed.digest}", Accept=OCI_MANIFEST)
    manifest = json.loads(answer.read())
    *base, own = [each["digest"] for each in manifest["layers"]]
    assert uploads == [own, manifest["config"]["digest"]]
    for digest in (*base, own):
        assert registry.call("HEAD", f"/v2/pods/org-11/blobs/{digest}").status == 200


async def test_a_blob_that_cannot_be_mounted_has_to_be_uploaded(registry: RegistryServer, client: PushClient) -> None:
    assert not await client.mount("pods/org-12", f"sha256:{'0' * 64}", "public")


async def test_a_registry_that_wants_an_account_gets_it_and_a_wrong_one_is_a_sentence(
    registry: RegistryServer, tmp_path: Path
) -> None:
    right = "Basic " + base64.b64encode(b"platform:secret").decode()

    async def before(request: web.Request) -> web.StreamResponse | None:
        if request.headers.get("Authorization") == right:
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="registry"'})

    async with fronting(registry, before) as front:
        url = f"http://127.0.0.1:{front.port}"
        await PushClient(url, "platform", "secret").check()
        with pytest.raises(PushFailed, match="wants an account"):
            await PushClient(url).check()
        with pytest.raises(PushFailed, match="status 401"):
            await PushClient(url, "platform", "wrong").check()


async def test_a_registry_that_is_away_is_a_sentence() -> None:
    with pytest.raises(PushFailed, match="does not answer"):
        await PushClient(f"http://127.0.0.1:{free_port()}", wait_s=0.001).check()
