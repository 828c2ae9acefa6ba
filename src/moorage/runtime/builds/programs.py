"""Programs of this machine: unpacked releases with their language runtimes, and unpacked images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.kit.decoding import decode
from moorage.runtime.builds import launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.ports import CannotStart, Owner, Program, PublicImage, Release
from moorage.runtime.images import launching, references
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Image, Images
from moorage.runtime.sandbox.rootfs import spec as rootfs


class LocalPrograms:
    def __init__(
        self, db: Database, artifacts: ArtifactStore, releases: Unpacked, images: Images, *, is_sandboxed: bool
    ) -> None:
        self._db = db
        self._settings = db.env.settings
        self._artifacts = artifacts
        self.releases = releases
        self._images = images
        self._is_sandboxed = is_sandboxed

    async def prepare(self, release: Release, env: Mapping[str, str], memory_mb: int) -> Program:
        plan = decode(release.plan, Plan)
        command = release.command or plan.start
        if plan.image:
            try:
                image = await self._images.ensure(release.org_id, plan.image)
            except PullFailed as error:
                raise CannotStart(str(error)) from None
            return _of_image(image, command, env, release.owner)
        return await self._of_folder(release, replace(plan, start=command), env, memory_mb)

    async def pull(self, image: PublicImage, env: Mapping[str, str], report: Callable[[str], None]) -> Program:
        try:
            reference = references.parse(image.reference)
            pulled = await self._images.pull(reference, report, image.org_id)
        except (PullFailed, ValueError) as error:
            raise CannotStart(str(error)) from None
        return _of_image(pulled, image.command, env, image.owner)

    async def fetch(self, org_id: int, digest: str) -> None:
        await self.releases.ensure(self._artifacts, org_id, digest)

    async def remove_unused(self, digests: Iterable[str]) -> None:
        await self.releases.remove_unused(self._db, digests)

    async def collect(self) -> None:
        await self.releases.collect(self._db)

    async def _of_folder(self, release: Release, plan: Plan, env: Mapping[str, str], memory_mb: int) -> Program:
        folder = await self.releases.ensure(self._artifacts, release.org_id, release.digest)
        try:
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
        except BuildFailed as error:
            raise CannotStart(str(error)) from None
        files = LocalFiles(release=str(folder), base=plan.base, workdir=plan.workdir, binds=started.binds)
        return Program(argv=started.argv, env=started.env, files=files)


def _of_image(image: Image, command: str, env: Mapping[str, str], owner: Owner) -> Program:
    try:
        started = launching.launch(image.config, command, env)
    except launching.NoCommand as error:
        raise CannotStart(str(error)) from None
    files = LocalFiles(
        image=str(image.root),
        image_user=image.config.user,
        image_ids=rootfs.first_id(owner.kind, owner.id),
        workdir=image.config.workdir,
    )
    return Program(
        argv=started.argv,
        env=started.env,
        files=files,
        stop_signal=started.stop_signal,
        digest=image.digest,
        ports=image.config.exposed_ports,
        health=launching.health_fields(image.config),
    )
