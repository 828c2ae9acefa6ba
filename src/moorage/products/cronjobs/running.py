"""Reconciles cronjob runs: starts a process per queued row and records its end.

The rows are the queue. Level-triggered: a round finds the runs without a task and starts one task for each. The row
moves to running before the process starts, so a run never starts twice. The engine keeps the state of an ended run
until the runner has recorded it, so the exit code survives a restart of the control process.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.products.cronjobs import ownership, removal, service, tables
from moorage.products.cronjobs.launching import Launcher, Prepared, log_of
from moorage.products.cronjobs.states import CronjobStatus
from moorage.products.cronjobs.tables import Cronjob, Execution
from moorage.runtime.engines.ports import CannotStart, ReplicaEngine

ROUND_INTERVAL_S = 2.0
RUNS_PER_CORE = 4
MAX_IMAGE_RUNS = 200  # Pulling runs hold no slot, so a registry that does not answer delays no other run.
MAX_QUEUED_PER_ROUND = 1_000
STOP_GRACE_S = 10.0  # before a run of a deleted cronjob is killed
STOP_POLL_INTERVAL_S = 0.05
START_AGAIN_MS = 5 * 60_000  # A run that was never started and is older fails, as a tick that was missed for as long.
RESTARTED = "the platform restarted"
SHIM_ENDED = "the shim of this run ended without a result"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    exit_code: int | None
    error: str | None  # None on success
    at: int | None  # None for the time of the transaction


@dataclass(frozen=True, slots=True)
class View:
    """Rows that one round works on."""

    running: list[Execution]
    queued: list[Execution]  # the oldest MAX_QUEUED_PER_ROUND, oldest first
    images: set[int]  # ids of the queued runs' cronjobs that run an image
    deleting: list[Cronjob]


class Slots:
    """Limits concurrent runs, first come, first served."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_anyway(self) -> None:
        """Take a slot even where none is free: for runs that are running already."""
        self._taken += 1

    async def take(self) -> None:
        if self._taken < self.most and not self._waiting:
            self._taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            raise

    def give(self) -> None:
        self._taken -= 1
        while self._waiting and self._taken < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)


