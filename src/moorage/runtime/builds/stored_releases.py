"""Releases of folders: unpacked from the artifact store, launched with their language runtimes, and collected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.runtime.builds import launch
from moorage.runtime.builds.ports import Plan
from moorage.runtime.engines.ports import Release


class StoredReleases:
    """Base of the programs of each engine."""

    def __init__(self, db: Database, artifacts: ArtifactStore, releases: Unpacked, *, is_sandboxed: bool) -> None:
        self._db = db
        self._settings = db.env.settings
        self._artifacts = artifacts
        self.releases = releases
        self._is_sandboxed = is_sandboxed

    async def fetch(self, org_id: int, digest: str) -> None:
        await self.releases.ensure(self._artifacts, org_id, digest)

    async def remove_unused(self, digests: Iterable[str]) -> None:
        await self.releases.remove_unused(self._db, digests)

    async def collect(self) -> None:
        await self.releases.collect(self._db)

    async def _launch(
        self, release: Release, plan: Plan, env: Mapping[str, str], memory_mb: int
    ) -> tuple[Path, launch.Launch]:
        """Return the unpacked folder and how its program is started; raises BuildFailed."""
        folder = await self.releases.ensure(self._artifacts, release.org_id, release.digest)
        await launch.fetch_runtimes(self._settings, plan, is_sandboxed=self._is_sandboxed)
        started = await asyncio.to_thread(
            launch.launch,
            self._settings,
            plan,
            env,
            is_sandboxed=self._is_sandboxed,
            release=folder,
            memory_mb=memory_mb,
        )
        return folder, started
