"""The reconciler: compares what is wanted with what is observed, and asks for jobs where they differ.

Each feature gives one `ensure`. It runs at start, when somebody wakes it, and every so often; a crash of one neither
stops the others nor itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry

Ensure = Callable[[Database, int], Awaitable[None]]  # (db, now)


@dataclass
class Reconciler:
    db: Database
    telemetry: Telemetry
    _parts: dict[str, tuple[Ensure, float]] = field(default_factory=dict)
    _wakes: dict[str, asyncio.Event] = field(default_factory=dict)

    def add(self, name: str, ensure: Ensure, *, every_s: float) -> None:
        self._parts[name] = (ensure, every_s)
        self._wakes[name] = asyncio.Event()

    def wake(self, name: str) -> None:
        """Have one part look again at once."""
        self._wakes[name].set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        if not self._parts:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            for name in self._parts:
                group.create_task(self._keep(name))

    async def _keep(self, name: str) -> None:
        ensure, every_s = self._parts[name]
        wake = self._wakes[name]
        while True:
            wake.clear()
            try:
                await ensure(self.db, self.db.env.clock.now())
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever one part meets
                self.telemetry.crashed(None, error, where=f"reconcile {name}")
            try:
                await asyncio.wait_for(wake.wait(), every_s)
            except TimeoutError:
                continue
