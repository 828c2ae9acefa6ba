"""Writing down what checks found: a few times a second, whatever came up, in one transaction.

A store that fails loses nothing as long as there is room: what was found is kept and written once it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry
from moorage.products.monitors.probing import leases, recording
from moorage.products.monitors.probing.beats import Beat
from moorage.products.monitors.probing.pace import Seldom

EVERY_S = 1.0
AGAIN_S = 1.0
BATCH = 500
ROOM = 50_000  # Ten minutes of eighty checks a second; they take some 30 MB.


class Writing:
    def __init__(self, db: Database, telemetry: Telemetry, token: str, steady: Callable[[], float]) -> None:
        self.token = token  # under which results are written; it has to hold the monitors
        self._db = db
        self._telemetry = telemetry
        self._dropped = telemetry.metrics.monitors.dropped
        self._steady = steady
        self._seldom = Seldom(steady)
        self._beats: deque[Beat] = deque()
        self._arrived = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._wrote_at = float("-inf")
        self._most = BATCH  # in the next batch; fewer while it is sought which of them cannot be written

    def __len__(self) -> int:
        return len(self._beats)

    def add(self, beat: Beat) -> None:
        self._beats.append(beat)
        self._trim()
        self._arrived.set()

    async def run(self) -> None:
        """Write what arrives until cancelled: at once, but not again within a second."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(self._wrote_at + EVERY_S - self._steady())
            self._arrived.clear()
            if not await self.flush():
                self._arrived.set()
                await asyncio.sleep(AGAIN_S)

    async def flush(self) -> bool:
        """Write everything now. Return False where the store failed; then all of it is still here."""
        async with self._one_at_a_time:
            self._wrote_at = self._steady()
            while self._beats:
                if not await self._write_some():
                    return False
        return True

    async def _write_some(self) -> bool:
        batch = [self._beats.popleft() for _ in range(min(self._most, len(self._beats)))]
        try:
            await self._db.write(partial(recording.record, prober=self.token, beats=batch))
        except asyncio.CancelledError:
            self._keep(batch)
            raise
        except Exception as error:  # noqa: BLE001 - a store that is away for a moment must not end the writing
            return await self._failed(batch, error)
        self._most = min(self._most * 2, BATCH)
        return True

    async def _failed(self, batch: list[Beat], error: Exception) -> bool:
        """Find out who is to blame: the store, which may come back, or one of the results, which others wait behind."""
        self._keep(batch)
        if not await self._does_store_write():
            if self._seldom("store"):
                self._telemetry.crashed(None, error, where="monitors")
                self._telemetry.log.warning("results of monitors cannot be written", waiting=len(self._beats))
            return False
        self._most = max(len(batch) // 2, 1)
        if len(batch) == 1 and self._beats[0] is batch[0]:
            self._beats.popleft()
            self._dropped.labels("refused").inc()
            if self._seldom("result"):
                self._telemetry.crashed(None, error, where="monitors")
        return True

    async def _does_store_write(self) -> bool:
        try:
            await self._db.write(partial(leases.touch, token=self.token))
        except Exception:  # noqa: BLE001 - that it fails is what was asked
            return False
        return True

    def _keep(self, batch: list[Beat]) -> None:
        self._beats.extendleft(reversed(batch))
        self._trim()

    def _trim(self) -> None:
        while len(self._beats) > ROOM:
            self._beats.popleft()
            self._dropped.labels("no room").inc()
