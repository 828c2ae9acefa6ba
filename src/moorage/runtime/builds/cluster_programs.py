"""Programs of a cluster: images in the registry that the nodes pull from.

Each image is copied there, also one that a user names: the nodes then connect to one registry only, which the operator
chose, and the platform's own client checks the addresses of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.kit.decoding import decode
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.release_images import ReleaseImages
from moorage.runtime.builds.stored_releases import StoredReleases
from moorage.runtime.engines.kubernetes.manifests import PodFiles
from moorage.runtime.engines.ports import CannotStart, Program, PublicImage, Release
from moorage.runtime.images import launching, machine, references
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.pushing.client import PushClient, PushFailed
from moorage.runtime.images.pushing.transfer import Pushed, Transfer, registry_image, stored_image
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sources import Sources
from moorage.runtime.sandbox.runs.job import WORK

NO_BASE = (
    "this release is a folder, and folders need a base image on a cluster: set MOORAGE_KUBERNETES_APP_IMAGE, or add a "
    "Dockerfile to the repository"
)


class ClusterPrograms(StoredReleases):
    def __init__(
        self,
        db: Database,
        artifacts: ArtifactStore,
        releases: Unpacked,
        sources: Sources,
        client: PushClient,
        images: ReleaseImages,
    ) -> None:
        """`images` is the same for all programs of this process: it packs each runtime once at a time."""
        super().__init__(db, artifacts, releases, is_sandboxed=True)
        settings = db.env.settings
        self._sources = sources
        self._blobs = ImageBlobs(db, artifacts)
        self._transfer = Transfer(client, settings.folder("pushes"))
        self.images = images

    async def prepare(self, release: Release, env: Mapping[str, str], memory_mb: int) -> Program:
        plan = decode(release.plan, Plan)
        command = release.command or plan.start
        try:
            if not plan.image:
                return await self._of_folder(release, replace(plan, start=command), env, memory_mb)
            parts = await stored_image(self._blobs, release.org_id, plan.image)
            pushed = await self._transfer.push(release.org_id, parts)
        except (PullFailed, PushFailed, BuildFailed) as error:
            raise CannotStart(str(error)) from None
        return _of_image(release.org_id, pushed, command, env)

    async def pull(self, image: PublicImage, env: Mapping[str, str], report: Callable[[str], None]) -> Program:
        """Copy an image to the registry; an organization's credentials are used for the copy, and not by the nodes."""
        try:
            reference = references.parse(image.reference)
            async with registry_image(self._sources, reference, image.org_id) as parts:
                pushed = await self._transfer.push(image.org_id, parts, report)
        except (PullFailed, PushFailed, ValueError) as error:
            raise CannotStart(f"cannot pull {image.reference}: {error}") from None
        report(f"Image {image.reference} is in the registry: {pushed.digest}")
        return _of_image(image.org_id, pushed, image.command, env)

    async def _of_folder(self, release: Release, plan: Plan, env: Mapping[str, str], memory_mb: int) -> Program:
        if not self._settings.kubernetes_app_image:
            raise CannotStart(NO_BASE)
        folder, started = await self._launch(release, plan, env, memory_mb)
        root = PurePosixPath(WORK, plan.base)
        runtimes = {inside: Path(outside) for inside, outside in started.binds.items()}
        pushed = await self.images.push(release.org_id, release.digest, {str(root): folder}, runtimes)
        files = _files(release.org_id, pushed, str(root / plan.workdir))
        return Program(argv=started.argv, env=started.env, files=files)


def _of_image(org_id: int, pushed: Pushed, command: str, env: Mapping[str, str]) -> Program:
    config = pushed.config
    try:
        started = launching.launch(config, command, env)
    except launching.NoCommand as error:
        raise CannotStart(str(error)) from None
    return Program(
        argv=started.argv,
        env=started.env,
        files=_files(org_id, pushed, config.workdir),
        stop_signal=started.stop_signal,
        digest=pushed.digest,
        ports=config.exposed_ports,
    )


def _files(org_id: int, pushed: Pushed, workdir: str) -> PodFiles:
    return PodFiles(
        org_id=org_id,
        image=pushed.reference,
        user=pushed.config.user,
        workdir=workdir,
        architecture=machine.architecture(),
    )
