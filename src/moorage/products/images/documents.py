"""Manifests and indexes as clients push them.

Parts that are not container images, such as attestations in an index, are stored as they are. Only the image of a tag
has to be one that this platform can run: `runtime.images.manifests` checks that.
"""

from __future__ import annotations

from typing import Any

from moorage.core.kit.records import dataclass
from moorage.products.images.failures import Refused
from moorage.runtime.images.manifests import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    MAX_LAYERS,
    OCI_INDEX,
    OCI_MANIFEST,
    BadImage,
    read_object,
)
from moorage.runtime.images.references import is_digest

MAX_ENTRIES = 256
# The stored type is the Content-Type of later answers, so a push must not choose one that browsers show as a page.
MEDIA_TYPES = frozenset({OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST})


@dataclass(frozen=True, slots=True)
class Document:
    """The parts that a manifest names, with their sizes."""

    media_type: str
    blobs: dict[str, int]  # configuration and layers
    manifests: dict[str, int]  # entries of an index

    @property
    def digests(self) -> list[str]:
        return [*self.blobs, *self.manifests]


def parse(body: bytes, content_type: str) -> Document:
    """Parse a pushed manifest; raises Refused."""
    try:
        document = read_object(body, "manifest")
    except BadImage as error:
        raise invalid(str(error)) from None
    media_type = content_type.partition(";")[0].strip()
    if document.get("mediaType", media_type) != media_type or not media_type:
        raise invalid("the Content-Type is not the mediaType of the manifest")
    if media_type not in MEDIA_TYPES:
        raise invalid(f"manifests of the type {media_type!r} are not supported")
    if "manifests" in document:
        return Document(media_type, {}, _sizes(document["manifests"], MAX_ENTRIES))
    if "config" not in document or "layers" not in document:
        raise invalid("the manifest has neither layers nor manifests; old formats of Docker are not supported")
    blobs = _sizes([document["config"]], 1) | _sizes(document["layers"], MAX_LAYERS)
    return Document(media_type, blobs, {})


def _sizes(entries: Any, most: int) -> dict[str, int]:
    if not isinstance(entries, list) or len(entries) > most:
        raise invalid(f"the manifest names more than {most} parts in a list, or no list")
    sizes: dict[str, int] = {}
    for entry in entries:
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        if not isinstance(digest, str) or not is_digest(digest):
            raise invalid("the manifest names a part without a SHA-256 digest")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise invalid("the manifest names a part without a size")
        sizes[digest] = size
    return sizes


def invalid(message: str) -> Refused:
    return Refused(400, "MANIFEST_INVALID", message)
