"""Looking after apps that run: what they use, how many replicas they need, whether they may sleep, whether a new
release does worse than the one before.

Everything is asked every few seconds and decided by pure functions (`scaling`, `guard`); what comes of it is a column
of the project, or a deployment, and the keeper follows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.telemetry import Telemetry
from moorage.errors import Conflict, NotFound
from moorage.products.apps import release_guard as guard
from moorage.products.apps import scaling, service
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.service import RequestWindow, Stats, Usage
from moorage.products.apps.reconciler import Keeper
from moorage.products.apps.scaling import Sample
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import LiveApp, Replica
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.tables import Deployment
from moorage.runtime.engines.ports import Replicas, ReplicaState

EVERY_S = 5.0
HISTORY = int(scaling.CALM_MS / 1000 / EVERY_S) + 8
FREE = "free"


@dataclass
class Watched:
    """What is remembered of one app between two looks."""

    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY))
    cpu_us: dict[str, int] = field(default_factory=dict)  # by replica, as of the last look
    looked_at: int = 0
    changed_at: int | None = None  # when autoscaling last did something


class Tending:
    def __init__(self, db: Database, engine: Replicas, keeper: Keeper, telemetry: Telemetry) -> None:
        self.window = RequestWindow()
        self._db = db
        self._engine = engine
        self._keeper = keeper
        self._telemetry = telemetry
        self._watched: defaultdict[int, Watched] = defaultdict(Watched)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.round()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever one look meets
                self._telemetry.crashed(None, error, where="tending")

    def clock_was_set(self) -> None:
        """Forget when things were seen: by the new time that may lie ahead, and nothing would happen until then."""
        for project_id in self._watched:
            self.window.forget(project_id)
        self._watched.clear()

    async def round(self) -> None:
        seen = await self._db.read(service.view)
        live = [app for app in seen.live if app.preview_id is None]
        for project_id in [each for each in self._watched if each not in {app.project_id for app in live}]:
            del self._watched[project_id]
            self.window.forget(project_id)
        for app in live:
            rows = [row for row in seen.running(app.deployment_id) if row.status == ReplicaStatus.READY]
            states = [state for row in rows if (state := await self._engine.look(row.key)) is not None]
            await self._note(app, states)
            await self._scale(app)
            await self._rest(app, rows, states)
        await self._guard()

    async def _note(self, app: LiveApp, states: list[ReplicaState]) -> None:
        """Add what was used since the last look. A replica that was not there then is counted from the next on."""
        its, now = self._watched[app.project_id], self._db.env.clock.now()
        span_ms, its.looked_at = now - its.looked_at, now
        known = [state for state in states if state.key in its.cpu_us]
        used = sum(max(state.cpu_us - its.cpu_us[state.key], 0) for state in known)
        its.cpu_us = {state.key: state.cpu_us for state in states}
        if not known or not 0 < span_ms < MINUTE_MS:
            return
        share = int(service.tier_of(app.tier).cpu * span_ms * 1000) * len(known)
        usage = Usage(used, share, span_ms, sum(state.memory_bytes for state in states), len(known))
        its.history.append(Sample.of(now, usage))
        add = partial(metrics.add_usage, org_id=app.org_id, project_id=app.project_id, at=now, usage=usage)
        await self._db.write(add)

    async def _scale(self, app: LiveApp) -> None:
        bounds, its = service.bounds_of(app.auto_scaling), self._watched[app.project_id]
        if not bounds.enabled or app.asleep:
            return
        now = self._db.env.clock.now()
        current = service.wanted_replicas(app.replicas, app.auto_scaling)
        wanted = scaling.decide(
            its.history,
            now=now,
            current=current,
            least=bounds.min_replicas,
            most=bounds.max_replicas,
            target_percent=bounds.target_cpu_percent,
            last_change_ms=its.changed_at,
        )
        if wanted == current:
            return
        its.changed_at = now
        self._telemetry.log.info("scaling an app", project=app.name, before=current, after=wanted)
        await self._db.write(partial(service.scale, org_id=app.org_id, project_id=app.project_id, replicas=wanted))
        self._keeper.wake()

    async def _rest(self, app: LiveApp, rows: list[Replica], states: list[ReplicaState]) -> None:
        """Put an app to sleep that nobody has asked for anything in a while."""
        if app.asleep or service.tier_of(app.tier).key != FREE:
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
            self._telemetry.log.info("an app goes to sleep", project=app.name)
            await self._db.write(partial(service.put_to_sleep, org_id=app.org_id, project_id=app.project_id))
            self._keeper.wake()

    async def _guard(self) -> None:
        """Take back a release that does far worse than the one before, where its project wants that."""
        for found in await self._db.read(guarded):
            swapped = found.ended_at or self._db.env.clock.now()
            now = self._db.env.clock.now()
            before = self.window.stats(found.project_id, swapped - guard.COMPARED_MS, swapped)
            why = guard.judge(before, self._after(found, swapped, now), now - swapped)
            if why is not None and await self._take_back(found, why):
                self._telemetry.log.warning("a release is taken back", deployment=found.uuid, why=why)

    async def _take_back(self, found: Deployment, why: str) -> bool:
        try:
            return await self._db.write(partial(take_back, org_id=found.org_id, found=found, why=why))
        except (Conflict, NotFound):  # Caught out here, so that nothing of a rollback stays that is not whole.
            return False

    def _after(self, found: Deployment, swapped: int, now: int) -> Stats:
        return self.window.stats(found.project_id, swapped + 1000, now + 1000)


@across_organizations("one machine runs everybody's apps")
def guarded(tx: Tx) -> list[Deployment]:
    """Return the live deployments that are still watched."""
    return tx.all(deployment_tables.GUARDED, since=tx.now - guard.GUARD_MS)


def take_back(tx: Tx, org_id: int, found: Deployment, why: str) -> bool:
    """Roll back to the release that was live before, and say why in both logs; return whether there is one.

    Raises Conflict and NotFound where it cannot be brought back.
    """
    project = projects.find_by_id(tx, org_id, found.project_id)
    if project is None or project.current_deployment_id != found.id or project.latest_deployment_id != found.id:
        return False  # Another one is under way already, or live.
    older = tx.all(deployment_tables.SUCCEEDED, org_id=org_id, project_id=project.id)
    target = next((each for each in older if each.id < found.id and each.digest not in (None, found.digest)), None)
    if target is None:
        return False
    made = deployments.rollback(tx, org_id, THE_PLATFORM, project.name, target.uuid)
    deployments.add_line(tx, org_id, found.id, f"Rolled back by the deploy guard. {why}")
    deployments.add_line(
        tx, org_id, made.id, f"Started by the deploy guard, which brings the release before back. {why}"
    )
    return True
