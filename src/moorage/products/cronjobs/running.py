"""Sees every run through: from its row to a program that runs, and from that program's end back to the row.

The rows are the queue. Level-triggered: a round looks for runs that nobody sees through, and whatever is under way for
one is one task. A run is begun in the store before it is begun on the machine, so it never happens twice; and what
watches over it writes down how it ended, so that nothing is lost while the control plane is away.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.products.cronjobs import removal, service, tables
from moorage.products.cronjobs.launching import RESULT, Launcher, Prepared, folder_of
from moorage.products.cronjobs.states import CronjobStatus
from moorage.products.cronjobs.tables import Cronjob, Execution
from moorage.runtime.engines.ports import CannotStart, Replicas, ReplicaState

ROUND_S = 2.0
PER_CORE = 4
MOST_IMAGES = 200  # runs whose image is looked for at once: a registry that does not answer holds up nobody else
MOST_SEEN = 1_000  # queued runs that one round looks at
GRACE_S = 10.0  # for a run whose cronjob is deleted
PAUSE_S = 0.05
RESTARTED = "the platform restarted"
UNWATCHED = "what watched over it has ended"


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int | None
    error: str | None  # None where it ended well
    at: int | None  # None for just now


@dataclass(frozen=True, slots=True)
class View:
    """What the rows say."""

    running: list[Execution]
    queued: list[Execution]  # the oldest, oldest first
    images: set[int]  # the cronjobs among theirs that run an image
    deleting: list[Cronjob]


class Slots:
    """How many runs go on at once. Those that wait get theirs in the order they asked."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_anyway(self) -> None:
        """Take one also where none is free: for what runs already."""
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
    """Owns the runs of this machine. There is one at a time for an engine."""

    def __init__(
        self, db: Database, engine: Replicas, launcher: Launcher, telemetry: Telemetry, most: int | None = None
    ) -> None:
        self._db = db
        self._engine = engine
        self._launcher = launcher
        self._logs = db.env.settings.folder("logs")
        self._slots = Slots(most or db.env.settings.cronjob_runs or PER_CORE * (os.cpu_count() or 1))
        self.rounds = Rounds(telemetry, "cronjobs", ROUND_S)
        self.wake = self.rounds.wake  # has the rows looked at again, soon
        self._in_hand: dict[str, bool] = {}  # runs that are prepared or wait for their turn: whether it is an image's
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._last: dict[str, ReplicaState] = {}

    async def adopt(self) -> None:
        """Find what runs already, and say how that ended which does not any more. Called once, before anything else."""
        seen = await self._db.read(_view)
        await self._engine.adopt({row.key: row.token for row in seen.running})
        self._engine.listen(self._changed)
        states = self._engine.states()
        for row in seen.running:
            if row.key not in states:
                await self._finish(row, RESTARTED, was_away=True)

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> None:
        """Take up every run that nobody sees through, and every cronjob that is to go."""
        seen = await self._db.read(_view)
        going = {found.id for found in seen.deleting}
        for row in seen.running:
            self.rounds.begin(row.key, partial(self._watch, row))
        for row in seen.queued:
            is_image = row.cronjob_id in seen.images
            if row.cronjob_id not in going and self._may_take(row, is_image=is_image):
                self._in_hand[row.key] = is_image
                see_through = partial(self._see_through, row, is_image=is_image)
                self.rounds.begin(row.key, see_through, after=partial(self._in_hand.pop, row.key, None))
        for found in seen.deleting:
            self.rounds.begin(f"remove-{found.id}", partial(self._remove, found))
        self._end_strangers({row.key for row in (*seen.running, *seen.queued)})

    def _may_take(self, row: Execution, *, is_image: bool) -> bool:
        """Tell whether to take up a run now: a few more than can run, so that the next one is there when one ends."""
        if row.key in self.rounds.tasks:
            return False
        most = MOST_IMAGES if is_image else 2 * self._slots.most
        return sum(each == is_image for each in self._in_hand.values()) < most

    def _end_strangers(self, known: set[str]) -> None:
        """End what runs without a row: its cronjob was deleted."""
        for key, state in self._engine.states().items():
            if key not in known and state.phase != "stopped":
                self.rounds.begin(key, partial(self._engine.stop, key, GRACE_S))

    # One run.

    async def _see_through(self, row: Execution, *, is_image: bool) -> None:
        """Prepare, start and watch a run. An image may take minutes to come, and no run's place meanwhile."""
        try:
            prepared = await self._launcher.prepare(row) if is_image else None
        except CannotStart as error:
            await self._end(row, Ended(None, str(error), None))
            return
        await self._slots.take()
        try:
            await self._start(row, prepared)
        except CannotStart as error:
            await self._end(row, Ended(None, str(error), None))
        finally:
            self._slots.give()

    async def _start(self, row: Execution, prepared: Prepared | None) -> None:
        prepared = prepared or await self._launcher.prepare(row)
        # From here on it is not taken back, only stopped.
        self._in_hand.pop(row.key, None)
        if await self._db.write(partial(_begin, org_id=row.org_id, row=row, prepared=prepared)):
            await self._engine.start(prepared.spec)
            await self._over(row.key)
            await self._finish(row, UNWATCHED)

    async def _watch(self, row: Execution) -> None:
        """See a run through that was begun before: by another process, or by us when its row could not be written."""
        self._slots.take_anyway()
        try:
            await self._over(row.key)
            await self._finish(row, UNWATCHED)
        finally:
            self._slots.give()

    async def _over(self, key: str) -> None:
        """Return when a run has ended, or is not there."""
        while (state := self._engine.states().get(key)) is not None and state.phase != "stopped":
            self._ends[key] = asyncio.get_running_loop().create_future()
            await self._ends[key]

    def _changed(self, key: str) -> None:
        state = self._engine.states().get(key)
        if state is not None and state.phase != "stopped":
            return
        if state is not None and key in self.rounds.tasks:
            self._last[key] = state
        ended = self._ends.pop(key, None)
        if ended is not None and not ended.done():
            ended.set_result(None)

    async def _finish(self, row: Execution, otherwise: str, *, was_away: bool = False) -> None:
        """Say how a run ended: as what watched over it has written down, or told, or else in these words."""
        last = self._last.pop(row.key, None)
        path = folder_of(self._logs, row) / RESULT
        ended = await asyncio.to_thread(_read_result, path, was_away=was_away)
        if ended is None and last is not None:
            ended = Ended(last.exit_code, last.reason, None)
        await self._end(row, ended or Ended(None, otherwise, None))

    async def _end(self, row: Execution, ended: Ended) -> None:
        def unit(tx: Tx) -> None:
            at = tx.now if ended.at is None else ended.at
            service.finish(tx, row.org_id, row, exit_code=ended.exit_code, error=ended.error, ended_at=at)

        await self._db.write(unit)

    # One cronjob that goes.

    async def _remove(self, found: Cronjob) -> None:
        """Stop what runs of a cronjob, then forget it with all that it had."""
        rows = await self._db.read(partial(_open_of, org_id=found.org_id, cronjob_id=found.id))
        await asyncio.gather(*(self._stop_run(row.key) for row in rows))
        await removal.remove(self._db, self._launcher.releases, self._logs, found)

    async def _stop_run(self, key: str) -> None:
        task = self.rounds.tasks.get(key)
        if task is not None and key in self._in_hand:
            task.cancel()
        while task is not None and not task.done():
            await self._engine.stop(key, GRACE_S)
            await asyncio.wait({task}, timeout=PAUSE_S)
        await self._engine.stop(key, GRACE_S)


