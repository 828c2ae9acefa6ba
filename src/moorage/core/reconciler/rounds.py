"""Reconcile loop of resources on this machine, with one task per resource.

Level-triggered: a round compares the desired state of all resources with the observed one and starts tasks to remove
the differences. A resource has at most one task, so a round neither waits for a task nor starts it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove


class Rounds:
    def __init__(self, telemetry: Telemetry, name: str, every_s: float) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}  # running tasks by resource
        self._telemetry = telemetry
        self._name = name  # of the reconciler, in crash reports
        self._every_s = every_s
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Start the next round at once."""
        self._wake.set()

    async def run(self, round_: Callable[[], Awaitable[None]]) -> None:
        """Run rounds now, on `wake` and periodically; cancelling cancels the tasks."""
        try:
            while True:
                self._wake.clear()
                await self._run_safely(round_, self._name)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._every_s)
        finally:
            await self.stop()

    def begin(self, key: str, work: Callable[[], Awaitable[None]], after: Callable[[], object] | None = None) -> None:
        """Start a task unless the resource has one; `after` runs when it ends."""
        if key in self.tasks:
            return

        async def work_unless_moved() -> None:
            # A concurrent transaction may have changed the status; the next round reads it.
            with contextlib.suppress(IllegalMove):
                await work()

        # A done callback also runs for a task that was cancelled before its first step.
        def on_done(_: asyncio.Task[None]) -> None:
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

    async def _run_safely(self, work: Callable[[], Awaitable[None]], where: str) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an error of one resource must not stop the others
            self._telemetry.crashed(None, error, where=where)
