"""Jobs: delete repositories of deleted organizations, and clean up after crashes."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import SECOND_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.repositories import service, tables
from moorage.products.repositories.github.app import on_installation
from moorage.products.repositories.service import RemoveRepositories
from moorage.products.repositories.storage import STALE_S, Storage

KIND = "repositories.sweep"
CRON = "27 * * * *"


class SweepRepositories(msgspec.Struct, frozen=True, tag="repositories.sweep"):
    """Delete repositories without a push, and temporary files of pushes and fetches."""


def register(handlers: Handlers, github: GithubEvents) -> None:
    handlers.add(RemoveRepositories, remove)
    handlers.maintain(KIND, CRON, SweepRepositories(), sweep, on_each_machine=True)
    handlers.listen(OrganizationDeleted, delete_repositories)
    github.listen("installation", on_installation)


def delete_repositories(tx: Tx, event: OrganizationDeleted) -> None:
    service.delete_all(tx, event.org_id)


async def remove(run: Run, payload: RemoveRepositories) -> None:
    storage = Storage(run.db.env.settings)
    for repository_id in payload.ids:
        await asyncio.to_thread(storage.remove, repository_id)


async def sweep(run: Run, _: SweepRepositories) -> None:
    """Delete temporary files and empty repositories; one with references stays."""
    storage = Storage(run.db.env.settings)
    now = run.db.env.clock.trusted_now()
    await asyncio.to_thread(storage.clear_stale, now)
    for repository_id in await asyncio.to_thread(storage.half_made, now):
        if await run.write(partial(_forget_unused, repository_id=repository_id)):
            await asyncio.to_thread(storage.remove, repository_id)


@across_organizations("the sweep covers all organizations")
def _forget_unused(tx: Tx, repository_id: int) -> bool:
    """Delete the row of a repository without a recent push; return whether it is gone."""
    before = tx.trusted_now - STALE_S * SECOND_MS
    tx.run(tables.DELETE_UNUSED, id=repository_id, before=before, machine_id=tx.env.machine.id)
    return tx.find(tables.IS_THERE, id=repository_id) is None
