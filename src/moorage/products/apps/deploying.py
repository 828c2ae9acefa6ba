"""Start the replicas of a new release, and measure the switch of traffic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

from moorage.core.db.store import Database
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.decoding import decode
from moorage.errors import NotFound
from moorage.products.apps import health, probing, service
from moorage.products.apps.health import HealthCheck
from moorage.products.apps.launching import read_release
from moorage.products.apps.linked import build_access, creating
from moorage.products.apps.logs.start_output import StartOutput
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.runner import CannotDeploy, Swap, Write
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.route_sync import SyncRoutes
from moorage.runtime.builds import diagnosis
from moorage.runtime.builds.ports import BuildDatabases, Plan
from moorage.runtime.engines.ports import Logs
from moorage.settings import Settings

READY_POLL_INTERVAL_S = 1.0
PROBE_AFTER_SWITCH_S = 0.3  # how long the probes continue after the gateway has switched
MAX_PROBE_ATTEMPTS = 5  # through the public route: a single lost request is no failure
START_SLACK_S = 30.0  # added to the time that the reconciler allows a replica to start


class _NotHealthy(CannotDeploy):
    """The replicas of a release did not become healthy."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class AppDeployer:
    """Implements `projects.deployments.runner.Apps`."""

    def __init__(self, db: Database, reconciler: AppReconciler, logs: Logs, sync_routes: SyncRoutes) -> None:
        self._db = db
        self._reconciler = reconciler
        self._logs = logs
        self._sync_routes = sync_routes

    async def open_databases(self, deployment: Deployment, plan: Plan, write: Write, log: LogWriter) -> BuildDatabases:
        if plan.migrates_in_build and plan.database and not plan.has_own_database:
            await creating.create(self._db, deployment, plan.database, write, log)
        opened = await self._db.read(
            partial(build_access.read, org_id=deployment.org_id, deployment=deployment, plan=plan)
        )
        log.hide(opened.hidden)
        return opened.databases

    async def bring_up(self, deployment: Deployment, write: Write, log: LogWriter) -> None:
        """Start a release beside the live one and wait for health; raises CannotDeploy."""
        plan = decode(deployment.plan, Plan) if deployment.plan else None
        if plan is not None and plan.has_own_database:
            plan = replace(plan, needs_database=False, database="")
        if plan is not None and plan.needs_database:
            await creating.create(self._db, deployment, plan.database, write, log)
        try:
            output = await self._start(deployment, write, log)
        except _NotHealthy as failure:
            hint = await self._explain(deployment, failure.output) or ""
            parts = dict(plan.parts) if plan is not None else {}
            engine = plan.database if plan is not None and diagnosis.lacks_database(hint, parts) else ""
            if not engine or not await creating.create(self._db, deployment, engine, write, log):
                raise CannotDeploy(f"{failure}: {hint}" if hint else str(failure)) from None
            output = await self._start_again(deployment, write, log)
        if warning := diagnosis.refused_visitors(output):
            log.say(f"warning: {warning}")
        await self._probe(deployment)

    async def _start_again(self, deployment: Deployment, write: Write, log: LogWriter) -> str:
        try:
            return await self._start(deployment, write, log)
        except _NotHealthy as failure:
            hint = await self._explain(deployment, failure.output)
            raise CannotDeploy(f"{failure}: {hint}" if hint else str(failure)) from None

    async def _start(self, deployment: Deployment, write: Write, log: LogWriter) -> str:
        """Start the replicas of a release, and return their output; raises CannotDeploy."""
        output = await StartOutput.begin(self._logs, deployment.project_id, log)
        await write(partial(service.begin, org_id=deployment.org_id, deployment=deployment))
        self._reconciler.wake()
        rows = await self._rows(deployment, write)
        many = f"{len(rows)} replicas" if len(rows) != 1 else "the app"
        log.say(f"Starting {many}, waiting until {(await self._health_check(deployment)).path} answers")
        output.keys = {row.key for row in rows}
        try:
            async with output.copied():
                await log.guard(self._wait_until_ready(deployment, write))
        except CannotDeploy as failure:
            raise _NotHealthy(str(failure), "\n".join(output.recent)) from None
        return "\n".join(output.recent)

    async def _explain(self, deployment: Deployment, output: str) -> str | None:
        """Return one sentence for the output of an app that did not start, or None."""
        try:
            release = await self._db.read(lambda tx: read_release(tx, deployment.org_id, deployment.id))
        except (NotFound, CannotDecrypt):
            return diagnosis.explain(output)
        missing = [name for name in release.plan.variables if name not in release.env]
        examples = dict(release.plan.values)
        addresses = [name for name in release.plan.addresses if name not in release.env or name in examples]
        hint = diagnosis.explain(output, release.project.name, missing, addresses)
        return diagnosis.IGNORED_DATABASE if hint and release.egress and diagnosis.lacks_database(hint) else hint

    @contextlib.asynccontextmanager
    async def watched(self, deployment: Deployment) -> AsyncIterator[Callable[[], Swap]]:
        """Probe the public address while the context is open; yields a reader of results."""
        check = await self._health_check(deployment)
        settings = self._db.env.settings
        prober = probing.SwapProber(_reachable(settings), settings.gateway_port, check.host, check.path)
        async with prober:
            yield lambda: _as_swap(prober.measured())
            await asyncio.sleep(PROBE_AFTER_SWITCH_S)

    async def _wait_until_ready(self, deployment: Deployment, write: Write) -> None:
        deadline = asyncio.get_running_loop().time() + self._db.env.settings.app_start_s + START_SLACK_S
        while True:
            rows = await self._rows(deployment, write)
            if not rows:  # Their machine was lost meanwhile.
                await write(partial(service.begin, org_id=deployment.org_id, deployment=deployment))
            failed = next((row for row in rows if row.status == ReplicaStatus.FAILED), None)
            if failed is not None:
                raise CannotDeploy(f"The app did not become healthy: {failed.reason}")
            if rows and all(row.status == ReplicaStatus.READY for row in rows):
                return
            if asyncio.get_running_loop().time() > deadline:
                why = next((row.reason for row in rows if row.reason), "it was not started in time")
                raise CannotDeploy(f"The app did not become healthy: {why}")
            await self._reconciler.changed(READY_POLL_INTERVAL_S)

    async def _rows(self, deployment: Deployment, write: Write) -> list[Replica]:
        """Return the replicas of a deployment; raises DeploymentEnded if it is not running."""
        rows: list[Replica] = await write(
            partial(service.of_deployment, org_id=deployment.org_id, deployment_id=deployment.id)
        )
        return [row for row in rows if row.status != ReplicaStatus.DRAINING]

    async def _probe(self, deployment: Deployment) -> None:
        """Request the health path through the gateway, under an unpublished host name."""
        await self._sync_routes()
        check = await self._health_check(deployment)
        settings = self._db.env.settings
        host = probe_host(settings, deployment.uuid)
        gateway = (_reachable(settings), settings.gateway_port)
        why: str | None = None
        timeout_s = probing.RESPONSE_TIMEOUT_S
        for attempt in range(MAX_PROBE_ATTEMPTS):
            accepted = check.accepted_at_probe_host
            why = await probing.check_through(*gateway, host, check.path, timeout_s, accepted=accepted)
            if why is None:
                return
            timeout_s = probing.LONG_RESPONSE_TIMEOUT_S if isinstance(why, probing.NoAnswer) else timeout_s
            await asyncio.sleep(0.1 * (attempt + 1))
        raise CannotDeploy(f"The app is healthy, but it cannot be reached through the gateway: {why}")

    async def _health_check(self, deployment: Deployment) -> HealthCheck:
        """Read the health check with the name under which visitors reach the app."""
        return await self._db.read(
            lambda tx: health.read(tx, deployment.org_id, deployment.project_id, deployment.preview_id)
        )


def probe_host(settings: Settings, uuid: str) -> str:
    """Return the host name of a release before it is live."""
    return projects.host_of(settings, f"probe-{uuid}")


def _reachable(settings: Settings) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - looked up, not bound


def _as_swap(measured: probing.Measured) -> Swap:
    return Swap(measured.requests, measured.failed, round(measured.longest_gap_ms))
