"""What those share who keep this machine equal to some rows: a round that looks at everything, and a task for each.

Level-triggered: a round compares all that should be with what is, and begins whatever brings them together. What is
under way for one thing is one task, so a round never waits for it, and never begins it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove


class Rounds:
    def __init__(self, telemetry: Telemetry, what: str, every_s: float) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}  # what is under way
        self._telemetry = telemetry
        self._what = what  # names whose rounds these are, where a crash is told
        self._every_s = every_s
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Have everything looked at again, soon."""
        self._wake.set()

    async def run(self, round_: Callable[[], Awaitable[None]]) -> None:
        """Look at everything: at once, when woken, and every so often. Who cancels this ends what is under way, too."""
        try:
            while True:
                self._wake.clear()
                await self._safely(round_, self._what)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._every_s)
        finally:
            await self.stop()

    def begin(self, key: str, work: Callable[[], Awaitable[None]], after: Callable[[], object] | None = None) -> None:
        """Do something for a thing, unless something is under way for it. `after` is called however that ends."""
        if key in self.tasks:
            return

        async def unless_decided() -> None:
            # Somebody else may have decided about it meanwhile; the next round sees what.
            with contextlib.suppress(IllegalMove):
                await work()

        # This is called also for a task that was cancelled before it took its first step.
        def ended(_: asyncio.Task[None]) -> None:
            del self.tasks[key]
            if after is not None:
                after()
            self.wake()

        self.tasks[key] = asyncio.create_task(self._safely(unless_decided, f"{self._what} {key}"))
        self.tasks[key].add_done_callback(ended)

    async def stop(self) -> None:
        """Let go of everything that is under way; whoever looks next begins it again."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Return once nothing is under way; for those who step the rounds by hand."""
        while self.tasks:
            await asyncio.wait(self.tasks.values())

    async def _safely(self, work: Callable[[], Awaitable[None]], where: str) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - what is wrong with one thing must not stop the others
            self._telemetry.crashed(None, error, where=where)
