"""Keeps this machine equal to the rows of replicas: starts what is missing, checks its health, drains and stops others.

Level-triggered: a round compares everything, and whatever is under way for a replica is one task. The control plane
may end at any point; the next one adopts what runs, reads the rows, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.products.apps import probing, service
from moorage.products.apps.launching import Launcher
from moorage.products.apps.service import View
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.runtime.engines.ports import CannotStart, Replicas, ReplicaState

ROUND_S = 2.0
CHECK_S = (0.03, 0.05, 0.1, 0.2, 0.25)  # between two health checks of a replica that starts
UNHURRIED_S = 2.0  # the same for one that is live already, and does not get well
CRASHES = 3  # of a replica that has never been ready: after so many its deployment fails
LEAST_DRAIN_S = 2.5  # A request that was on its way when the gateway turned away may still come.
DRAIN_LOOK_S = 0.25
GRACE_S = 10.0
START_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Health:
    """How an app says that it is well."""

    path: str
    host: str
    cpu: float
    within_s: float


class Keeper:
    def __init__(
        self,
        db: Database,
        engine: Replicas,
        launcher: Launcher,
        telemetry: Telemetry,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._db = db
        self._engine = engine
        self._launcher = launcher
        self._settle = settle  # returns when the gateway follows the rows
        self._changed = asyncio.Condition()
        self.rounds = Rounds(telemetry, "apps", ROUND_S)
        self.wake = self.rounds.wake  # has everything looked at again, soon
        self._pauses: dict[int, tuple[int, float]] = {}  # by replica: how often it could not be started, and until when

    async def adopt(self) -> None:
        """Find what runs already, and say of what has gone that it starts over. Called once, before anything else."""
        seen = await self._db.read(service.view)
        await self._engine.adopt({row.key: row.token for row in seen.rows})
        self._engine.listen(lambda _: self.wake())
        states = self._engine.states()
        for row in seen.rows:
            state = states.get(row.key)
            if row.status == ReplicaStatus.READY and (state is None or state.port != row.port):
                await self._write(row, partial(service.start_over, reason="it had ended while the platform was away"))

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> None:
        """Compare what should be with what is, and begin whatever brings them together."""
        seen = await self._db.read(service.view)
        found = service.difference(seen)
        if found.missing or found.surplus:
            await self._db.write(service.level)
            seen = await self._db.read(service.view)
            await self._tell()
        live = {app.deployment_id for app in seen.live}
        for row in seen.rows:
            if (work := self._work(row, is_live=row.deployment_id in live)) is not None:
                self.rounds.begin(row.key, work)
        self._end_strangers(seen)

    async def changed(self, within_s: float) -> None:
        """Return when some replica's row has changed, or after a while."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within_s)

    def _work(self, row: Replica, *, is_live: bool) -> Callable[[], Awaitable[None]] | None:
        if row.status == ReplicaStatus.STARTING:
            return partial(self._bring_up, row, is_live=is_live) if self._may_start(row) else None
        if row.status == ReplicaStatus.READY:
            state = self._engine.states().get(row.key)
            return partial(self._start_over, row) if state is None or state.port != row.port else None
        return partial(self._drain, row) if row.status == ReplicaStatus.DRAINING else None

    def _end_strangers(self, seen: View) -> None:
        """End what runs without a row: its project was deleted."""
        known = {row.key for row in seen.rows}
        for key in [key for key in self._engine.states() if key not in known]:
            # Whatever was under way for its row may go on for long.
            self.rounds.begin(f"stranger {key}", partial(self._engine.stop, key, GRACE_S))

    # Starting.

    def _may_start(self, row: Replica) -> bool:
        return self._pauses.get(row.id, (0, 0.0))[1] <= asyncio.get_running_loop().time()

    async def _bring_up(self, row: Replica, *, is_live: bool) -> None:
        """Start a replica where it does not run, and wait until it is healthy."""
        try:
            state = self._engine.states().get(row.key) or await self._engine.start(await self._launcher.specify(row))
        except CannotStart as error:
            await self._cannot_start(row, str(error), is_live=is_live)
            return
        health = await self._db.read(partial(_health, org_id=row.org_id, row=row))
        give_up_at = asyncio.get_running_loop().time() + health.within_s
        tries = 0
        while True:
            why = await self._what_is_missing(state, health)
            if why is None:
                await self._is_ready(row, state, health)
                return
            is_over = state.restarts >= CRASHES or asyncio.get_running_loop().time() > give_up_at
            if is_over and not is_live:
                await self._write(row, partial(service.set_failed, reason=why))
                return
            if is_over and tries % 30 == 0:
                await self._write(row, partial(service.note_reason, reason=why))
            pause = UNHURRIED_S if is_over else CHECK_S[min(tries, len(CHECK_S) - 1)]
            tries += 1
            await asyncio.sleep(pause)
            current = await self._db.read(partial(service.find, org_id=row.org_id, replica_id=row.id))
            if current is None or current.status != ReplicaStatus.STARTING:
                return
            found = self._engine.states().get(row.key)
            if found is None:
                await self._cannot_start(row, "what watched over it has ended", is_live=is_live)
                return
            state = found

    async def _what_is_missing(self, state: ReplicaState, health: Health) -> str | None:
        if not state.is_listening:
            ended = _how_it_ended(state)
            return ended or f"nothing listens on PORT ({state.port}) yet"
        return await probing.check(state.port, health.path, health.host)

    async def _is_ready(self, row: Replica, state: ReplicaState, health: Health) -> None:
        self._pauses.pop(row.id, None)
        # It may take what it needs to start; from now on it has what its tier gives it.
        await self._engine.limit(row.key, health.cpu)
        await self._write(row, partial(service.set_ready, port=state.port))
        await self._settle()

    async def _cannot_start(self, row: Replica, why: str, *, is_live: bool) -> None:
        tries = self._pauses.get(row.id, (0, 0.0))[0]
        if not is_live and tries >= CRASHES - 1:
            await self._write(row, partial(service.set_failed, reason=why))
            return
        pause = START_AGAIN_S[min(tries, len(START_AGAIN_S) - 1)] if is_live else 0.2
        self._pauses[row.id] = (tries + 1, asyncio.get_running_loop().time() + pause)
        await self._write(row, partial(service.note_reason, reason=why))

    async def _start_over(self, row: Replica) -> None:
        await self._write(row, partial(service.start_over, reason="its process has gone; it is started again"))
        await self._settle()

    # Ending.

    async def _drain(self, row: Replica) -> None:
        """Let requests finish, then stop it and forget it."""
        state = self._engine.states().get(row.key)
        if state is not None:
            await self._settle()
            await self._wait_for_requests(row)
            await self._engine.stop(row.key, GRACE_S)
        await self._write(row, service.forget)
        self._pauses.pop(row.id, None)

    async def _wait_for_requests(self, row: Replica) -> None:
        left_s = ((row.drain_until or 0) - self._db.env.clock.now()) / 1000
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while (waited := loop.time() - begun) < left_s:
            state = await self._engine.look(row.key)
            if state is None or (state.connections == 0 and waited >= LEAST_DRAIN_S):
                return
            await asyncio.sleep(DRAIN_LOOK_S)

    # Writing.

    async def _write(self, row: Replica, change: Callable[..., None]) -> None:
        def unit(tx: Tx) -> None:
            change(tx, row.org_id, row)

        await self._db.write(unit)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _how_it_ended(state: ReplicaState) -> str | None:
    if state.reason is None and state.exit_code is None:
        return None
    return state.reason or f"it ended with exit code {state.exit_code}"


def _health(tx: Tx, org_id: int, row: Replica) -> Health:
    project = projects.get_by_id(tx, org_id, row.project_id)
    name = project.name
    if row.preview_id is not None:
        preview = tx.find(project_tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=row.preview_id)
        name = preview.name if preview is not None else name
    return Health(
        path=project.health_check_path or "/",
        host=projects.host_of(tx.env.settings, name),
        cpu=service.tier_of(project.tier).cpu,
        within_s=tx.env.settings.app_start_s,
    )
