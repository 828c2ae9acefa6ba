"""Remove volumes and logs of deleted projects; volumes go to the trash first."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import msgspec

from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.errors import NotFound
from moorage.products.apps import service, tables
from moorage.products.apps.logs.following import log_of
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.runtime.engines.ports import Engine

STOP_TIMEOUT_S = 90.0
STOP_POLL_INTERVAL_S = 0.25


class RemoveApp(msgspec.Struct, frozen=True, tag="apps.remove"):
    """Move the volumes of a deleted project to the trash, and delete its logs."""

    org_id: int
    project_id: int


class EmptyTrash(msgspec.Struct, frozen=True, tag="apps.empty_trash"):
    """Delete volumes and artifact of a project, `trash_days` after its deletion."""

    org_id: int
    project_id: int


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Add the jobs that remove an app, in the transaction that deletes its project.

    The reconciler stops the replicas, because their deployment is not live any more.
    """
    project = projects.get_by_id(tx, org_id, project_id)
    live = deployments.find(tx, org_id, project.current_deployment_id or 0)
    is_app = live is not None and live.is_app
    if project.slug != "container" and not is_app:
        return
    if live is not None and is_app and live.digest is not None:
        with contextlib.suppress(NotFound):  # A lost artifact must not prevent the deletion.
            artifacts.share(tx, org_id, projects.owner_of(live.id), _owner(project_id))
    # The machine with the volumes moves them to its trash.
    machine_id = tx.find(tables.FIND_VOLUME, project_id=project_id)
    delay_ms = tx.env.settings.trash_days * DAY_MS
    jobs.add(tx, RemoveApp(org_id, project_id), lane=Lane.APPS, machine_id=machine_id)
    jobs.add(tx, EmptyTrash(org_id, project_id), lane=Lane.APPS, delay_ms=delay_ms, machine_id=machine_id)
    tx.run(tables.DELETE_VOLUME, org_id=org_id, project_id=project_id)


def register(handlers: Handlers, engine: Engine) -> None:
    async def remove(run: Run, job: RemoveApp) -> None:
        await _wait_until_stopped(run, job)
        await engine.volumes.discard(str(job.project_id))
        await engine.logs.forget(log_of(job.project_id))

    async def empty(run: Run, job: EmptyTrash) -> None:
        await run.write(lambda tx: artifacts.unrefer(tx, job.org_id, _owner(job.project_id)))
        await engine.volumes.purge(str(job.project_id))

    handlers.add(RemoveApp, remove)
    handlers.add(EmptyTrash, empty)


async def _wait_until_stopped(run: Run, job: RemoveApp) -> None:
    """Wait for the replicas to end, because they write to the volumes."""
    replicas = partial(service.of_project, org_id=job.org_id, project_id=job.project_id)
    deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
    while await run.read(replicas):
        if asyncio.get_running_loop().time() > deadline:
            return
        await asyncio.sleep(STOP_POLL_INTERVAL_S)


def _owner(project_id: int) -> str:
    return f"trash:project:{project_id}"
