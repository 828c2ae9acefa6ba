"""Programs of this machine: unpacked releases with their language runtimes, and unpacked images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.kit.decoding import decode
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.stored_releases import StoredReleases
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.ports import CannotStart, Owner, Program, PublicImage, Release
from moorage.runtime.images import launching, references
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Image, Images
from moorage.runtime.sandbox.rootfs import spec as rootfs


class LocalPrograms(StoredReleases):
    def __init__(
        self, db: Database, artifacts: ArtifactStore, releases: Unpacked, images: Images, *, is_sandboxed: bool
    ) -> None:
        super().__init__(db, artifacts, releases, is_sandboxed=is_sandboxed)
        self._images = images

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

    async def _of_folder(self, release: Release, plan: Plan, env: Mapping[str, str], memory_mb: int) -> Program:
        try:
            folder, started = await self._launch(release, plan, env, memory_mb)
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
