"""Buffers the results of checks and writes them in batches.

While the database fails, results stay in the buffer; beyond MAX_BUFFERED the oldest are dropped.
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
from moorage.products.monitors.probing.pace import LogLimiter

WRITE_INTERVAL_S = 1.0
WRITE_RETRY_S = 1.0
MAX_BATCH_SIZE = 500
MAX_BUFFERED = 50_000  # ten minutes of 80 checks per second, about 30 MB


class ResultWriter:
    def __init__(self, db: Database, telemetry: Telemetry, token: str, steady: Callable[[], float]) -> None:
        self.token = token  # of the prober that holds the monitors
        self._db = db
        self._telemetry = telemetry
        self._dropped = telemetry.metrics.monitors.dropped
        self._steady = steady
        self._log_limit = LogLimiter(steady)
        self._beats: deque[Beat] = deque()
        self._arrived = asyncio.Event()
        self._lock = asyncio.Lock()
        self._wrote_at = float("-inf")
        self._batch_size = MAX_BATCH_SIZE  # of the next batch; halved to isolate a result that cannot be written

    def __len__(self) -> int:
        return len(self._beats)

    def add(self, beat: Beat) -> None:
        self._beats.append(beat)
        self._trim()
        self._arrived.set()

    async def run(self) -> None:
        """Write arriving results until cancelled, at most once per WRITE_INTERVAL_S."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(self._wrote_at + WRITE_INTERVAL_S - self._steady())
            self._arrived.clear()
            if not await self.flush():
                self._arrived.set()
                await asyncio.sleep(WRITE_RETRY_S)

    async def flush(self) -> bool:
        """Write all results now. Return False, and keep them, if the database failed."""
        async with self._lock:
            self._wrote_at = self._steady()
            while self._beats:
                if not await self._write_batch():
                    return False
        return True

    async def _write_batch(self) -> bool:
        batch = [self._beats.popleft() for _ in range(min(self._batch_size, len(self._beats)))]
        try:
            await self._db.write(partial(recording.record, prober=self.token, beats=batch))
        except asyncio.CancelledError:
            self._put_back(batch)
            raise
        except Exception as error:  # noqa: BLE001 - a temporary failure of the database must not end the loop
            return await self._on_failure(batch, error)
        self._batch_size = min(self._batch_size * 2, MAX_BATCH_SIZE)
        return True

    async def _on_failure(self, batch: list[Beat], error: Exception) -> bool:
        """Keep the batch while the database fails, else bisect it and drop the bad result."""
        self._put_back(batch)
        if not await self._is_writable():
            if self._log_limit("store"):
                self._telemetry.crashed(None, error, where="monitors")
                self._telemetry.log.warning("results of monitors cannot be written", waiting=len(self._beats))
            return False
        self._batch_size = max(len(batch) // 2, 1)
        if len(batch) == 1 and self._beats[0] is batch[0]:
            self._beats.popleft()
            self._dropped.labels("refused").inc()
            if self._log_limit("result"):
                self._telemetry.crashed(None, error, where="monitors")
        return True

    async def _is_writable(self) -> bool:
        try:
            await self._db.write(partial(leases.touch, token=self.token))
        except Exception:  # noqa: BLE001 - any error means that the database is not writable
            return False
        return True

    def _put_back(self, batch: list[Beat]) -> None:
        self._beats.extendleft(reversed(batch))
        self._trim()

    def _trim(self) -> None:
        while len(self._beats) > MAX_BUFFERED:
            self._beats.popleft()
            self._dropped.labels("no room").inc()
