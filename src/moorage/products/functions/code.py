"""The code of functions as it runs: the artifacts of their versions, unpacked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from moorage.core.artifacts import service as artifact_service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import YOUNG_MS, Unpacked, harden, remove, walk
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import zips
from moorage.products.functions import tables
from moorage.settings import Settings

__all__ = ["STORED", "collect", "ensure_unpacked", "folder_of", "harden", "new_folder", "place", "remove", "walk"]

MB = 2**20
# What we packed ourselves, dependencies included; `packages` sees to it that nothing larger is stored.
STORED = zips.Caps(packed_bytes=256 * MB, unpacked_bytes=256 * MB, entries=50_000, path_chars=1024, depth=64)


def folder_of(settings: Settings, digest: str) -> Path:
    return _folders(settings).folder_of(digest)


def new_folder(settings: Settings) -> Path:
    return _folders(settings).new_folder()


async def place(settings: Settings, digest: str, prepared: Path) -> Path:
    return await _folders(settings).place(digest, prepared)


async def ensure_unpacked(settings: Settings, artifacts: ArtifactStore, org_id: int, digest: str) -> Path:
    return await _folders(settings).ensure(artifacts, org_id, digest)


async def remove_unused(db: Database, digests: Iterable[str]) -> int:
    """Remove the folders of those digests that no version runs; return how many were there. Safe to repeat."""
    return await _folders(db.env.settings).remove_unused(db, digests)


async def collect(db: Database, settings: Settings) -> int:
    """Remove what crashes and deleted functions left behind, once it is old; return how many folders that were."""
    await db.write(partial(_drop_abandoned, before=db.env.clock.trusted_now() - YOUNG_MS))
    return await _folders(settings).collect(db)


@across_organizations("equal code has one folder, whoever runs it")
def _is_run(tx: Tx, digest: str) -> bool:
    return tx.find(tables.IS_RUN_BY_ANY, digest=digest) is not None


@across_organizations("a deployment of any organization may have died")
def _drop_abandoned(tx: Tx, before: int) -> None:
    """Take back the references of deployments that ended without a version, because their process did."""
    for org_id, owner in tx.all(tables.UNDER_WAY):
        if int(owner.split(":")[1]) < before:
            artifact_service.unrefer(tx, org_id, owner)


def _folders(settings: Settings) -> Unpacked:
    return Unpacked(settings.folder("code"), STORED, is_used=_is_run)
