"""Copies an image of a registry into the artifact store of an organization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from moorage.core import disk
from moorage.core.kit.records import dataclass
from moorage.errors import DiskFull
from moorage.runtime.images import machine, manifests, partial_files
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.manifests import BadImage, Descriptor, Index, Manifest
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sizes import size_text
from moorage.runtime.images.sources import Source
from moorage.runtime.images.store import MAX_CONFIG_BYTES, Limits


@dataclass(frozen=True)
class Copy:
    """The copy of one image; all its parts get the same owner."""

    source: Source
    blobs: ImageBlobs
    org_id: int
    owner: str
    folder: Path  # for downloads
    reserve_mb: int  # of the disk
    say: Callable[[str], None]

    async def run(self, wanted: str) -> str:
        """Copy the image of a tag or digest for this machine; return its digest. Raises PullFailed."""
        digest, document = await self.source.manifest(wanted)
        if isinstance(document, Index):
            digest, document = await self.source.manifest(document.choose(machine.architecture()).digest)
        if isinstance(document, Index):
            raise BadImage("the image's index refers to another index")
        most = Limits().packed_bytes
        if document.packed_bytes > most:
            raise BadImage(f"the image has {size_text(document.packed_bytes)} of layers; {size_text(most)} are allowed")
        await self._copy_config(document.config)
        for number, layer in enumerate(document.layers, 1):
            await self._copy_layer(layer, f"Layer {number} of {len(document.layers)}: {size_text(layer.size)}")
        return await self._store_manifest(digest, document)

    async def _copy_config(self, config: Descriptor) -> None:
        body = await self.source.read(config, MAX_CONFIG_BYTES)
        manifests.parse_config(body, machine.architecture())
        await self.blobs.put_config(self.org_id, body, owner=self.owner)

    async def _copy_layer(self, layer: Descriptor, line: str) -> None:
        """Copy a layer, unless the organization has it already."""
        if await self.blobs.has(self.org_id, layer.digest):
            return
        self.say(line)
        try:
            disk.check_room(self.folder, 2 * layer.size, self.reserve_mb)  # the download, and its stored copy
        except DiskFull:
            raise PullFailed("the platform's disk is almost full") from None
        with partial_files.held(self.folder.parent, str(self.org_id), layer.digest) as path:
            await self.source.download(layer, path)
            await self.blobs.put_blob(self.org_id, path, owner=self.owner)

    async def _store_manifest(self, digest: str, document: Manifest) -> str:
        body, media_type = await self.source.document(digest)
        stored = await self.blobs.put_manifest_bytes(self.org_id, body, owner=self.owner, media_type=media_type)
        return stored.digest
