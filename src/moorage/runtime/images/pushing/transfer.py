"""Copies one image to the registry: only the parts that the registry does not have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from weakref import WeakValueDictionary

from moorage.core.kit.records import dataclass
from moorage.runtime.images import machine, manifests
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.manifests import OCI_MANIFEST, BadImage, Descriptor, ImageConfig, Index, Manifest
from moorage.runtime.images.pushing.client import PushClient
from moorage.runtime.images.references import Reference
from moorage.runtime.images.sizes import size_text
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import MAX_CONFIG_BYTES, Limits


@dataclass(frozen=True)
class ImageParts:
    """An image, and access to its parts."""

    digest: str
    body: bytes  # of the manifest
    media_type: str
    manifest: Manifest
    config: bytes
    download: Callable[[Descriptor, Path], Awaitable[None]]
    # Repository of this registry that has a layer, by digest. Never from a user: the platform's account reads them all.
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def image_config(self) -> ImageConfig:
        return manifests.parse_config(self.config, machine.architecture())


@dataclass(frozen=True)
class Pushed:
    """An image at the registry."""

    reference: str
    digest: str
    config: ImageConfig


class Transfer:
    """Pushes images. Pushes of the same image wait for each other."""

    def __init__(self, client: PushClient, folder: Path) -> None:
        self._client = client
        self._folder = folder  # for layers on their way
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, org_id: int, parts: ImageParts, say: Callable[[str], None] = lambda _: None) -> Pushed:
        """Copy an image for an organization; raises PushFailed and PullFailed. Safe to repeat."""
        config = parts.image_config
        repository = self._client.repository_of(org_id)
        async with self._locks.setdefault(f"{repository}@{parts.digest}", asyncio.Lock()):
            if not await self._client.has(repository, "manifests", parts.digest):
                await self._push(repository, parts, say)
        return Pushed(self._client.reference(repository, parts.digest), parts.digest, config)

    async def _push(self, repository: str, parts: ImageParts, say: Callable[[str], None]) -> None:
        most = Limits().packed_bytes
        if parts.manifest.packed_bytes > most:
            size = size_text(parts.manifest.packed_bytes)
            raise BadImage(f"the image has {size} of layers; {size_text(most)} are allowed")
        layers = parts.manifest.layers
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix="push-", dir=self._folder) as scratch:
            target = Path(scratch, "part")
            for number, layer in enumerate(layers, 1):
                if await self._client.has(repository, "blobs", layer.digest):
                    continue
                origin = parts.origins.get(layer.digest, "")
                if origin and await self._client.mount(repository, layer.digest, origin):
                    continue
                say(f"Layer {number} of {len(layers)}: {size_text(layer.size)}")
                target.unlink(missing_ok=True)
                await parts.download(layer, target)
                await self._client.put_blob(repository, layer.digest, target)
            if not await self._client.has(repository, "blobs", parts.manifest.config.digest):
                await asyncio.to_thread(target.write_bytes, parts.config)
                await self._client.put_blob(repository, parts.manifest.config.digest, target)
        await self._client.put_manifest(repository, parts.digest, parts.body, parts.media_type)


async def stored_image(blobs: ImageBlobs, org_id: int, digest: str) -> ImageParts:
    """Return an image of the artifact store; raises PullFailed."""
    body = await blobs.read(org_id, digest)
    manifest = manifests.parse_manifest(body, OCI_MANIFEST)
    if isinstance(manifest, Index):
        raise BadImage("the image's manifest is an index")
    media_type = json.loads(body).get("mediaType") or OCI_MANIFEST

    async def download(part: Descriptor, target: Path) -> None:
        await blobs.fetch(org_id, part.digest, target)

    config = await blobs.read(org_id, manifest.config.digest)
    return ImageParts(digest, body, media_type, manifest, config, download)


@contextlib.asynccontextmanager
async def registry_image(sources: Sources, reference: Reference, org_id: int | None) -> AsyncIterator[ImageParts]:
    """Yield an image of a registry for the architecture of this machine; raises PullFailed."""
    async with sources.open(reference, org_id) as source:
        digest, document = await source.manifest(reference.wanted)
        if isinstance(document, Index):
            digest, document = await source.manifest(document.choose(machine.architecture()).digest)
        if isinstance(document, Index):
            raise BadImage("the image's index refers to another index")
        body, media_type = await source.document(digest)
        config = await source.read(document.config, MAX_CONFIG_BYTES)
        yield ImageParts(digest, body, media_type or OCI_MANIFEST, document, config, source.download)
