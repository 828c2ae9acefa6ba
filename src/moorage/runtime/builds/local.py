"""Builds on this machine: a folder for the repository, the builder, and the artifact of its result."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.kit.processes import deletions
from moorage.runtime.builds import collect
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Built, Plan, Sink, Source, StoredBuild
from moorage.runtime.sandbox.heavy import Refused
from moorage.settings import Settings

PACK = f"{collect.__name__}:pack"


class LocalBuilds:
    def __init__(
        self,
        settings: Settings,
        builder: Builder,
        artifacts: ArtifactStore,
        releases_of: Callable[[Plan], Unpacked],
    ) -> None:
        """`releases_of` returns the folders from which the result runs on this machine."""
        self._settings = settings
        self._builder = builder
        self._artifacts = artifacts
        self._releases_of = releases_of

    def with_releases(self, releases: Unpacked) -> LocalBuilds:
        """Return builds with the same queue and other folders for their results."""
        return LocalBuilds(self._settings, self._builder, self._artifacts, lambda _: releases)

    async def build(self, request: BuildRequest, source: Source, sink: Sink) -> StoredBuild:
        scratch = self._settings.folder("builds") / secrets.token_hex(8)
        folder = scratch / "source"
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, mode=0o700)
            await source.fetch(folder)
            built = await self._builder.build(replace(request, source=folder), sink, source.databases)
            if built.plan.image:  # The builder has stored it.
                return StoredBuild(built.plan, built.plan.image.removeprefix("sha256:"), 0)
            await source.check(built.plan, built.folder)
            return await self._store(request, built, scratch / "package.zip")
        finally:
            self._builder.deletions.begin(scratch)

    async def _store(self, request: BuildRequest, built: Built, packed: Path) -> StoredBuild:
        try:
            files = int(await self._builder.work.run(request.image.org_id, PACK, str(built.folder), str(packed)))
        except Refused as error:
            raise BuildFailed(f"the files cannot be packed: {error}") from None
        stored = await self._artifacts.put_file(request.image.org_id, packed, owner=request.image.owner)
        await place_release(self._releases_of(built.plan), stored.digest, built.folder)
        return StoredBuild(built.plan, stored.digest, files)

    async def clear_up(self) -> None:
        root = self._settings.folder("builds")
        for folder in list(root.iterdir()) if root.is_dir() else []:
            await asyncio.to_thread(deletions.delete, folder)


async def place_release(releases: Unpacked, digest: str, folder: Path) -> None:
    """Move a built folder to its release folder, as if unpacked from the artifact."""
    fresh = releases.new_folder()
    try:
        # Both folders are in the data folder, so this is normally a rename.
        await asyncio.to_thread(shutil.move, folder, fresh / "package")
        await asyncio.to_thread(releases.finish, fresh / "package")
        await releases.place(digest, fresh / "package")
    finally:
        await asyncio.to_thread(deletions.delete, fresh)