def _read_result(path: Path, *, was_away: bool) -> Ended | None:
    """Read how a run ended; None where nobody could write that down."""
    try:
        told = json.loads(path.read_bytes())
        code = told["exitCode"]
        return Ended(code, told["reason"], int(told["endedMs"]) if was_away else None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


@across_organizations("one machine runs everybody's cronjobs")
def _view(tx: Tx) -> View:
    return View(
        running=tx.all(tables.RUNNING),
        queued=tx.all(tables.QUEUED, most=MOST_SEEN),
        images=set(tx.all(tables.IMAGES_QUEUED)),
        deleting=tx.all(tables.DELETING),
    )


def _begin(tx: Tx, org_id: int, row: Execution, prepared: Prepared) -> bool:
    """Say that a run's program runs, from now on; False where its cronjob is being deleted."""
    found = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=row.cronjob_id)
    if found is None or found.status == CronjobStatus.DELETING:
        return False
    what = {"of_build": prepared.build_id, "digest": prepared.image_digest}
    tx.run(tables.SET_WHAT_RUNS, org_id=org_id, id=row.id, now=tx.now, **what)
    service.begin(tx, org_id, row, tx.now)
    return True


def _open_of(tx: Tx, org_id: int, cronjob_id: int) -> list[Execution]:
    return tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=cronjob_id)
