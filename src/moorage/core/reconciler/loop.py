"""The reconciler: adds jobs where observed and desired state differ.

Each product registers an `ensure` function. It runs at startup, on `wake`, and periodically. An exception in one stops
neither the others nor its next run.
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
    _ensures: dict[str, tuple[Ensure, float]] = field(default_factory=dict)
    _wakes: dict[str, asyncio.Event] = field(default_factory=dict)

    def add(self, name: str, ensure: Ensure, *, every_s: float) -> None:
        self._ensures[name] = (ensure, every_s)
        self._wakes[name] = asyncio.Event()

    def wake(self, name: str) -> None:
        """Run one `ensure` at once."""
        self._wakes[name].set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        if not self._ensures:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            for name in self._ensures:
                group.create_task(self._run_periodically(name))

    async def _run_periodically(self, name: str) -> None:
        ensure, every_s = self._ensures[name]
        wake = self._wakes[name]
        while True:
            wake.clear()
            try:
                await ensure(self.db, self.db.env.clock.now())
            except Exception as error:  # noqa: BLE001 - an error must not end the loop
                self.telemetry.crashed(None, error, where=f"reconcile {name}")
            try:
                await asyncio.wait_for(wake.wait(), every_s)
            except TimeoutError:
                continue
