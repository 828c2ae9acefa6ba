"""Stores the result of a build: configuration and manifest, and the references to all layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from moorage.core.artifacts import service as artifacts
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.runtime.images.building.ports import ImageRequest, Layer
from moorage.runtime.images.building.state import OwnLayer, StageState
from moorage.runtime.images.manifests import OCI_MANIFEST

OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"


def layers_of(base: Sequence[Layer], own: Sequence[OwnLayer]) -> tuple[Layer, ...]:
    made = (Layer(f"sha256:{each.digest}", each.size, OCI_LAYER, f"sha256:{each.digest}") for each in own)
    return (*base, *made)


async def store(
    db: Database, store: ArtifactStore, request: ImageRequest, state: StageState, layers: Sequence[Layer]
) -> str:
    """Store an image for the owner of the request; return the digest of its manifest."""
    created_at = state.created_at or db.env.clock.now()
    body = state.config.encode([layer.diff_id for layer in layers], created_at)
    config = await store.put_bytes(request.org_id, body, owner=request.owner)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _descriptor(OCI_CONFIG, f"sha256:{config.digest}", config.size),
        "layers": [_descriptor(layer.media_type, layer.digest, layer.size) for layer in layers],
    }
    encoded = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    stored = await store.put_bytes(request.org_id, encoded, owner=request.owner)
    digests = [layer.digest.removeprefix("sha256:") for layer in layers]
    await db.write(partial(_refer, org_id=request.org_id, owner=request.owner, digests=digests))
    return f"sha256:{stored.digest}"


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _refer(tx: Tx, org_id: int, owner: str, digests: Sequence[str]) -> None:
    for digest in digests:
        artifacts.refer(tx, org_id, digest, owner)
