"""The part of a deployment that is about running: replicas beside the old ones, proved healthy, then watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import cast

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.apps import probing, service
from moorage.products.apps.logs.log_files import AppLogs
from moorage.products.apps.reconciler import Keeper
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments.logs import LogWriter, Stream
from moorage.products.projects.deployments.runner import CannotDeploy, Swap, Write
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.route_sync import Settle
from moorage.settings import Settings

LOOK_S = 1.0
LINES_SHOWN = 40
AFTER_S = 0.3  # the measuring goes on so long after the gateway has turned
PROBES = 5  # tries through the public route: one that is lost says nothing yet
SLACK_S = 30.0  # beyond what the keeper allows a replica to start


class Deploying:
    """Implements `projects.running.Apps`."""

    def __init__(self, db: Database, keeper: Keeper, logs: AppLogs, settle: Settle) -> None:
        self._db = db
        self._keeper = keeper
        self._logs = logs
        self._settle = settle

    async def bring_up(self, found: Deployment, write: Write, log: LogWriter) -> None:
        """Start a release beside the one that is live; return when it has proved healthy; raises CannotDeploy."""
        begun = self._db.env.clock.now()
        await write(partial(service.begin, org_id=found.org_id, found=found))
        self._keeper.wake()
        rows = await self._rows(found, write)
        many = f"{len(rows)} replicas" if len(rows) != 1 else "the app"
        log.say(f"Starting {many}, waiting until {(await self._path(found))[0]} answers")
        try:
            await log.guard(self._until_ready(found, write))
        except CannotDeploy:
            await self._show_output(found, rows, begun, log)
            raise
        await self._probe(found)

    @contextlib.asynccontextmanager
    async def watched(self, found: Deployment) -> AsyncIterator[Callable[[], Swap]]:
        """Send requests to the public address as long as the context lasts; what it gives tells how they fared."""
        path, host = await self._path(found)
        settings = self._db.env.settings
        prober = probing.SwapProber(_reachable(settings), settings.gateway_port, host, path)
        async with prober:
            yield lambda: _as_swap(prober.measured())
            await asyncio.sleep(AFTER_S)

    async def _until_ready(self, found: Deployment, write: Write) -> None:
        deadline = asyncio.get_running_loop().time() + self._db.env.settings.app_start_s + SLACK_S
        while True:
            rows = await self._rows(found, write)
            failed = next((row for row in rows if row.status == ReplicaStatus.FAILED), None)
            if failed is not None:
                raise CannotDeploy(f"The app did not become healthy: {failed.reason}")
            if rows and all(row.status == ReplicaStatus.READY for row in rows):
                return
            if asyncio.get_running_loop().time() > deadline:
                why = next((row.reason for row in rows if row.reason), "it was not started in time")
                raise CannotDeploy(f"The app did not become healthy: {why}")
            await self._keeper.changed(LOOK_S)

    async def _rows(self, found: Deployment, write: Write) -> list[Replica]:
        """Return the replicas of a deployment; raises where it has ended meanwhile."""
        rows: list[Replica] = await write(partial(service.of_deployment, org_id=found.org_id, deployment_id=found.id))
        return [row for row in rows if row.status != ReplicaStatus.DRAINING]

    async def _probe(self, found: Deployment) -> None:
        """Ask for the app once through the public gateway, under a name that nobody else knows."""
        await self._settle()
        path, _ = await self._path(found)
        settings = self._db.env.settings
        host = probe_host(settings, found.uuid)
        why: str | None = None
        for attempt in range(PROBES):
            why = await probing.check_through(_reachable(settings), settings.gateway_port, host, path)
            if why is None:
                return
            await asyncio.sleep(0.1 * (attempt + 1))
        raise CannotDeploy(f"The app is healthy, but it cannot be reached through the gateway: {why}")

    async def _show_output(self, found: Deployment, rows: list[Replica], since: int, log: LogWriter) -> None:
        """Put what the app printed into the log of the deployment that it failed."""
        keys = {row.key for row in rows}
        lines = await asyncio.to_thread(self._logs.read, found.project_id, since=since, limit=LINES_SHOWN)
        for line in lines:
            if line.replica in keys:
                log.write(cast(Stream, line.stream), f"{line.message}\n")

    async def _path(self, found: Deployment) -> tuple[str, str]:
        def read(tx: Tx) -> tuple[str, str]:
            project = projects.get_by_id(tx, found.org_id, found.project_id)
            name = project.name
            if found.preview_id is not None:
                preview = tx.find(project_tables.FIND_PREVIEW_BY_ID, org_id=found.org_id, id=found.preview_id)
                name = preview.name if preview is not None else name
            return project.health_check_path or "/", projects.host_of(tx.env.settings, name)

        return await self._db.read(read)


def probe_host(settings: Settings, uuid: str) -> str:
    """Return the name under which a release can be reached before it is live."""
    return projects.host_of(settings, f"probe-{uuid}")


def _reachable(settings: Settings) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - looked up, not bound


def _as_swap(measured: probing.Measured) -> Swap:
    return Swap(measured.requests, measured.failed, round(measured.longest_gap_ms))
