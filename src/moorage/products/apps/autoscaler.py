"""Autoscaling, sleep of idle apps, and rollback of bad releases.

Running apps are measured every few seconds. The decisions are pure functions in `scaling` and `release_guard`. Their
result is a column of the project or a new deployment; the reconciler applies it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import field, replace
from functools import partial

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.records import dataclass
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import Conflict, NotFound
from moorage.products.apps import release_guard as guard
from moorage.products.apps import scaling, service
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.service import RequestWindow, Usage
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.scaling import Sample
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import LiveApp, Replica
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.tables import Deployment
from moorage.runtime.engines.ports import Replicas, ReplicaState

ROUND_INTERVAL_S = 5.0
MAX_SAMPLES = int(scaling.CALM_MS / 1000 / ROUND_INTERVAL_S) + 8
FREE_TIER = "free"


@dataclass
class Watched:
    """Measurements of one app from earlier rounds."""

    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    cpu_us: dict[str, int] = field(default_factory=dict)  # total by replica, at the last round
    measured_at: int = 0
    changed_at: int | None = None  # when autoscaling last changed the number of replicas


class Autoscaler:
    def __init__(self, db: Database, engine: Replicas, reconciler: AppReconciler, telemetry: Telemetry) -> None:
        self.window = RequestWindow()
        self._db = db
        self._engine = engine
        self._reconciler = reconciler
        self._telemetry = telemetry
        self._watched: defaultdict[int, Watched] = defaultdict(Watched)

    async def run(self) -> None:
        await asyncio.sleep(ROUND_INTERVAL_S)
        await Rounds(self._telemetry, "autoscaler", ROUND_INTERVAL_S, self._db.commits).run(self.round)

    def clock_was_set(self) -> None:
        """Drop all measurements: their times may be in the future of the new clock."""
        for project_id in self._watched:
            self.window.forget(project_id)
        self._watched.clear()

    async def round(self) -> bool:
        """Record the usage of live apps and scale them; return True without any app."""
        seen = await self._db.read(service.view)
        live = [app for app in seen.live if app.preview_id is None]
        for project_id in [each for each in self._watched if each not in {app.project_id for app in live}]:
            del self._watched[project_id]
            self.window.forget(project_id)
        usages = []
        for app in live:
            rows = [row for row in seen.running(app.deployment_id) if row.status == ReplicaStatus.READY]
            states = [state for row in rows if (state := await self._engine.look(row.key)) is not None]
            elsewhere = sum(row.machine_id != seen.fleet.mine for row in rows)
            if (usage := self._measure(app, states, elsewhere)) is not None:
                usages.append((app, usage))
            # Of several machines, the one with the oldest replica decides.
            if not rows or rows[0].machine_id == seen.fleet.mine:
                await self._scale(app)
                await self._sleep_if_idle(app, rows, states)
        if usages:
            # One commit for all apps: each commit is synced to the disk, and wakes other loops.
            await self._db.write(partial(_add_usages, usages=usages, at=self._db.env.clock.now()))
        await self._guard()
        return not live

    def _measure(self, app: LiveApp, states: list[ReplicaState], elsewhere: int) -> Usage | None:
        """Return the usage since the last round; a new replica counts from the next on.

        For decisions, the `elsewhere` replicas on other machines count as loaded like those on this one: the gateways
        balance between all.
        """
        watched, now = self._watched[app.project_id], self._db.env.clock.now()
        span_ms, watched.measured_at = now - watched.measured_at, now
        known = [state for state in states if state.key in watched.cpu_us]
        used = sum(max(state.cpu_us - watched.cpu_us[state.key], 0) for state in known)
        watched.cpu_us = {state.key: state.cpu_us for state in states}
        if not known or not 0 < span_ms < MINUTE_MS:
            return None
        share = int(service.tier_of(app.tier).cpu * span_ms * 1000) * len(known)
        usage = Usage(used, share, span_ms, sum(state.memory_bytes for state in states), len(known))
        sample = Sample.of(now, usage)
        watched.history.append(replace(sample, replicas=sample.replicas + elsewhere))
        return usage

    async def _scale(self, app: LiveApp) -> None:
        bounds, watched = service.bounds_of(app.auto_scaling), self._watched[app.project_id]
        if not bounds.enabled or app.asleep:
            return
        now = self._db.env.clock.now()
        current = service.wanted_replicas(app.replicas, app.auto_scaling)
        wanted = scaling.decide(
            watched.history,
            now=now,
            current=current,
            least=bounds.min_replicas,
            most=bounds.max_replicas,
            target_percent=bounds.target_cpu_percent,
            last_change_ms=watched.changed_at,
        )
        if wanted == current:
            return
        watched.changed_at = now
        self._telemetry.log.info("scaling an app", project=app.name, before=current, after=wanted)
        await self._db.write(partial(service.scale, org_id=app.org_id, project_id=app.project_id, replicas=wanted))
        self._reconciler.wake()

    async def _sleep_if_idle(self, app: LiveApp, rows: list[Replica], states: list[ReplicaState]) -> None:
        """Put an app of the free tier to sleep after `app_idle_minutes` without requests."""
        if app.asleep or service.tier_of(app.tier).key != FREE_TIER:
            return
        now, settings = self._db.env.clock.now(), self._db.env.settings
        last = partial(metrics.last_request_at, org_id=app.org_id, project_id=app.project_id)
        stored = await self._db.read(last)
        if scaling.should_sleep(
            is_free=True,
            now=now,
            ready_since=max((row.updated_at for row in rows), default=None),
            last_request_at=max(stored or 0, self.window.last_at(app.project_id) or 0) or None,
            connections=sum(state.connections for state in states),
            idle_ms=settings.app_idle_minutes * MINUTE_MS,
        ):
            self._telemetry.log.info("putting an idle app to sleep", project=app.name)
            await self._db.write(partial(service.put_to_sleep, org_id=app.org_id, project_id=app.project_id))
            self._reconciler.wake()

    async def _guard(self) -> None:
        """Roll back releases that do far worse than before, where `deploy_guard` is on."""
        for deployment in await self._db.read(guarded):
            switched_at = deployment.ended_at or self._db.env.clock.now()
            now = self._db.env.clock.now()
            before = self.window.stats(deployment.project_id, switched_at - guard.COMPARED_MS, switched_at)
            after = self.window.stats(deployment.project_id, switched_at + 1000, now + 1000)
            why = guard.judge(before, after, now - switched_at)
            if why is not None and await self._roll_back(deployment, why):
                self._telemetry.log.warning("rolling back a release", deployment=deployment.uuid, why=why)

    async def _roll_back(self, deployment: Deployment, why: str) -> bool:
        try:
            return await self._db.write(partial(roll_back, org_id=deployment.org_id, deployment=deployment, why=why))
        except (Conflict, NotFound):  # Caught outside of the transaction, so that it is undone as a whole.
            return False


@across_organizations("one write has the usage of apps of all organizations")
def _add_usages(tx: Tx, usages: list[tuple[LiveApp, Usage]], at: int) -> None:
    for app, usage in usages:
        metrics.add_usage(tx, app.org_id, app.project_id, at=at, usage=usage)


@across_organizations("one machine runs the apps of all organizations")
def guarded(tx: Tx) -> list[Deployment]:
    """Return the live deployments that are still guarded."""
    return tx.all(deployment_tables.GUARDED, since=tx.now - guard.GUARD_MS)


def roll_back(tx: Tx, org_id: int, deployment: Deployment, why: str) -> bool:
    """Roll back to the previous release, if any, and log the reason in both logs.

    Raises Conflict and NotFound where the previous release cannot be deployed.
    """
    project = projects.find_by_id(tx, org_id, deployment.project_id)
    if project is None or {project.current_deployment_id, project.latest_deployment_id} != {deployment.id}:
        return False  # A newer deployment is live or in progress.
    older = tx.all(deployment_tables.SUCCEEDED, org_id=org_id, project_id=project.id)
    unusable = (None, deployment.digest)
    target = next((each for each in older if each.id < deployment.id and each.digest not in unusable), None)
    if target is None:
        return False
    rollback = deployments.rollback(tx, org_id, THE_PLATFORM, project.name, target.uuid)
    deployments.add_line(tx, org_id, deployment.id, f"Rolled back by the deploy guard. {why}")
    deployments.add_line(
        tx, org_id, rollback.id, f"Started by the deploy guard, which restores the previous release. {why}"
    )
    return True
