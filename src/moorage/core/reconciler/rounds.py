"""Reconcile loop of resources on this machine, with one task per resource.

Level-triggered: a round compares the desired state of all resources with the observed one and starts tasks to remove
the differences. A resource has at most one task, so a round neither waits for a task nor starts it twice.

A round that returns True has nothing left to do until rows change. If this process is the only writer of the store,
the next round then waits for a commit, and an idle platform reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from moorage.core.db.commits import Commits
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove, LostLease

SETTLED_INTERVAL_S = 30.0  # between rounds with nothing to do, in case an event was missed

Round = Callable[[], Awaitable[bool | None]]


class Rounds:
    def __init__(
        self,
        telemetry: Telemetry,
        name: str,
        every_s: float,
        commits: Commits | None = None,
        *,
        settled_s: float = SETTLED_INTERVAL_S,
    ) -> None:
        self.tasks: dict[str, asyncio.Task[bool]] = {}  # running tasks by resource
        self._telemetry = telemetry
        self._name = name  # of the reconciler, in crash reports
        self._every_s = every_s
        self._commits = commits
        self._settled_s = settled_s
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Start the next round at once."""
        self._wake.set()

    async def run(self, round_: Round) -> None:
        """Run rounds now, on `wake` and periodically; cancelling cancels the tasks."""
        try:
            while True:
                self._wake.clear()
                seen = self._commits.count if self._commits is not None else 0
                is_settled = await self._run_safely(round_, self._name)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await self._wake.wait()
                if is_settled and self._commits is not None and not self._wake.is_set():
                    await self._commits.wait(seen, self._wake, self._settled_s)
        finally:
            await self.stop()

    def begin(self, key: str, work: Callable[[], Awaitable[None]], after: Callable[[], object] | None = None) -> None:
        """Start a task unless the resource has one; `after` runs when it ends."""
        if key in self.tasks:
            return

        async def work_unless_moved() -> None:
            # A concurrent transaction may have changed the status or the owner; the next round reads it.
            with contextlib.suppress(IllegalMove, LostLease):
                await work()

        # A done callback also runs for a task that was cancelled before its first step.
        def on_done(_: asyncio.Task[bool]) -> None:
            del self.tasks[key]
            if after is not None:
                after()
            self.wake()

        self.tasks[key] = asyncio.create_task(self._run_safely(work_unless_moved, f"{self._name} {key}"))
        self.tasks[key].add_done_callback(on_done)

    async def stop(self) -> None:
        """Cancel all tasks; a later round starts them again."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until no task runs; for tests."""
        while self.tasks:
            await asyncio.wait(self.tasks.values())

    async def _run_safely(self, work: Round, where: str) -> bool:
        """Return whether the work is settled; work that failed is not."""
        try:
            return bool(await work())
        except LostLease:  # The heartbeat gets a new one; until then other machines decide.
            return False
        except Exception as error:  # noqa: BLE001 - an error of one resource must not stop the others
            self._telemetry.crashed(None, error, where=where)
            return False
