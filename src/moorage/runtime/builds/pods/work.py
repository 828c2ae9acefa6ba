"""The build inside of a pod: the builder of one machine, with a store of its own for the parts of an image."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import walk
from moorage.core.db.store import Database
from moorage.core.kit import zips_writer
from moorage.core.kit.records import dataclass
from moorage.core.net import registry_mirrors
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.dockerfiles import building as image_builds
from moorage.runtime.builds.pods.agent import Outcome
from moorage.runtime.builds.pods.wire import PACKAGE, Account, Order, Part
from moorage.runtime.builds.ports import Built, Sink
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.building import executor
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources
from moorage.settings import Settings


@dataclass
class PodBuild:
    """Performs one order. `open_store` opens the store of this pod, which only the build of an image needs."""

    settings: Settings
    open_store: Callable[[], Database]
    is_sandboxed: bool  # False where the pod itself is the sandbox
    _stored: tuple[Database, ArtifactStore] | None = field(default=None, init=False)

    async def __call__(self, order: Order, source: Path, sink: Sink) -> Outcome:
        settings = await asyncio.to_thread(self._with_authorities, order.extra_ca)
        images = partial(self._image_builder, settings, order.accounts)
        builder = Builder(settings, is_sandboxed=self.is_sandboxed, images=images)
        request = replace(order.request, source=source)
        built = await builder.build(request, sink)
        if built.plan.image:
            return await self._image(request.image.org_id, built)
        return await self._package(built)

    def _with_authorities(self, extra_ca: str) -> Settings:
        if not extra_ca:
            return self.settings
        path = self.settings.folder("run") / "authorities.crt"
        path.write_text(extra_ca)
        path.chmod(0o644)
        return self.settings.model_copy(update={"extra_ca": str(path)})

    async def _package(self, built: Built) -> Outcome:
        path = self.settings.folder("run") / "package.zip"
        files = sum(each.is_file() for each in walk(built.folder))
        await asyncio.to_thread(zips_writer.pack, built.folder, path)

        async def fetch(_: str) -> Path:
            return path

        return Outcome(built.plan, files, [Part(PACKAGE, path.stat().st_size)], fetch)

    async def _image(self, org_id: int, built: Built) -> Outcome:
        """Return an image as its parts; the manifest comes last, because it refers to the others."""
        assert self._stored is not None
        blobs = ImageBlobs(*self._stored)
        manifest = await blobs.manifest(org_id, built.plan.image)
        described = {part.digest: part.size for part in (*manifest.layers, manifest.config)}
        described[built.plan.image] = await blobs.size(org_id, built.plan.image)

        async def fetch(name: str) -> Path:
            path = self.settings.folder("run") / "part"
            await blobs.fetch(org_id, name, path)
            return path

        return Outcome(built.plan, 0, [Part(name, size) for name, size in described.items()], fetch)

    def _image_builder(self, settings: Settings, accounts: list[Account]) -> executor.ImageBuilder:
        db = self.open_store()
        artifacts = ArtifactStore(db)
        self._stored = db, artifacts
        return image_builds.make_builder(settings, db, artifacts, sources_of(settings, accounts))


def sources_of(settings: Settings, accounts: list[Account]) -> Sources:
    """Return the sources of base images, with the accounts of the order."""

    async def find(org_id: int, registry: str) -> Credentials | None:
        account = next((each for each in accounts if each.registry == registry), None)
        return Credentials(registry, account.username, account.secret, account.token_host) if account else None

    mirrors = registry_mirrors.parse(settings.registry_mirrors)
    return Sources(settings.targets, credentials=find, mirrors=mirrors, authorities=settings.extra_ca)
