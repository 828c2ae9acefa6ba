"""Sends the runs that are due to the function gateway and sees each through to the moment it is counted.

A run's row is written in the transaction of its tick, so nothing here has to survive a crash. What a crash leaves is
a row, and three cases: it was counted (then it is gone), it was started (then its end is waited for, and it is never
sent again), or it was not started (then it is sent, under the same activation id, which the gateway runs once).
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
from moorage.products.schedules.tables import Run

MOST_IN_FLIGHT = 2_000  # Each holds a connection; a function may take a quarter of an hour.
PATIENCE_MS = 5 * MINUTE_MS  # As long as a missed tick may be late.
# A function that has just been deployed, or a gateway that has just started, is known within a moment.
UNKNOWN_MS = 10 * SECOND_MS
AFTER_TIMEOUT_MS = 30 * SECOND_MS  # for an end to be recorded, beyond the longest the function may run
# Where others may be at work on the same runs, those that are younger than this are left to them.
GRACE_MS = 5 * SECOND_MS
STRANDED_MS = HOUR_MS
AGAIN_S = 1.0
BATCH = 5_000

NEVER_SENT = "the platform was not running when this run was due"
CUT_SHORT = "the platform restarted during this run"
STRANDED = "the machine that this run was given to has not come back"


class NotReady(Internal):
    def __init__(self) -> None:
        super().__init__("The function gateway does not know the function yet; try again in a moment")


class ScheduleRunner:
    """Keeps many runs in flight at once.

    `catch_up` returns when everything that the gateway wrote before is recorded, or False where it could not be.
    """

    def __init__(
        self,
        db: Database,
        edge: EdgeClient,
        telemetry: Telemetry,
        catch_up: Callable[[], Awaitable[bool]],
        *,
        most: int = MOST_IN_FLIGHT,
        again_s: float = AGAIN_S,
    ) -> None:
        self.db = db
        self.edge = edge
        self.telemetry = telemetry
        self._catch_up = catch_up
        self._most = most
        self._again_s = again_s
        self._waiting: dict[str, None] = {}  # by activation, in order
        self._in_flight: dict[str, asyncio.Task[Any]] = {}
        self._by_hand: set[str] = set()
        self._answered: dict[str, Outcome] = {}  # since the last look; their records are on the way
        self._gateway = GatewayStart(edge, again_s)

    def take(self, run: Run) -> None:
        """Start a run that has just been recorded; called in the event loop."""
        if run.activation_id in self._in_flight:
            return
        if len(self._in_flight) < self._most:
            self._start(run.activation_id, self._see_through(run.activation_id, run))
        else:
            self._waiting[run.activation_id] = None

    async def ensure(self, db: Database, now: int) -> None:
        """Count what was answered and left no record, and take up the runs that nobody sees through.

        Their process died, or never got to them.
        """
        answered, self._answered = self._answered, {}
        if answered:
            await self._catch_up()
        tag = service.machine_tag(db.env.settings)
        for run in await db.read(partial(service.open_runs, before=now, most=BATCH)):
            if run.function_id is None:
                await db.write(partial(service.forget_run, activation_id=run.activation_id))
            elif run.activation_id in answered:
                await self._finish_as_answered(run, answered[run.activation_id])
            elif db.dialect == "postgresql" and not run.activation_id.startswith(tag):
                await self._end_stranded(run, now)
            elif db.dialect == "sqlite" or now - run.due_at >= GRACE_MS:
                self._take_up(run.activation_id)

    async def run_now(self, org_id: int, schedule_id: int) -> Outcome:
        """Run a schedule because somebody asked, and return what came of it once it is counted."""
        activation_id = service.new_activation_id(self.db.env.settings)
        begin = partial(
            service.begin_run,
            org_id=org_id,
            schedule_id=schedule_id,
            activation_id=activation_id,
            due_at=self.db.env.clock.now(),
        )
        self._by_hand.add(activation_id)
        try:
            return await self._run_by_hand(await self.db.write(begin))
        finally:
            self._by_hand.discard(activation_id)

    async def stop(self) -> None:
        """Let go of everything; the next start takes it up from the store."""
        self._waiting.clear()
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Return once nothing is in flight; for those who step the runner by hand."""
        while self._in_flight:
            await asyncio.wait(self._in_flight.values())
            await asyncio.sleep(0)

    def _take_up(self, activation_id: str) -> None:
        places = (self._in_flight, self._waiting, self._by_hand, self._answered)
        is_known = any(activation_id in known for known in places)
        if not is_known and len(self._in_flight) < self._most:
            self._start(activation_id, self._see_through(activation_id, may_be_sent=True))

    def _start(self, activation_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._in_flight[activation_id] = task
        task.add_done_callback(partial(self._ended, activation_id))

    def _ended(self, activation_id: str, task: asyncio.Task[None]) -> None:
        del self._in_flight[activation_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # The row stands: the reconciler takes the run up again.
            self.telemetry.crashed(None, error, where="schedule run")
        if self._waiting:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._start(following, self._see_through(following))

    async def _see_through(self, activation_id: str, run: Run | None = None, *, may_be_sent: bool = False) -> None:
        """Send a run until the gateway takes it, and return when it is answered or counted."""
        why, unknown_since = NEVER_SENT, None
        while run := run or await self._find(activation_id, may_be_sent):
            now = self.db.env.clock.now()
            if run.started_at is not None:
                if await self._is_cut_short(run, run.started_at, now):
                    return await self._finish(run, run.started_at, CUT_SHORT)
            elif now - run.due_at >= PATIENCE_MS or (unknown_since and now - unknown_since >= UNKNOWN_MS):
                return await self._finish(run, run.due_at, why)
            else:
                try:
                    self._answered[activation_id] = await self.edge.invoke(_call(run))
                    return None
                except (EdgeLost, Conflict):
                    may_be_sent = True
                except NotFound as error:
                    why, unknown_since = error.message, unknown_since or now
                except (RateLimited, EdgeUnreachable) as error:
                    why, unknown_since = error.message, None
            run = None
            await asyncio.sleep(self._again_s)
        return None

    async def _find(self, activation_id: str, may_be_sent: bool) -> Run | None:
        """Return a run as it stands; where it may have been sent, after everything that is known of it is recorded."""
        # As long as some records are unread, a run that started may look as if it had not.
        while may_be_sent and await self._catch_up() is False:  # noqa: ASYNC110 - the recorder tells by its answer
            await asyncio.sleep(self._again_s)
        run = await self.db.peek(partial(service.find_run, activation_id=activation_id))
        return None if run is None or run.function_id is None else run

    async def _is_cut_short(self, run: Run, started_at: int, now: int) -> bool:
        """Tell whether no end of a run can come any more: its time is up, or the gateway that had it is gone.

        Only that gateway could write the end. So once another one runs, and all that was written is recorded, a run
        that still has its row has none.
        """
        if now >= started_at + (run.timeout_ms or 0) + AFTER_TIMEOUT_MS:
            return True
        # A gateway with a data folder of its own leaves its records to another process.
        if self.db.env.settings.edge_socket or started_at >= await self._gateway.find_ms():
            return False
        return await self._catch_up()

    async def _end_stranded(self, run: Run, now: int) -> None:
        if now - run.due_at >= STRANDED_MS:
            await self._finish(run, run.started_at or run.due_at, STRANDED)

    async def _finish_as_answered(self, run: Run, outcome: Outcome) -> None:
        started_at = run.started_at or self.db.env.clock.now() - int(outcome.duration_ms)
        error = None if outcome.status == "success" else outcome.error or "the function failed"
        await self._finish(run, started_at, error)

    async def _finish(self, run: Run, started_at: int, error: str | None) -> None:
        await self.db.write(
            partial(service.finish, activation_id=run.activation_id, started_at=started_at, error=error)
        )

    async def _run_by_hand(self, run: Run) -> Outcome:
        try:
            outcome = await self._invoke_when_known(run)
        except (EdgeLost, Conflict):
            await self._let_go(run.activation_id)
            raise
        except MoorageError:
            await self.db.write(partial(service.forget_run, activation_id=run.activation_id))
            raise
        await self._catch_up()
        if await self._find(run.activation_id, may_be_sent=False) is not None:
            await self._finish_as_answered(run, outcome)
        return outcome

    async def _invoke_when_known(self, run: Run) -> Outcome:
        give_up_at = self.db.env.clock.now() + UNKNOWN_MS // 2
        while True:
            try:
                return await self.edge.invoke(_call(run))
            except NotFound:
                if self.db.env.clock.now() >= give_up_at:
                    raise NotReady from None
            await asyncio.sleep(self._again_s / 4)

    async def _let_go(self, activation_id: str) -> None:
        """Leave a run whose answer was lost: one that started is counted when it ends, any other does not count.

        It is not sent again: whoever asked for it is told, and asks again.
        """
        run = await self._find(activation_id, may_be_sent=True)
        if run is not None and run.started_at is not None:
            self._start(activation_id, self._see_through(activation_id, may_be_sent=True))
        else:
            await self.db.write(partial(service.forget_run, activation_id=activation_id))


class GatewayStart:
    """When the gateway that runs now started, asked for once in a while, however many want to know."""

    def __init__(self, edge: EdgeClient, again_s: float) -> None:
        self._edge = edge
        self._again_s = again_s
        self._asked_at = float("-inf")
        self._known_ms = 0

    async def find_ms(self) -> int:
        """Return the latest start that is known of, or 0. What was known stays true: starts only get later."""
        now = asyncio.get_running_loop().time()
        if now - self._asked_at >= self._again_s:
            self._asked_at = now
            with contextlib.suppress(MoorageError, TypeError, ValueError):
                self._known_ms = int(float((await self._edge.health()).started) * 1000)
        return self._known_ms


def _call(run: Run) -> Call:
    assert run.function_id is not None
    params = msgspec.Raw((run.params or "{}").encode())
    return Call(run.function_id, run.activation_id, "schedule", params, run.schedule_id)