class Runner:
    """Owns the cronjob runs of this machine; one runner per engine."""

    def __init__(
        self, db: Database, engine: ReplicaEngine, launcher: Launcher, telemetry: Telemetry, most: int | None = None
    ) -> None:
        self._db = db
        self._engine = engine
        self._launcher = launcher
        self._slots = Slots(most or db.env.settings.cronjob_runs or RUNS_PER_CORE * (os.cpu_count() or 1))
        self.rounds = Rounds(telemetry, "cronjobs", ROUND_INTERVAL_S, db.commits)
        self.wake = self.rounds.wake  # starts a round soon
        self._pending: dict[str, bool] = {}  # runs being prepared or waiting for a slot: True for an image
        self._unstarted: set[str] = set()  # running rows of an earlier process that the engine never started
        self._stopped: dict[str, asyncio.Future[None]] = {}

    async def adopt(self) -> None:
        """Adopt running runs and record the end of the others. Called once, at start."""
        seen = await self._db.read(_view)
        unowned = await self._db.read(_unowned)
        never_started = await self._engine.adopt({row.key: row.token for row in (*seen.running, *unowned)})
        self._engine.listen(self._on_change)
        states = self._engine.states()
        claimed = [row for row in unowned if row.key in states or await self._has_log(row)]
        if claimed:
            await self._db.write(partial(_claim, rows=claimed))
        recent = self._db.env.clock.now() - START_AGAIN_MS
        self._unstarted = {
            row.key for row in seen.running if row.key in never_started and (row.started_at or 0) > recent
        }
        for row in (*seen.running, *claimed):
            if row.key in self._unstarted:
                continue
            if row.key not in states or states[row.key].phase == "stopped":
                await self._finish(row, RESTARTED, was_away=True)

    async def _has_log(self, row: Execution) -> bool:
        return bool(await self._launcher.logs.read(log_of(row), limit=1))

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> bool:
        """Start a task for every open run without one, and for every cronjob to delete.

        Returns whether there is neither.
        """
        if await self._db.read(ownership.needs_care):
            await self._db.write(ownership.take_care)
        seen = await self._db.read(_view)
        deleting = {cronjob.id for cronjob in seen.deleting}
        for row in seen.running:
            is_unstarted = row.key in self._unstarted
            self.rounds.begin(row.key, partial(self._start_again if is_unstarted else self._watch, row))
        for row in seen.queued:
            is_image = row.cronjob_id in seen.images
            if row.cronjob_id not in deleting and self._may_start(row, is_image=is_image):
                self._pending[row.key] = is_image
                run = partial(self._run_queued, row, is_image=is_image)
                self.rounds.begin(row.key, run, after=partial(self._pending.pop, row.key, None))
        for cronjob in seen.deleting:
            self.rounds.begin(f"remove-{cronjob.id}", partial(self._remove, cronjob))
        self._stop_unknown({row.key for row in (*seen.running, *seen.queued)})
        return not (seen.running or seen.queued or seen.deleting or self.rounds.tasks or self._engine.states())

    def _may_start(self, row: Execution, *, is_image: bool) -> bool:
        if row.key in self.rounds.tasks:
            return False
        # More runs than slots may be pending, so that a freed slot is taken immediately.
        most = MAX_IMAGE_RUNS if is_image else 2 * self._slots.most
        return sum(each == is_image for each in self._pending.values()) < most

    def _stop_unknown(self, known: set[str]) -> None:
        """Stop processes without a row: their cronjob was deleted."""
        for key in self._engine.states():
            if key not in known:
                self.rounds.begin(key, partial(self._engine.stop, key, STOP_GRACE_S))

    async def _run_queued(self, row: Execution, *, is_image: bool) -> None:
        """Prepare, start and watch a run. An image is pulled without holding a slot."""
        try:
            prepared = await self._launcher.prepare(row) if is_image else None
        except CannotStart as error:
            await self._record_end(row, RunOutcome(None, str(error), None))
            return
        await self._slots.take()
        try:
            await self._start(row, prepared)
        except CannotStart as error:
            await self._record_end(row, RunOutcome(None, str(error), None))
        finally:
            self._slots.give()

    async def _start(self, row: Execution, prepared: Prepared | None) -> None:
        prepared = prepared or await self._launcher.prepare(row)
        # From here on the task is not cancelled; the process is stopped instead.
        self._pending.pop(row.key, None)
        if await self._db.write(partial(_begin, org_id=row.org_id, row=row, prepared=prepared)):
            await self._engine.start(prepared.spec)
            await self._wait_stopped(row.key)
            await self._finish(row, SHIM_ENDED)

    async def _start_again(self, row: Execution) -> None:
        """Start a run whose row was running when the control process ended, before the engine had a trace of it."""
        await self._slots.take()
        try:
            prepared = await self._launcher.prepare(row)
            self._unstarted.discard(row.key)
            await self._engine.start(prepared.spec)
            await self._wait_stopped(row.key)
            await self._finish(row, SHIM_ENDED)
        except CannotStart as error:
            self._unstarted.discard(row.key)
            await self._record_end(row, RunOutcome(None, str(error), None))
        finally:
            self._slots.give()

    async def _watch(self, row: Execution) -> None:
        """Watch a run of an earlier process, or one with an end that was not recorded."""
        self._slots.take_anyway()
        try:
            await self._wait_stopped(row.key)
            await self._finish(row, SHIM_ENDED)
        finally:
            self._slots.give()

    async def _wait_stopped(self, key: str) -> None:
        """Return when a run is stopped or unknown to the engine."""
        while (state := self._engine.states().get(key)) is not None and state.phase != "stopped":
            self._stopped[key] = asyncio.get_running_loop().create_future()
            await self._stopped[key]

    def _on_change(self, key: str) -> None:
        state = self._engine.states().get(key)
        if state is not None and state.phase != "stopped":
            return
        stopped = self._stopped.pop(key, None)
        if stopped is not None and not stopped.done():
            stopped.set_result(None)

    async def _finish(self, row: Execution, otherwise: str, *, was_away: bool = False) -> None:
        """Record the end of a run from its state, or `otherwise`, and make the engine forget it."""
        state = self._engine.states().get(row.key)
        outcome = RunOutcome(None, otherwise, None)
        if state is not None and (state.exit_code is not None or state.reason is not None):
            outcome = RunOutcome(state.exit_code, state.reason, state.ended_ms or None if was_away else None)
        await self._record_end(row, outcome)
        await self._engine.stop(row.key, STOP_GRACE_S)

    async def _record_end(self, row: Execution, outcome: RunOutcome) -> None:
        def unit(tx: Tx) -> None:
            machines.hold(tx)
            at = tx.now if outcome.at is None else outcome.at
            service.finish(tx, row.org_id, row, exit_code=outcome.exit_code, error=outcome.error, ended_at=at)

        await self._db.write(unit)

    async def _remove(self, cronjob: Cronjob) -> None:
        rows = await self._db.read(partial(_open_of, org_id=cronjob.org_id, cronjob_id=cronjob.id))
        mine = [row for row in rows if row.machine_id == self._db.env.machine.id]
        await asyncio.gather(*(self._stop_run(row.key) for row in mine))
        if await self._db.read(partial(_runs_elsewhere, org_id=cronjob.org_id, cronjob_id=cronjob.id)):
            return  # The other machine stops its runs first; a later round removes the cronjob.
        await removal.remove(self._db, self._launcher.programs, self._launcher.logs, cronjob)

    async def _stop_run(self, key: str) -> None:
        task = self.rounds.tasks.get(key)
        if task is not None and key in self._pending:
            task.cancel()
        while task is not None and not task.done():
            await self._engine.stop(key, STOP_GRACE_S)
            await asyncio.wait({task}, timeout=STOP_POLL_INTERVAL_S)
        await self._engine.stop(key, STOP_GRACE_S)


