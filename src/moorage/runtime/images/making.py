"""The image store of this machine, as the settings describe it."""

from __future__ import annotations

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.sizes import GB, MB
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images, Limits


def make_images(db: Database, artifacts: ArtifactStore, sources: Sources | None = None) -> Images:
    """Return the image store; `sources` has the credentials and mirrors of registries, where images are pulled."""
    settings = db.env.settings
    limits = Limits(
        reserve_bytes=settings.disk_reserve_mb * MB,
        organization_bytes=settings.images_gb * GB,
        organization_entries=settings.image_files,
    )
    blobs = ImageBlobs(db, artifacts)
    return Images(
        settings.folder("images"),
        settings.targets,
        db.env.clock,
        limits=limits,
        sources=sources,
        blobs=blobs,
        layer_folders=LayerFolders(settings.folder("image-layers")),
    )
