"""Sends due runs to the edge and drives each run until it is counted.

The transaction of a tick inserts the run's row, so this module keeps no durable state. After a crash a run is in one of
three states: counted (its row is gone), started (the runner waits for its end and never sends it again), or not started
(the runner sends it with the same activation id, which the edge executes once).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.core.telemetry import Telemetry
from moorage.errors import Conflict, Internal, MoorageError, NotFound, RateLimited
from moorage.products.functions.edge_client import Call, EdgeClient, EdgeLost, EdgeUnreachable, Outcome
from moorage.products.schedules import service
from moorage.products.schedules.places import Places
from moorage.products.schedules.tables import Run

MAX_IN_FLIGHT = 2_000  # Each run holds a connection; a function may run for 15 minutes.
SEND_TIMEOUT_MS = 5 * MINUTE_MS  # the same time by which a missed tick may be late
# Time for the edge to load a function that was just deployed, or all functions after its own start.
UNKNOWN_FUNCTION_MS = 10 * SECOND_MS
RECORD_TIMEOUT_MS = 30 * SECOND_MS  # for the end of a run to be recorded, after the function's timeout
# Another process on the same database may be about to send a younger run.
ADOPTION_AGE_MS = 5 * SECOND_MS
STRANDED_MS = HOUR_MS
RETRY_INTERVAL_S = 1.0
BATCH = 5_000

NEVER_SENT = "the platform was not running when this run was due"
CUT_SHORT = "the platform restarted during this run"
NO_PLACE = "too many scheduled runs of the organization were running at once for more than five minutes"
STRANDED = "the machine that this run was given to has not come back"


class NotReady(Internal):
    def __init__(self) -> None:
        super().__init__("The edge has not loaded the function yet; try again in a moment")


class ScheduleRunner:
    """Drives many runs concurrently.

    `catch_up` returns True once all records that the edge wrote before the call are stored, else False.
    """

    def __init__(
        self,
        db: Database,
        edge: EdgeClient,
        telemetry: Telemetry,
        catch_up: Callable[[], Awaitable[bool]],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        retry_s: float = RETRY_INTERVAL_S,
    ) -> None:
        self.db = db
        self.edge = edge
        self.telemetry = telemetry
        self._catch_up = catch_up
        self._places = Places(max_in_flight)
        self._retry_s = retry_s
        self._in_flight: dict[str, asyncio.Task[Any]] = {}
        self._manual: set[str] = set()
        self._answered: dict[str, Outcome] = {}  # since the last `ensure`; their records are not stored yet
        self._edge_start = EdgeStart(edge, retry_s)

    def submit(self, run: Run) -> None:
        """Start a run that was just inserted, or let it wait for a place of its organization.

        Must be called in the event loop.
        """
        if run.activation_id in self._in_flight:
            return
        if self._places.has_room(run.org_id):
            self._start(run.org_id, run.activation_id, self._drive(run.activation_id, run))
        else:
            self._places.wait(run.org_id, run.activation_id)

    async def ensure(self, db: Database, now: int) -> bool:
        """Count answered runs that left no record, and adopt runs without a process.

        The process of such a run died, or never started the run. Returns whether there are no open runs.
        """
        answered, self._answered = self._answered, {}
        if answered:
            await self._catch_up()
        tag = service.machine_tag(db.env.settings)
        runs = await db.read(partial(service.open_runs, before=now, most=BATCH))
        for run in runs:
            if run.function_id is None:
                await db.write(partial(service.discard_run, activation_id=run.activation_id))
            elif run.activation_id in answered:
                await self._finish_with_outcome(run, answered[run.activation_id])
            elif db.dialect == "postgresql" and not run.activation_id.startswith(tag):
                await self._end_stranded(run, now)
            elif run.activation_id in self._places:
                await self._end_overdue(run, now)
            elif db.dialect == "sqlite" or now - run.due_at >= ADOPTION_AGE_MS:
                self._adopt(run)
        return not (runs or answered or self._answered or self._places or self._in_flight)

    async def run_now(self, org_id: int, schedule_id: int) -> Outcome:
        """Run a schedule now and return its result after it was counted."""
        activation_id = service.new_activation_id(self.db.env.settings)
        begin = partial(
            service.begin_run,
            org_id=org_id,
            schedule_id=schedule_id,
            activation_id=activation_id,
            due_at=self.db.env.clock.now(),
        )
        self._manual.add(activation_id)
        try:
            return await self._run_manually(await self.db.write(begin))
        finally:
            self._manual.discard(activation_id)

    async def stop(self) -> None:
        """Cancel all runs; the next start resumes them from the database."""
        self._places.clear()
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Return once no run is in flight; for tests."""
        while self._in_flight:
            await asyncio.wait(self._in_flight.values())
            await asyncio.sleep(0)

    def _adopt(self, run: Run) -> None:
        active = (self._in_flight, self._places, self._manual, self._answered)
        is_known = any(run.activation_id in known for known in active)
        if not is_known and self._places.has_room(run.org_id):
            self._start(run.org_id, run.activation_id, self._drive(run.activation_id, may_have_started=True))

    def _start(self, org_id: int, activation_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._in_flight[activation_id] = task
        self._places.take(org_id)
        task.add_done_callback(partial(self._on_done, org_id, activation_id))

    def _on_done(self, org_id: int, activation_id: str, task: asyncio.Task[None]) -> None:
        del self._in_flight[activation_id]
        self._places.release(org_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The row remains: the reconciler resumes the run.
            self.telemetry.crashed(None, error, where="schedule run")
        while following := self._places.next():
            self._start(*following, self._drive(following[1], error_message=NO_PLACE))

    async def _drive(
        self,
        activation_id: str,
        run: Run | None = None,
        *,
        may_have_started: bool = False,
        error_message: str = NEVER_SENT,
    ) -> None:
        """Send a run until the edge accepts it; return when it is answered or counted."""
        unknown_since = None
        while run := run or await self._find(activation_id, may_have_started):
            now = self.db.env.clock.now()
            if run.started_at is not None:
                if await self._is_cut_short(run, run.started_at, now):
                    return await self._finish(run, run.started_at, CUT_SHORT)
            elif now - run.due_at >= SEND_TIMEOUT_MS or (unknown_since and now - unknown_since >= UNKNOWN_FUNCTION_MS):
                return await self._finish(run, run.due_at, error_message)
            else:
                try:
                    self._answered[activation_id] = await self.edge.invoke(_call(run), is_repeated=may_have_started)
                    return None
                except (EdgeLost, Conflict):
                    may_have_started = True
                except NotFound as error:
                    error_message, unknown_since = error.message, unknown_since or now
                except (RateLimited, EdgeUnreachable) as error:
                    error_message, unknown_since = error.message, None
            run = None
            await asyncio.sleep(self._retry_s)
        return None

    async def _find(self, activation_id: str, may_have_started: bool) -> Run | None:
        """Return a run; if it may have been sent, store all records of the edge first."""
        # While records are unread, a started run looks as if it had not started.
        while may_have_started and await self._catch_up() is False:  # noqa: ASYNC110 - the recorder has no event to wait for
            await asyncio.sleep(self._retry_s)
        run = await self.db.peek(partial(service.find_run, activation_id=activation_id))
        return None if run is None or run.function_id is None else run

    async def _is_cut_short(self, run: Run, started_at: int, now: int) -> bool:
        """Return whether no end can follow: the run timed out, or its edge is gone.

        Only the edge process that started a run records its end. So if a newer edge process runs, and all records are
        stored, a run that still has its row will get no end.
        """
        if now >= started_at + (run.timeout_ms or 0) + RECORD_TIMEOUT_MS:
            return True
        # Another process stores the records of an edge with its own data folder.
        if self.db.env.settings.edge_socket or started_at >= await self._edge_start.latest_ms():
            return False
        return await self._catch_up()

    async def _end_stranded(self, run: Run, now: int) -> None:
        if now - run.due_at >= STRANDED_MS:
            await self._finish(run, run.started_at or run.due_at, STRANDED)

    async def _end_overdue(self, run: Run, now: int) -> None:
        """Count a run that waited too long for a place as failed."""
        if now - run.due_at >= SEND_TIMEOUT_MS:
            self._places.discard(run.activation_id)
            await self._finish(run, run.due_at, NO_PLACE)

    async def _finish_with_outcome(self, run: Run, outcome: Outcome) -> None:
        started_at = run.started_at or self.db.env.clock.now() - int(outcome.duration_ms)
        error = None if outcome.status == "success" else outcome.error or "the function failed"
        await self._finish(run, started_at, error)

    async def _finish(self, run: Run, started_at: int, error: str | None) -> None:
        await self.db.write(
            partial(service.finish, activation_id=run.activation_id, started_at=started_at, error=error)
        )

    async def _run_manually(self, run: Run) -> Outcome:
        try:
            outcome = await self._invoke_when_loaded(run)
        except (EdgeLost, Conflict):
            await self._abandon(run.activation_id)
            raise
        except MoorageError:
            await self.db.write(partial(service.discard_run, activation_id=run.activation_id))
            raise
        await self._catch_up()
        if await self._find(run.activation_id, may_have_started=False) is not None:
            await self._finish_with_outcome(run, outcome)
        return outcome

    async def _invoke_when_loaded(self, run: Run) -> Outcome:
        give_up_at = self.db.env.clock.now() + UNKNOWN_FUNCTION_MS // 2
        while True:
            try:
                return await self.edge.invoke(_call(run))
            except NotFound:
                if self.db.env.clock.now() >= give_up_at:
                    raise NotReady from None
            await asyncio.sleep(self._retry_s / 4)

    async def _abandon(self, activation_id: str) -> None:
        """Handle a lost response: count the run at its end if it started, else discard it.

        The run is not sent again: the caller gets the error and may retry.
        """
        run = await self._find(activation_id, may_have_started=True)
        if run is not None and run.started_at is not None:
            self._start(run.org_id, activation_id, self._drive(activation_id, may_have_started=True))
        else:
            await self.db.write(partial(service.discard_run, activation_id=activation_id))


class EdgeStart:
    """Start time of the running edge process, cached for `max_age_s`."""

    def __init__(self, edge: EdgeClient, max_age_s: float) -> None:
        self._edge = edge
        self._max_age_s = max_age_s
        self._queried_at = float("-inf")
        self._latest_ms = 0

    async def latest_ms(self) -> int:
        """Return the latest known start, or 0. A cached value is a lower bound."""
        now = asyncio.get_running_loop().time()
        if now - self._queried_at >= self._max_age_s:
            self._queried_at = now
            with contextlib.suppress(MoorageError, TypeError, ValueError):
                self._latest_ms = int(float((await self._edge.health()).started) * 1000)
        return self._latest_ms


def _call(run: Run) -> Call:
    assert run.function_id is not None
    params = msgspec.Raw((run.params or "{}").encode())
    return Call(run.function_id, run.activation_id, "schedule", params, run.schedule_id)
