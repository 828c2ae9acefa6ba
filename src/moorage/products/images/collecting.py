"""Delete abandoned uploads, and parts of pushed images that no tag needs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from moorage.core.db.tx import Tx
from moorage.core.worker.run import Handlers, Run
from moorage.errors import NotFound
from moorage.products.images import deploying, service
from moorage.products.images.documents import Document
from moorage.products.images.failures import Refused
from moorage.products.images.manifest_http import Manifests
from moorage.products.images.tables import Repository
from moorage.products.images.uploads import Uploads

KIND = "images.collect"
CRON = "53 * * * *"
BATCH = 100


class CollectImages(msgspec.Struct, frozen=True, tag="images.collect"):
    """Delete abandoned uploads and unused parts of pushed images."""


def register(handlers: Handlers, uploads: Uploads, manifests: Manifests) -> None:
    async def collect(run: Run, _: CollectImages) -> None:
        await asyncio.to_thread(uploads.clear_stale, run.db.env.clock.trusted_now())
        after = 0
        while batch := await run.read(partial(service.next_repositories, after=after, most=BATCH)):
            for repository in batch:
                await _collect(run, repository, manifests)
            after = batch[-1].id

    handlers.maintain(KIND, CRON, CollectImages(), collect)


def _remove_unused(tx: Tx, org_id: int, repository: Repository) -> bool:
    """Remove the repository of a deleted project; return whether it is gone."""
    if deploying.is_used(tx, org_id, repository):
        return False
    service.remove(tx, org_id, repository)
    return True


async def _collect(run: Run, repository: Repository, manifests: Manifests) -> None:
    key: dict[str, Any] = {"org_id": repository.org_id, "repository": repository}
    if await run.write(partial(_remove_unused, **key)):
        return
    known: dict[str, Document] = {}
    for part in await run.read(partial(service.manifests_of, **key)):
        try:
            known[part.digest] = await manifests.read_document(part)
        except (NotFound, Refused):
            return  # Nothing is dropped of a repository that cannot be read.
    await run.write(partial(service.collect, **key, documents=known))
