"""Takes the result of a build from its pod: files of a user's code, so nothing that the pod says is trusted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.kit import zips
from moorage.core.kit.records import dataclass
from moorage.runtime.builds import collect
from moorage.runtime.builds.local import place_release
from moorage.runtime.builds.pods.session import Session
from moorage.runtime.builds.pods.wire import PACKAGE, Event, Part
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Plan, Source, StoredBuild
from moorage.runtime.images.blobs import MAX_DOCUMENT_BYTES, ImageBlobs
from moorage.runtime.images.store import Limits

MAX_PARTS = 1000
INVALID = "the pod of the build returned an invalid result"
_VERSION = re.compile(r"([0-9]{1,4}(\.[0-9]{1,4}){0,2})?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Results:
    db: Database
    artifacts: ArtifactStore
    releases_of: Callable[[Plan], Unpacked]

    async def take(
        self, request: BuildRequest, own: Plan, source: Source, session: Session, last: Event, scratch: Path
    ) -> StoredBuild:
        """Store the result for the owner of the request; raises BuildFailed."""
        plan = merge_plans(own, last.plan)
        if plan.image:
            await self._take_image(request, plan.image, session, last.parts, scratch / "part")
            return StoredBuild(plan, plan.image.removeprefix("sha256:"), 0)
        if [part.name for part in last.parts] != [PACKAGE]:
            raise BuildFailed(INVALID)
        return await self._take_folder(request, plan, source, session, last.parts[0], scratch)

    async def _take_folder(
        self, request: BuildRequest, plan: Plan, source: Source, session: Session, part: Part, scratch: Path
    ) -> StoredBuild:
        caps = collect.APP_CAPS if plan.kind == "container" else collect.CAPS
        packed, folder = scratch / "package.zip", scratch / "package"
        _check_size(part, caps.packed_bytes)
        await session.fetch(part, packed)
        try:
            entries = await asyncio.to_thread(zips.extract, packed, folder, caps)
        except zips.BadArchive as error:
            raise BuildFailed(f"{INVALID}: {error}") from None
        await source.check(plan, folder)
        stored = await self.artifacts.put_file(request.image.org_id, packed, owner=request.image.owner)
        await place_release(self.releases_of(plan), stored.digest, folder)
        return StoredBuild(plan, stored.digest, sum(not entry.is_folder for entry in entries))

    async def _take_image(
        self, request: BuildRequest, digest: str, session: Session, parts: list[Part], target: Path
    ) -> None:
        """Store the parts that the organization does not have yet, and the manifest after them."""
        blobs, org_id, owner = ImageBlobs(self.db, self.artifacts), request.image.org_id, request.image.owner
        others = [part for part in parts if part.name != digest]
        manifests = [part for part in parts if part.name == digest]
        if len(parts) > MAX_PARTS or len(manifests) != 1 or sum(part.size for part in others) > Limits().packed_bytes:
            raise BuildFailed(INVALID)
        for part in others:
            if not _DIGEST.fullmatch(part.name):
                raise BuildFailed(INVALID)
            if not await blobs.has(org_id, part.name):
                await self._fetch(session, part, target)
                await blobs.put_blob(org_id, target, owner=owner)
        _check_size(manifests[0], MAX_DOCUMENT_BYTES)
        await self._fetch(session, manifests[0], target)
        await blobs.put_manifest_bytes(org_id, await asyncio.to_thread(target.read_bytes), owner=owner)

    async def _fetch(self, session: Session, part: Part, target: Path) -> None:
        _check_size(part, Limits().packed_bytes)
        if f"sha256:{await session.fetch(part, target)}" != part.name:
            raise BuildFailed(INVALID)


def merge_plans(own: Plan, built: Plan | None) -> Plan:
    """Return the plan that was detected here, with what only the build can know; raises BuildFailed."""
    if built is None or bool(built.image) is not (own.language == "docker"):
        raise BuildFailed(INVALID)
    output = PurePosixPath(built.output_dir)
    is_inside = not output.is_absolute() and ".." not in output.parts and "\0" not in built.output_dir
    if not is_inside or not _VERSION.fullmatch(built.node) or (built.image and not _DIGEST.fullmatch(built.image)):
        raise BuildFailed(INVALID)
    return replace(own, output_dir=built.output_dir, node=built.node, image=built.image)


def _check_size(part: Part, most: int) -> None:
    if not 0 <= part.size <= most:
        raise BuildFailed(INVALID)