@across_organizations("a machine runs cronjobs of all organizations")
def _view(tx: Tx) -> View:
    mine = tx.env.machine.id
    return View(
        running=[row for row in tx.all(tables.RUNNING) if row.machine_id == mine],
        queued=tx.all(tables.QUEUED, most=MAX_QUEUED_PER_ROUND, machine_id=mine),
        images=set(tx.all(tables.IMAGES_QUEUED)),
        deleting=tx.all(tables.DELETING),
    )


@across_organizations("a machine runs cronjobs of all organizations")
def _unowned(tx: Tx) -> list[Execution]:
    """Return running runs from before machines had rows."""
    unowned = [row for row in tx.all(tables.RUNNING) if row.machine_id == machines.UNOWNED]
    return unowned if tx.env.machine.id != machines.UNOWNED else []


@across_organizations("a machine runs cronjobs of all organizations")
def _claim(tx: Tx, rows: list[Execution]) -> None:
    for row in rows:
        tx.run(tables.PLACE, org_id=row.org_id, id=row.id, machine_id=tx.env.machine.id, now=tx.now)


def _begin(tx: Tx, org_id: int, row: Execution, prepared: Prepared) -> bool:
    """Move a run to running; False where its cronjob is being deleted, or another machine runs it by now."""
    machines.hold(tx)
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=row.cronjob_id)
    if cronjob is None or cronjob.status == CronjobStatus.DELETING:
        return False
    if service.get_execution(tx, org_id, row.id).machine_id != tx.env.machine.id:
        return False
    artifact = {"of_build": prepared.build_id, "digest": prepared.image_digest}
    tx.run(tables.SET_ARTIFACT, org_id=org_id, id=row.id, now=tx.now, **artifact)
    service.begin(tx, org_id, row, tx.now)
    return True


def _runs_elsewhere(tx: Tx, org_id: int, cronjob_id: int) -> bool:
    """Return whether another machine that answers has a running run of a cronjob."""
    mine = tx.env.machine.id
    others = {row.machine_id for row in _open_of(tx, org_id, cronjob_id) if row.status == "running"} - {mine}
    by_id = machines.by_id(tx) if others else {}
    return any(each in by_id and not by_id[each].is_gone for each in others)


def _open_of(tx: Tx, org_id: int, cronjob_id: int) -> list[Execution]:
    return tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=cronjob_id)
