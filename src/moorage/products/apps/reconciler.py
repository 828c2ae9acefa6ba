"""Reconciler of apps: starts missing replicas, drains and stops surplus ones.

Level-triggered: each round compares all rows with the running processes, and starts at most one task per replica. The
control process may end at any point; the next one adopts the running replicas and continues from the rows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from math import inf

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.gateways import service as gateways
from moorage.core.machines import service as machines
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import NotFound
from moorage.products.apps import health, probing, service
from moorage.products.apps.health import HealthCheck
from moorage.products.apps.launching import Launcher, projects_with_volumes
from moorage.products.apps.machines import placing
from moorage.products.apps.probing import NoAnswer
from moorage.products.apps.service import View
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.runtime.engines.ports import CannotStart, ReplicaEngine, ReplicaState

ROUND_INTERVAL_S = 2.0
HEALTH_CHECK_PAUSES_S = (0.03, 0.05, 0.1, 0.2, 0.25)  # between the health checks of a starting replica
UNHEALTHY_CHECK_PAUSE_S = 2.0  # the same for a replica of the live release that stays unhealthy
# An app imports more on its first requests, and its other workers may still start. With the CPU of a small tier at once
# requests of the first seconds after a switch could take longer than the probes wait.
CPU_LIMIT_DELAY_S = 10.0
MAX_CRASHES = 3  # of a replica that has never been ready, before its deployment fails
MIN_DRAIN_S = 2.5  # Requests that were in flight when the gateway switched may still arrive.
GATEWAYS_TIMEOUT_S = 60.0  # for gateways of other machines that are live and do not switch
DRAIN_POLL_INTERVAL_S = 0.25
STOP_GRACE_S = 10.0
STEADY_POLL_INTERVAL_S = 0.1
RESTART_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class AppReconciler:
    def __init__(
        self,
        db: Database,
        engine: ReplicaEngine,
        launcher: Launcher,
        telemetry: Telemetry,
        sync_routes: Callable[[], Awaitable[None]],
    ) -> None:
        self._db = db
        self._log = telemetry.log
        self._engine = engine
        self._launcher = launcher
        self._sync_routes = sync_routes  # returns when the gateway's routes match the rows
        self._changed = asyncio.Condition()
        self.rounds = Rounds(telemetry, "apps", ROUND_INTERVAL_S, db.commits)
        self.wake = self.rounds.wake  # starts the next round soon
        self._limits_due: dict[int, float] = {}  # by replica: when the CPU limit of its tier applies
        self._pauses: dict[int, tuple[int, float]] = {}  # by replica: failed starts, and earliest time of the next

    async def adopt(self) -> None:
        """Adopt running replicas, restart ended ones. Called once, before all else."""
        seen = await self._db.read(service.view)
        rows = [row for row in seen.rows if row.machine_id in (seen.fleet.mine, machines.UNOWNED)]
        await self._engine.adopt({row.key: row.token for row in rows})
        self._engine.listen(lambda _: self.wake())
        states = self._engine.states()
        for row in await self._claim(rows):
            state = states.get(row.key)
            self._limits_due[row.id] = 0.0  # An earlier process may have ended before it set the limit.
            if row.status == ReplicaStatus.READY and (state is None or state.address != row.address):
                await self._write(row, partial(service.start_over, reason="it ended while the platform was stopped"))

    async def _claim(self, rows: list[Replica]) -> list[Replica]:
        """Become the owner of unowned replicas and volumes that are on this machine; return all owned replicas."""
        mine, states = self._db.env.machine.id, self._engine.states()
        unowned = [row for row in rows if row.machine_id != mine]
        local_rows = [row for row in unowned if row.key in states or self._db.dialect == "sqlite"]
        volumes = projects_with_volumes(await self._launcher.engine.volumes.names())
        if mine and (local_rows or volumes):
            await self._db.write(partial(placing.claim, rows=local_rows, volumes=volumes))
        return [replace(row, machine_id=mine) for row in rows if row not in unowned or row in local_rows]

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> bool:
        """Compare rows with running replicas, and start the tasks that make them equal.

        Returns whether all replicas are as wanted. The engine reports a replica that ends.
        """
        seen = await self._db.read(service.view)
        changes = service.difference(seen)
        if changes.missing or changes.surplus:
            await self._db.write(service.level)
            seen = await self._db.read(service.view)
            await self._notify()
        live = {app.deployment_id for app in seen.live}
        for row in seen.own:
            if (task := self._task_for(row, is_live=row.deployment_id in live)) is not None:
                self.rounds.begin(row.key, task)
        self._stop_orphans(seen)
        is_ready = all(row.status == ReplicaStatus.READY for row in seen.own)
        return is_ready and not self.rounds.tasks and not self._limits_due

    async def changed(self, within_s: float) -> None:
        """Return after the next change of a replica's row, or after `within_s`."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within_s)

    def _task_for(self, row: Replica, *, is_live: bool) -> Callable[[], Awaitable[None]] | None:
        if row.status == ReplicaStatus.STARTING:
            return partial(self._bring_up, row, is_live=is_live) if self._may_start(row) else None
        if row.status == ReplicaStatus.READY:
            state = self._engine.states().get(row.key)
            if state is None or state.address != row.address:
                return partial(self._start_over, row)
            is_limit_due = self._limits_due.get(row.id, inf) <= asyncio.get_running_loop().time()
            return partial(self._limit_cpu, row) if is_limit_due else None
        return partial(self._drain, row) if row.status == ReplicaStatus.DRAINING else None

    def _stop_orphans(self, seen: View) -> None:
        """Stop replicas without a row, or whose row has another machine by now."""
        known = {row.key for row in seen.own}
        for key in [key for key in self._engine.states() if key not in known]:
            # A name of its own, because the task of the former row may still run for long.
            self.rounds.begin(f"stranger {key}", partial(self._engine.stop, key, STOP_GRACE_S))

    # Starting.

    def _may_start(self, row: Replica) -> bool:
        return self._pauses.get(row.id, (0, 0.0))[1] <= asyncio.get_running_loop().time()

    async def _bring_up(self, row: Replica, *, is_live: bool) -> None:
        """Start a replica that does not run, and wait until it is healthy."""
        try:
            state = self._engine.states().get(row.key) or await self._engine.start(await self._launcher.specify(row))
        except CannotStart as error:
            await self._cannot_start(row, str(error), is_live=is_live)
            return
        read = partial(health.read, org_id=row.org_id, project_id=row.project_id, preview_id=row.preview_id)
        check = await self._db.read(read)
        clock, steadiness = asyncio.get_running_loop().time, health.Steadiness()
        deadline = clock() + self._db.env.settings.app_start_s
        checks, timeout_s, ended = 0, probing.RESPONSE_TIMEOUT_S, ""
        while True:
            why = await self._find_problem(state, check, timeout_s)
            if isinstance(why, NoAnswer):  # Some apps answer only after their own time limit for a missing server.
                timeout_s = probing.LONG_RESPONSE_TIMEOUT_S
            if why is None and not is_live:
                why = await self._find_end(row, state)
                ended = why or ""
            if why is None:
                await self._set_ready(row, state)
                return
            is_over = clock() > deadline or steadiness.is_final(why, clock())
            has_failed = state.restarts >= MAX_CRASHES or is_over
            why = ended or why
            if has_failed and not is_live:
                await self._write(row, partial(service.set_failed, reason=check.explain(why)))
                return
            if has_failed and checks % 30 == 0:
                await self._write(row, partial(service.note_reason, reason=check.explain(why)))
            pauses = (UNHEALTHY_CHECK_PAUSE_S,) if has_failed else HEALTH_CHECK_PAUSES_S
            await asyncio.sleep(pauses[min(checks, len(pauses) - 1)])
            checks += 1
            current = await self._db.read(partial(service.find, org_id=row.org_id, replica_id=row.id))
            if current is None or current.status != ReplicaStatus.STARTING:
                return
            new_state = self._engine.states().get(row.key)
            if new_state is None:
                await self._cannot_start(row, "its shim has ended", is_live=is_live)
                return
            state = new_state

    async def _find_end(self, row: Replica, state: ReplicaState) -> str | None:
        """Watch a healthy replica of a new release for a while; return the reason if its program ends, else None."""
        steady_s = await self._db.read(partial(service.steady_s, org_id=row.org_id, row=row))
        clock = asyncio.get_running_loop().time
        until = clock() + steady_s
        while (left_s := until - clock()) > 0:
            await asyncio.sleep(min(left_s, STEADY_POLL_INTERVAL_S))
            now = self._engine.states().get(row.key)
            if now is None or now.restarts > state.restarts or now.phase == "waiting":
                exited = _describe_exit(now) if now is not None else None
                return f"it answered, and then it ended: {exited or 'its process is gone'}"
        return None

    async def _find_problem(self, state: ReplicaState, check: HealthCheck, timeout_s: float) -> str | None:
        if not state.is_listening:
            return _describe_exit(state) or f"nothing listens on PORT ({state.port}) yet"
        if state.health:  # The image's own check, where the owner chose no path.
            return None if state.health == "healthy" else f"the HEALTHCHECK of its image says: {state.health}"
        return await check.check(state.address, timeout_s)

    async def _set_ready(self, row: Replica, state: ReplicaState) -> None:
        self._pauses.pop(row.id, None)
        if state.other_port:
            self._launcher.found_ports[row.deployment_id] = state.other_port
        self._limits_due[row.id] = asyncio.get_running_loop().time() + CPU_LIMIT_DELAY_S
        await self._write(row, partial(service.set_ready, address=state.address))
        await self._sync_routes()

    async def _limit_cpu(self, row: Replica) -> None:
        self._limits_due.pop(row.id, None)
        with contextlib.suppress(NotFound):  # The project was deleted, and its replicas are stopped soon.
            project = await self._db.read(lambda tx: projects.get_by_id(tx, row.org_id, row.project_id))
            await self._engine.limit(row.key, service.tier_of(project.tier).cpu)

    async def _cannot_start(self, row: Replica, why: str, *, is_live: bool) -> None:
        tries = self._pauses.get(row.id, (0, 0.0))[0]
        if not is_live and tries >= MAX_CRASHES - 1:
            await self._write(row, partial(service.set_failed, reason=why))
            return
        pause = RESTART_PAUSES_S[min(tries, len(RESTART_PAUSES_S) - 1)] if is_live else 0.2
        self._pauses[row.id] = (tries + 1, asyncio.get_running_loop().time() + pause)
        await self._write(row, partial(service.note_reason, reason=why))

    async def _start_over(self, row: Replica) -> None:
        await self._write(row, partial(service.start_over, reason="its process ended; it is restarted"))
        await self._sync_routes()

    # Stopping.

    async def _drain(self, row: Replica) -> None:
        """Wait for open requests, then stop the replica and delete its row."""
        state = self._engine.states().get(row.key)
        if state is not None:
            await self._sync_routes()
            if row.port:  # A replica that was never ready got no requests.
                await self._wait_for_gateways(row)
            await self._wait_for_requests(row)
            await self._engine.stop(row.key, STOP_GRACE_S)
        await self._write(row, service.forget)
        self._pauses.pop(row.id, None)
        self._limits_due.pop(row.id, None)

    async def _wait_for_gateways(self, row: Replica) -> None:
        """Wait until no live gateway, also of another machine, sends requests to the replica."""
        lagging = await gateways.wait_until_served(self._db, GATEWAYS_TIMEOUT_S)
        if lagging:
            self._log.warning("a replica is stopped although gateways may use it", replica=row.key, gateways=lagging)

    async def _wait_for_requests(self, row: Replica) -> None:
        left_s = ((row.drain_until or 0) - self._db.env.clock.now()) / 1000
        if row.port and self._db.dialect == "postgresql":
            left_s = max(left_s, MIN_DRAIN_S)  # Gateways may have taken all of the time.
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while (waited := loop.time() - began_at) < left_s:
            state = await self._engine.look(row.key)
            if state is None or (state.connections == 0 and waited >= MIN_DRAIN_S):
                return
            await asyncio.sleep(DRAIN_POLL_INTERVAL_S)

    # Writing.

    async def _write(self, row: Replica, change: Callable[..., None]) -> None:
        def unit(tx: Tx) -> None:
            machines.hold(tx)
            change(tx, row.org_id, row)

        await self._db.write(unit)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _describe_exit(state: ReplicaState) -> str | None:
    if state.reason is None and state.exit_code is None:
        return None
    return state.reason or f"it ended with exit code {state.exit_code}"
