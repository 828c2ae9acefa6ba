"""Tells failures of a target from failures of this machine's network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.core.telemetry import Telemetry
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.pace import LogLimiter

CACHE_S = 5.0
TIMEOUT_S = 10.0

Probe = Callable[[], Awaitable[bool]]


class CanaryCheck:
    """Probes the canary after a check without a connection; caches the result."""

    def __init__(self, probe: Probe | None, telemetry: Telemetry, steady: Callable[[], float]) -> None:
        self._probe = probe
        self._telemetry = telemetry
        self._steady = steady
        self._log_limit = LogLimiter(steady)
        self._is_reachable = True
        self._probed_at = float("-inf")
        self._lock = asyncio.Lock()

    async def is_local_fault(self, outcome: Outcome) -> bool:
        """Return whether this machine's network, not the target, caused the outcome."""
        if self._probe is None or outcome.phase not in ("dns", "connect"):
            return False
        async with self._lock:
            if self._steady() - self._probed_at >= CACHE_S:
                self._is_reachable = await self._probe_within(self._probe)
                self._probed_at = self._steady()
        if not self._is_reachable and self._log_limit("down"):
            self._telemetry.log.warning("results of monitors are dropped: the canary is unreachable as well")
        return not self._is_reachable

    async def _probe_within(self, probe: Probe) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await probe()
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - a broken canary must not hide failures of targets
            self._telemetry.crashed(None, error, where="canary")
            return True
