"""Base images of a build: their configuration, their layers in the artifact store, their files on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.images import manifests
from moorage.runtime.images.building.cache import LayerCache
from moorage.runtime.images.building.ports import Layer, Workspace
from moorage.runtime.images.building.threads import to_end
from moorage.runtime.images.packed.compression import open_layer
from moorage.runtime.images.packed.headers import BROKEN
from moorage.runtime.images.references import PullFailed, Reference, parse
from moorage.runtime.images.sizes import MAX_UNPACKED_BYTES, size_text
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import MAX_CONFIG_BYTES, Images, Limits

MAX_PACKED_BYTES = Limits().packed_bytes
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Base:
    reference: Reference  # by digest
    manifest: manifests.Manifest
    document: dict[str, Any]  # configuration

    @property
    def digest(self) -> str:
        assert self.reference.digest is not None
        return self.reference.digest


class Bases:
    """Base images of one build."""

    def __init__(
        self,
        images: Images,
        sources: Sources,
        architecture: str,
        cache: LayerCache,
        workspace: Workspace,
        check_room: Callable[[int], None],
        *,
        has_credentials: bool = True,
    ) -> None:
        """`check_room` raises DiskFull. Without credentials, private images are not found."""
        self._pulls_as = cache.org_id if has_credentials else None
        self._images = images
        self._sources = sources
        self._architecture = architecture
        self._cache = cache
        self._scratch = workspace.scratch
        self._say = workspace.say
        self._check_room = check_room
        self._known: dict[str, Base] = {}
        self._roots: dict[str, Path] = {}
        self._stored: dict[str, list[Layer]] = {}

    async def resolve(self, name: str) -> Base:
        """Return an image by its reference; raises PullFailed."""
        if name not in self._known:
            try:
                self._known[name] = await self._resolve(name)
            except PullFailed as error:
                raise PullFailed(f"cannot pull {name}: {error}") from None
        return self._known[name]

    async def _resolve(self, name: str) -> Base:
        reference = parse(name)
        async with self._sources.open(reference, self._pulls_as) as source:
            digest, manifest = await source.manifest(reference.wanted)
            if isinstance(manifest, manifests.Index):
                digest, manifest = await source.manifest(manifest.choose(self._architecture).digest)
            if isinstance(manifest, manifests.Index):
                raise manifests.BadImage("the image's index refers to another index")
            if manifest.packed_bytes > MAX_PACKED_BYTES:
                sizes = f"{size_text(manifest.packed_bytes)} of layers; {size_text(MAX_PACKED_BYTES)} are allowed"
                raise manifests.BadImage(f"the image has {sizes}")
            body = await source.read(manifest.config, MAX_CONFIG_BYTES)
        manifests.parse_config(body, self._architecture)  # raises for another architecture
        return Base(replace(reference, tag=None, digest=digest), manifest, json.loads(body))

    async def root(self, base: Base) -> Path:
        """Return the unpacked files of an image, pulled if necessary."""
        if base.digest not in self._roots:
            image = await self._images.pull(base.reference, self._say, self._cache.org_id)
            self._roots[base.digest] = image.root
        return self._roots[base.digest]

    async def store(self, base: Base) -> list[Layer]:
        """Return the layers of an image; layers that the organization has not stored yet are downloaded."""
        if base.digest not in self._stored:
            self._stored[base.digest] = await self._store(base)
        return self._stored[base.digest]

    async def _store(self, base: Base) -> list[Layer]:
        known = _diff_ids(base)
        layers: list[Layer] = []
        for number, layer in enumerate(base.manifest.layers):
            digest = layer.digest.removeprefix("sha256:")
            diff_id = known[number] if known else None
            if diff_id is None or not await self._cache.has(digest):
                self._say(f"Layer {number + 1} of {len(base.manifest.layers)}: {size_text(layer.size)}")
                diff_id = await self._download(base, layer, diff_id)
            await self._cache.add(f"base:{digest}", digest, layer.size)
            layers.append(Layer(layer.digest, layer.size, _media_type(layer.media_type), diff_id))
        return layers

    async def _download(self, base: Base, layer: manifests.Descriptor, diff_id: str | None) -> str:
        path = self._scratch / "base-layer"
        self._check_room(2 * layer.size)  # the download, and its stored copy
        try:
            async with self._sources.open(base.reference, self._pulls_as) as source:
                await source.download(layer, path)
            await self._cache.put(path)
            return await to_end(_diff_id, path) if diff_id is None else diff_id
        finally:
            path.unlink(missing_ok=True)


def _diff_ids(base: Base) -> Sequence[str] | None:
    """Return the digests of the uncompressed layers; None if the configuration does not have them all."""
    rootfs = base.document.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(diff_ids, list) or len(diff_ids) != len(base.manifest.layers):
        return None
    return diff_ids if all(isinstance(each, str) for each in diff_ids) else None


def _diff_id(path: Path) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        with open_layer(path) as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
                size += len(block)
                if size > MAX_UNPACKED_BYTES:
                    raise PullFailed(f"a layer of the image unpacks to more than {size_text(MAX_UNPACKED_BYTES)}")
    except (*BROKEN, OSError) as error:
        raise PullFailed(f"a layer of the image cannot be read: {error}") from None
    return f"sha256:{digest.hexdigest()}"


def _media_type(given: str) -> str:
    """Return the OCI media type of a layer."""
    packing = given.rpartition("tar")[2].lstrip(".+")
    return f"application/vnd.oci.image.layer.v1.tar{f'+{packing}' if packing else ''}"
