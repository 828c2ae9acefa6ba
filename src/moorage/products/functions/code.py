"""Unpacked code of functions: the artifacts of their versions as folders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from moorage.core.artifacts import service as artifact_service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import YOUNG_MS, Unpacked, harden, walk
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit import zips
from moorage.core.kit.processes.deletions import delete
from moorage.products.functions import tables
from moorage.settings import Settings

__all__ = ["STORED", "collect", "ensure_unpacked", "folder_of", "harden", "new_folder", "place", "remove", "walk"]

MB = 2**20
# Limits of stored packages, including dependencies; `packages` enforces them.
STORED = zips.Caps(packed_bytes=256 * MB, unpacked_bytes=256 * MB, entries=50_000, path_chars=1024, depth=64)


def folder_of(settings: Settings, digest: str) -> Path:
    return _folders(settings).folder_of(digest)


def new_folder(settings: Settings) -> Path:
    return _folders(settings).new_folder()


async def place(settings: Settings, digest: str, prepared: Path) -> Path:
    return await _folders(settings).place(digest, prepared)


async def ensure_unpacked(settings: Settings, artifacts: ArtifactStore, org_id: int, digest: str) -> Path:
    return await _folders(settings).ensure(artifacts, org_id, digest)


async def remove(folder: Path) -> None:
    """Remove a folder that no version uses; `collect` removes the rest if that fails."""
    await asyncio.to_thread(delete, folder)


async def remove_unused(db: Database, digests: Iterable[str]) -> int:
    """Remove the folders of digests without a version; return their number."""
    return await _folders(db.env.settings).remove_unused(db, digests)


async def collect(db: Database, settings: Settings) -> int:
    """Remove old leftovers of crashes and deleted functions; return the folder count."""
    await db.write(partial(_drop_abandoned, before=db.env.clock.trusted_now() - YOUNG_MS))
    return await _folders(settings).collect(db)


@across_organizations("all organizations share one folder for equal code")
def _is_used(tx: Tx, digest: str) -> bool:
    return tx.find(tables.IS_USED, digest=digest) is not None


@across_organizations("a deployment of any organization may have died")
def _drop_abandoned(tx: Tx, before: int) -> None:
    """Delete the artifact references of deployments that died with their process."""
    for org_id, owner in tx.all(tables.DEPLOYMENT_REFERENCES):
        if int(owner.split(":")[1]) < before:
            artifact_service.unrefer(tx, org_id, owner)


def _folders(settings: Settings) -> Unpacked:
    return Unpacked(settings.folder("code"), STORED, is_used=_is_used)
