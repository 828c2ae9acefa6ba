"""Images in the artifact store: manifest, configuration and layers are artifacts by their own digests.

So layers that several images share are stored once. All blobs of an image are referenced with the same owner, such as
that of a deployment, and are collected after `core.artifacts.service.unrefer` of that owner.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.artifacts import service as artifacts_service
from moorage.core.artifacts.objects import ArtifactDamaged, ArtifactsUnavailable
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.errors import NotFound
from moorage.runtime.images.manifests import (
    OCI_CONFIG,
    OCI_MANIFEST,
    BadImage,
    Descriptor,
    Index,
    Manifest,
    parse_manifest,
)
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sizes import MB

MAX_DOCUMENT_BYTES = 8 * MB  # of a manifest or configuration
_PREFIX = "sha256:"


class ImageBlobs:
    """Blobs of images of all organizations; an organization reads only blobs that it has a reference to."""

    def __init__(self, db: Database, artifacts: ArtifactStore) -> None:
        self._db = db
        self._artifacts = artifacts

    async def put_blob(self, org_id: int, path: Path, *, owner: str, media_type: str = "") -> Descriptor:
        """Store a file as it is, such as a part that a client pushes."""
        stored = await self._artifacts.put_file(org_id, path, owner=owner)
        return Descriptor(media_type, _PREFIX + stored.digest, stored.size)

    async def put_config(
        self, org_id: int, config: Mapping[str, Any] | bytes, *, owner: str, media_type: str = OCI_CONFIG
    ) -> Descriptor:
        body = config if isinstance(config, bytes) else _encode(config)
        return await self._put_document(org_id, body, media_type, owner)

    async def put_manifest_bytes(
        self, org_id: int, body: bytes, *, owner: str, media_type: str = OCI_MANIFEST
    ) -> Descriptor:
        """Store a manifest as a client sent it, which its digest depends on; raises BadImage.

        The organization must have all its blobs; they get references of this owner.
        """
        manifest = parse_manifest(body, media_type)
        if isinstance(manifest, Index):
            raise BadImage("an index of images cannot be stored here: push the image for this machine")
        await self._db.write(partial(_refer_all, org_id=org_id, owner=owner, parts=_parts(manifest)))
        return await self._put_document(org_id, body, media_type, owner)

    async def refer(self, org_id: int, digest: str, *, owner: str) -> None:
        """Add references to all blobs of an image that the organization has; raises PullFailed."""
        own = Descriptor(OCI_MANIFEST, digest, 0)
        parts = [own, *_parts(await self.manifest(org_id, digest))]
        await self._db.write(partial(_refer_all, org_id=org_id, owner=owner, parts=parts))

    async def manifest(self, org_id: int, digest: str) -> Manifest:
        """Return the manifest of an image; raises PullFailed."""
        manifest = parse_manifest(await self.read(org_id, digest), OCI_MANIFEST)
        if isinstance(manifest, Index):
            raise BadImage("the image's manifest is an index")
        return manifest

    async def has(self, org_id: int, digest: str) -> bool:
        try:
            await self.size(org_id, digest)
        except PullFailed:
            return False
        return True

    async def size(self, org_id: int, digest: str) -> int:
        """Return the size of a blob; raises PullFailed."""
        try:
            get = partial(artifacts_service.get, org_id=org_id, digest=_hex(digest))
            return (await self._db.peek(get)).size
        except NotFound:
            raise _missing(digest) from None

    async def read(self, org_id: int, digest: str) -> bytes:
        """Return a manifest or configuration; raises PullFailed."""
        if await self.size(org_id, digest) > MAX_DOCUMENT_BYTES:
            raise BadImage("a document of the image is too large")
        with tempfile.TemporaryDirectory(prefix="moorage-blob-") as folder:
            target = Path(folder, "document")
            await self.fetch(org_id, digest, target)
            return await asyncio.to_thread(target.read_bytes)

    async def fetch(self, org_id: int, digest: str, target: Path) -> None:
        """Write a blob to a file, verified; raises PullFailed."""
        try:
            await self._artifacts.fetch(org_id, _hex(digest), target)
        except NotFound:
            raise _missing(digest) from None
        except (ArtifactDamaged, ArtifactsUnavailable) as error:
            raise PullFailed(f"a part of the image cannot be read from the artifact store: {error}") from None

    async def _put_document(self, org_id: int, body: bytes, media_type: str, owner: str) -> Descriptor:
        if len(body) > MAX_DOCUMENT_BYTES:
            raise BadImage("a document of the image is too large")
        stored = await self._artifacts.put_bytes(org_id, body, owner=owner)
        return Descriptor(media_type, _PREFIX + stored.digest, stored.size)


def as_document(part: Descriptor) -> dict[str, Any]:
    return {"mediaType": part.media_type, "digest": part.digest, "size": part.size}


def _parts(manifest: Manifest) -> list[Descriptor]:
    return [manifest.config, *manifest.layers]


def _refer_all(tx: Tx, org_id: int, owner: str, parts: Sequence[Descriptor]) -> None:
    for part in sorted(parts, key=lambda each: each.digest):  # one order of locks for all transactions
        try:
            artifacts_service.refer(tx, org_id, _hex(part.digest), owner)
        except NotFound:
            raise _missing(part.digest) from None


def _missing(digest: str) -> PullFailed:
    return PullFailed(f"the image's part {digest[:80]} is not stored here")


def _hex(digest: str) -> str:
    return digest.removeprefix(_PREFIX)


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
