"""Store a ready image for a deployment: from a registry, or as pushed to this platform.

All parts of the image are stored with the organization's artifacts, so that it runs on every machine, also after its
registry has removed it. A tag is resolved again by each deployment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.runtime.images import copying, machine, manifests, references
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.manifests import Index
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.sources import Sources
from moorage.settings import Settings

# Return the digest of an image that the organization pushed to this platform: takes its id and the reference.
FIND_PUSHED: Hook[[Tx, int, Reference], str | None] = Hook("image.find_pushed")


def own_registry(settings: Settings) -> str:
    """Return the name of this platform in image references."""
    return urlsplit(settings.api_url).netloc.lower()


class ReadyImages:
    def __init__(self, db: Database, blobs: ImageBlobs, sources: Sources) -> None:
        self._db = db
        self._blobs = blobs
        self._sources = sources

    async def store(self, org_id: int, image: str, owner: str, say: Callable[[str], None]) -> str:
        """Store an image with an owner of artifacts; return the digest of its manifest. Raises PullFailed."""
        try:
            reference = references.parse(image)
        except ValueError as error:
            raise PullFailed(str(error)) from None
        try:
            if reference.registry == own_registry(self._db.env.settings):
                digest = await self._refer_pushed(org_id, reference, owner)
            else:
                digest = await self._copy(org_id, reference, owner, say)
        except PullFailed as error:
            raise PullFailed(f"Cannot pull {reference}: {error}") from None
        say(f"Image {reference}: {digest}")
        return digest

    async def _refer_pushed(self, org_id: int, reference: Reference, owner: str) -> str:
        pushed = await self._db.read(partial(_find_pushed, org_id=org_id, reference=reference))
        if pushed is None:
            raise PullFailed("no such image was pushed to this platform")
        document = manifests.parse_manifest(await self._blobs.read(org_id, pushed), manifests.OCI_MANIFEST)
        digest = document.choose(machine.architecture()).digest if isinstance(document, Index) else pushed
        await self._blobs.refer(org_id, digest, owner=owner)
        return digest

    async def _copy(self, org_id: int, reference: Reference, owner: str, say: Callable[[str], None]) -> str:
        settings = self._db.env.settings
        incoming = settings.folder("images") / "incoming"
        incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=incoming, prefix="copy-") as folder:
            async with self._sources.open(reference, org_id) as source:
                copy = copying.Copy(source, self._blobs, org_id, owner, Path(folder), settings.disk_reserve_mb, say)
                return await copy.run(reference.wanted)


def _find_pushed(tx: Tx, org_id: int, reference: Reference) -> str | None:
    digests = tx.env.hooks.call(FIND_PUSHED, tx, org_id, reference)
    return next((digest for digest in digests if digest is not None), None)
